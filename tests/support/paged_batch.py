"""Random paged batches for tests of kernels, with everything that a correct kernel must not touch set to NaN."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.attention.meta import AttentionMeta
from engine.kernels.paging import Pages
from engine.model.kv.paged import KvGeometry, PagedKv

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True)
class Shape:
    """Lengths of the requests and sizes of the heads and blocks."""

    seq_lens: tuple[int, ...]
    q_lens: tuple[int, ...]
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    page: int = 16
    dtype: torch.dtype = torch.float32
    stored: torch.dtype | None = None
    scales: tuple[float, float] = (1.0, 1.0)


@dataclass(frozen=True)
class PagedBatch:
    """New tokens, and a cache that holds the earlier ones."""

    q_THD: Tensor
    k_TND: Tensor
    v_TND: Tensor
    kv: PagedKv
    meta: AttentionMeta

    @property
    def pages(self) -> Pages:
        """The cache as kernels take it."""
        return Pages(*self.kv.layer(0), *self.kv.scales(0))

    def only(self, row: int) -> PagedBatch:
        """The same request alone."""
        first, last = (int(x) for x in self.meta.cu_q_B1[row : row + 2])
        length = int(self.meta.seq_lens_B[row])
        meta = AttentionMeta(
            self.meta.cu_q_B1[row : row + 2] - first,
            self.meta.seq_lens_B[row : row + 1],
            self.meta.block_table_BM[row : row + 1],
            self.meta.slot_mapping_T[first:last],
            max(last - first, 1),
            length,
        )
        return replace(self._tokens(first, last), meta=meta)

    def chunk(self, first: int, last: int) -> PagedBatch:
        """Tokens `first` to `last` of a batch of one fresh prompt, the cache as it is."""
        meta = AttentionMeta(
            torch.tensor([0, last - first], dtype=torch.int32, device=DEVICE),
            torch.tensor([last], dtype=torch.int32, device=DEVICE),
            self.meta.block_table_BM,
            self.meta.slot_mapping_T[first:last],
            last - first,
            last,
        )
        return replace(self._tokens(first, last), meta=meta)

    def with_queries(self, q_THD: Tensor) -> PagedBatch:
        """The same batch with other queries."""
        return replace(self, q_THD=q_THD)

    def _tokens(self, first: int, last: int) -> PagedBatch:
        rows = slice(first, last)
        return replace(self, q_THD=self.q_THD[rows], k_TND=self.k_TND[rows], v_TND=self.v_TND[rows])


def make_batch(shape: Shape, seed: int) -> PagedBatch:
    """Draw a batch: blocks in random order, unused slots NaN, block numbers past the end of a request strange."""
    generator = torch.Generator().manual_seed(seed)
    columns = [-(-length // shape.page) for length in shape.seq_lens]
    width = max(*columns, 1) + 1
    order = torch.randperm(sum(columns) + 3, generator=generator)
    table = torch.full((len(columns), width), int(order[-1]), dtype=torch.int32)
    caches = torch.full((2, len(order), shape.page, shape.kv_heads, shape.head_dim), torch.nan)
    slots: list[int] = []
    used = 0
    for row, (length, q_len) in enumerate(zip(shape.seq_lens, shape.q_lens, strict=True)):
        table[row, : columns[row]] = order[used : used + columns[row]]
        used += columns[row]
        position = torch.arange(max(length - q_len, 0))
        for cache in caches:
            block = table[row, position // shape.page].long()
            cache[block, position % shape.page] = torch.randn(
                len(position), shape.kv_heads, shape.head_dim, generator=generator
            )
        new = range(length - q_len, length)
        slots += [int(table[row, p // shape.page]) * shape.page + p % shape.page if length else -1 for p in new]
    num_tokens = sum(shape.q_lens)
    packed = torch.randn(num_tokens, shape.heads + 2 * shape.kv_heads, shape.head_dim, generator=generator)
    packed = packed.to(DEVICE, shape.dtype)
    q, k, v = torch.split(packed, [shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
    starts = torch.tensor([0, *shape.q_lens]).cumsum(0).to(torch.int32)
    meta = AttentionMeta(
        starts.to(DEVICE),
        torch.tensor(shape.seq_lens, dtype=torch.int32, device=DEVICE),
        table.to(DEVICE),
        torch.tensor(slots, dtype=torch.int64, device=DEVICE),
        max(shape.q_lens),
        max(shape.seq_lens),
    )
    return PagedBatch(q, k, v, _fill_cache(shape, caches), meta)


def _fill_cache(shape: Shape, caches: Tensor) -> PagedKv:
    geometry = KvGeometry(range(1), shape.kv_heads, shape.head_dim, shape.dtype)
    kv = PagedKv(geometry, caches.shape[1], shape.page, shape.stored or shape.dtype, DEVICE)
    if shape.scales != (1.0, 1.0):
        kv.set_scales(0, *shape.scales)
    for pages, values in zip(kv.layer(0), caches, strict=True):
        pages.copy_(values.to(DEVICE, pages.dtype))
    return kv


def angles(num_tokens: int, head_dim: int, seed: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Cosines and sines of random angles as the kernels take them."""
    angle = torch.rand(num_tokens, head_dim // 2, generator=torch.Generator().manual_seed(seed)) * 6.28
    cos = torch.cat((angle.cos(), angle.cos()), -1)
    sin = torch.cat((-angle.sin(), angle.sin()), -1)
    return cos.to(DEVICE, dtype), sin.to(DEVICE, dtype)


def relative_error(out: Tensor, expected: Tensor) -> float:
    """||out - expected|| / ||expected||, in float64; NaN if anything is NaN."""
    difference = out.double() - expected.double()
    return float(difference.norm() / expected.double().norm().clamp_min(1e-300))
