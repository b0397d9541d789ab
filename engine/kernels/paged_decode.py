"""Attention of a few new tokens per request over a paged cache: decode and speculative verification.

The keys of a request are cut into splits that run in parallel (Flash-Decoding). How long a split is depends on the length of its
request alone, so the result of a request does not depend on what else is in the batch. The program that finishes last merges the
splits of its tile by their log-sum-exp, in fixed order: one launch, and no dependence on who was last.

The kernel also stores the new keys and values, rotated if asked to. Every split writes the new tokens of its own range before it
reads that range, so no program waits for another one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from engine.kernels.jit import (
    OVERLAPS,
    dot,
    jit,
    launch_options,
    start_next_kernel,
    tl,
    triton,
    wait_for_previous_kernel,
)
from engine.kernels.paging import slot_offsets, to_stored
from engine.kernels.rotary import check_angles, load_rotated

if TYPE_CHECKING:
    from torch import Tensor

    from engine.kernels.paging import Pages, Paging

MAX_QUERIES = 16
"""Most new tokens of a request that this kernel takes; longer ones are prefill."""

_MIN_SPLIT = 128
_MAX_SPLITS = 32
_BLOCK_N = 64
_MIN_DOT_ROWS = 16
_LOG2_E = 1.4426950408889634


@jit
def split_length(kv_len: tl.tensor, MIN_SPLIT: tl.constexpr, MAX_SPLITS: tl.constexpr) -> tl.tensor:
    """Keys per split: the least multiple of MIN_SPLIT that needs at most MAX_SPLITS splits."""
    per_split = (kv_len + MAX_SPLITS - 1) // MAX_SPLITS
    return tl.maximum((per_split + MIN_SPLIT - 1) // MIN_SPLIT, 1) * MIN_SPLIT


@jit
def _store_new_tokens(  # noqa: PLR0913 - kernels take pointers and sizes one by one
    k_ptr: tl.tensor,
    v_ptr: tl.tensor,
    cos_ptr: tl.tensor,
    sin_ptr: tl.tensor,
    slot_ptr: tl.tensor,
    k_cache_ptr: tl.tensor,
    v_cache_ptr: tl.tensor,
    k_scale: tl.tensor,
    v_scale: tl.tensor,
    k_stride: tl.tensor,
    v_stride: tl.tensor,
    block_stride: tl.tensor,
    slot_stride: tl.tensor,
    first_token: tl.tensor,
    token: tl.tensor,
    inside: tl.tensor,
    kv_head: tl.tensor,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PAGE: tl.constexpr,
    ROTATE: tl.constexpr,
) -> None:
    d = tl.arange(0, BLOCK_D)
    row = (first_token + token).to(tl.int64)
    slot = tl.load(slot_ptr + row, mask=inside, other=-1)
    inside = inside & (slot >= 0)
    mask = inside[:, None] & (d < HEAD_DIM)[None, :]
    k = load_rotated(
        k_ptr, row * k_stride + kv_head * HEAD_DIM, cos_ptr, sin_ptr, row, inside, HEAD_DIM, BLOCK_D, ROTATE
    )
    v = tl.load(v_ptr + (row * v_stride + kv_head * HEAD_DIM)[:, None] + d[None, :], mask=mask, other=0.0)
    target = (slot // PAGE) * block_stride + (slot % PAGE) * slot_stride + kv_head * HEAD_DIM
    STORED: tl.constexpr = k_cache_ptr.dtype.element_ty
    tl.store(k_cache_ptr + target[:, None] + d[None, :], to_stored(k, k_scale, STORED), mask=mask)
    tl.store(v_cache_ptr + target[:, None] + d[None, :], to_stored(v, v_scale, STORED), mask=mask)


@jit
def _decode_kernel(  # noqa: PLR0913 - kernels take pointers and sizes one by one
    q_ptr: tl.tensor,
    k_ptr: tl.tensor,
    v_ptr: tl.tensor,
    cos_ptr: tl.tensor,
    sin_ptr: tl.tensor,
    out_ptr: tl.tensor,
    k_cache_ptr: tl.tensor,
    v_cache_ptr: tl.tensor,
    slot_ptr: tl.tensor,
    table_ptr: tl.tensor,
    seq_lens_ptr: tl.tensor,
    cu_q_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    arrivals_ptr: tl.tensor,
    score_scale: float,
    k_scale: float,
    v_scale: float,
    q_stride: int,
    k_stride: int,
    v_stride: int,
    block_stride: int,
    slot_stride: int,
    table_stride: int,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PAGE: tl.constexpr,
    WINDOW: tl.constexpr,
    NEW_TOKENS: tl.constexpr,
    TOKEN_LIMIT: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MIN_SPLIT: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    STORES: tl.constexpr,
    ROTATE: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    request = tl.program_id(0)
    tile = tl.program_id(1)
    split = tl.program_id(2)
    kv_head = tile % KV_HEADS
    first_query = (tile // KV_HEADS) * TILE_TOKENS
    kv_len = tl.load(seq_lens_ptr + request)
    first_token = tl.load(cu_q_ptr + request)
    q_len = tl.load(cu_q_ptr + request + 1) - first_token
    length = split_length(kv_len, MIN_SPLIT, MAX_SPLITS)
    num_splits = tl.maximum((kv_len + length - 1) // length, 1)
    # Lengths are not written by the kernel before, so idle programs leave without waiting for it.
    if (split >= num_splits) | (first_query >= q_len) | (q_len > TOKEN_LIMIT):
        return
    wait_for_previous_kernel(OVERLAP)
    start_next_kernel(OVERLAP)

    past = kv_len - q_len
    begin = split * length
    end = tl.minimum(begin + length, kv_len)
    if STORES and end > past:
        token = tl.arange(0, NEW_TOKENS)
        inside = (token < q_len) & (past + token >= begin) & (past + token < end)
        _store_new_tokens(
            k_ptr,
            v_ptr,
            cos_ptr,
            sin_ptr,
            slot_ptr,
            k_cache_ptr,
            v_cache_ptr,
            k_scale,
            v_scale,
            k_stride,
            v_stride,
            block_stride,
            slot_stride,
            first_token,
            token,
            inside,
            kv_head,
            HEAD_DIM,
            BLOCK_D,
            PAGE,
            ROTATE,
        )
        tl.debug_barrier()

    row = tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    query = first_query + row // GROUP
    row_inside = (row < TILE_TOKENS * GROUP) & (query < q_len)
    head = kv_head * GROUP + row % GROUP
    query_token = (first_token + query).to(tl.int64)
    position = past + query
    q = load_rotated(
        q_ptr,
        query_token * q_stride + head * HEAD_DIM,
        cos_ptr,
        sin_ptr,
        query_token,
        row_inside,
        HEAD_DIM,
        BLOCK_D,
        ROTATE,
    )

    if WINDOW > 0:
        oldest = tl.maximum(past + first_query - WINDOW + 1, 0)
        begin = tl.maximum(begin, oldest // BLOCK_N * BLOCK_N)
    maximum = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    for first in range(begin, end, BLOCK_N):
        key = first + tl.arange(0, BLOCK_N)
        offset = slot_offsets(
            table_ptr + request.to(tl.int64) * table_stride, first, end, block_stride, slot_stride, PAGE, BLOCK_N
        )
        address = (offset + kv_head * HEAD_DIM)[:, None] + d[None, :]
        # Masked, although the scores are masked again: slots past the end may hold NaN, and 0 * NaN is NaN.
        inside = (key < end)[:, None] & (d < HEAD_DIM)[None, :]
        k = tl.load(k_cache_ptr + address, mask=inside, other=0.0)
        v = tl.load(v_cache_ptr + address, mask=inside, other=0.0)
        score = dot(q, tl.trans(k.to(q.dtype)), tl.zeros((BLOCK_M, BLOCK_N), tl.float32)) * score_scale
        seen = (key[None, :] <= position[:, None]) & (key < end)[None, :]
        if WINDOW > 0:
            seen = seen & (key[None, :] > position[:, None] - WINDOW)
        score = tl.where(seen, score, float("-inf"))
        new_maximum = tl.maximum(maximum, tl.max(score, axis=1))
        base = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)
        weight = tl.exp2(score - base[:, None])
        decay = tl.exp2(maximum - base)
        total = total * decay + tl.sum(weight, axis=1)
        acc = dot(weight.to(q.dtype), v.to(q.dtype), acc * decay[:, None])
        maximum = new_maximum

    acc = acc * v_scale / tl.where(total == 0.0, 1.0, total)[:, None]
    out_row = query_token * (KV_HEADS * GROUP) + head
    out_mask = row_inside[:, None] & (d < HEAD_DIM)[None, :]
    if num_splits == 1:
        tl.store(out_ptr + (out_row * HEAD_DIM)[:, None] + d[None, :], acc.to(out_ptr.dtype.element_ty), mask=out_mask)
        return

    partial_row = out_row * MAX_SPLITS
    lse = maximum + tl.log2(tl.where(total == 0.0, 1.0, total))
    tl.store(lse_ptr + partial_row + split, lse, mask=row_inside)
    tl.store(partial_ptr + ((partial_row + split) * HEAD_DIM)[:, None] + d[None, :], acc, mask=out_mask)
    tl.debug_barrier()
    counter = arrivals_ptr + request * tl.num_programs(1) + tile
    if tl.atomic_add(counter, 1, sem="acq_rel") == num_splits - 1:
        tl.store(counter, 0)
        index = tl.arange(0, MAX_SPLITS)
        lses = tl.load(
            lse_ptr + partial_row[:, None] + index[None, :],
            mask=row_inside[:, None] & (index < num_splits)[None, :],
            other=float("-inf"),
            cache_modifier=".cg",
        )
        maximum = tl.max(lses, axis=1)
        base = tl.where(maximum == float("-inf"), 0.0, maximum)
        total = tl.sum(tl.exp2(lses - base[:, None]), axis=1)
        inverse = 1.0 / tl.where(total == 0.0, 1.0, total)
        acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
        for other in tl.range(0, num_splits, num_stages=4):
            lse = tl.load(lse_ptr + partial_row + other, mask=row_inside, other=float("-inf"), cache_modifier=".cg")
            part = tl.load(
                partial_ptr + ((partial_row + other) * HEAD_DIM)[:, None] + d[None, :],
                mask=out_mask,
                other=0.0,
                cache_modifier=".cg",
            )
            acc += part * (tl.exp2(lse - base) * inverse)[:, None]
        tl.store(out_ptr + (out_row * HEAD_DIM)[:, None] + d[None, :], acc.to(out_ptr.dtype.element_ty), mask=out_mask)


class DecodeCounters:
    """Which splits of a tile have arrived. Zero between launches: the last program of a tile resets its counter.

    One object serves any number of launches on one stream. It grows outside of CUDA graphs only, so take it as large as the
    largest batch before capturing.
    """

    def __init__(self, device: torch.device, size: int = 16384) -> None:
        self._counters = torch.zeros(size, dtype=torch.int32, device=device)

    def at_least(self, size: int) -> Tensor:
        """int32 tensor of at least `size` zeros."""
        if self._counters.numel() < size:
            self._counters = torch.zeros(triton.next_power_of_2(size), dtype=torch.int32, device=self._counters.device)
        return self._counters


def paged_decode(  # noqa: PLR0913, PLR0917 - new tokens, cache, batch and the three settings of a layer
    q_THD: Tensor,
    new_kv: tuple[Tensor, Tensor] | None,
    pages: Pages,
    paging: Paging,
    counters: DecodeCounters,
    *,
    scale: float,
    out_THD: Tensor,
    window: int | None = None,
    angles: tuple[Tensor, Tensor] | None = None,
) -> None:
    """Store the new keys and values of requests with at most `MAX_QUERIES` new tokens, and attend.

    Requests with more new tokens are left to `paged_prefill`: neither stored nor attended, their rows of `out_THD` stay.

    Args:
        q_THD: queries; heads of a token contiguous, a view into a wider tensor is fine.
        new_kv: k_TND and v_TND, as contiguous as q, stored at `paging.slot_mapping_T`. None: the pages hold them already.
        pages: cache of the layer.
        paging: the batch. Grid and memory depend on its shapes, `max_q` and `max_k`, never on device values: capturable.
        counters: of this stream.
        scale: factor on q.k.
        out_THD: contiguous, dtype of q; rows of the requests are written. Of padding (length 0) they are 0.
        window: number of last tokens that a query sees, itself included; None is all.
        angles: cos_TD and sin_TD: rotate q and k first, see `engine.kernels.rotary.rotate`. None: they are rotated already.

    Raises:
        ValueError: a layout does not fit. Checked on the host: no device value is read.

    Cost: the keys and values of each request read once per 16 rows of a KV head's group, 1 launch, no synchronisation; scratch of
    T * H * 32 * (D + 1) floats. Source: Flash-Decoding, Dao et al. 2023; PagedAttention, Kwon et al. 2023.
    """
    num_tokens, num_heads, head_dim = q_THD.shape
    num_kv_heads = pages.k_BSND.shape[2]
    k_TND, v_TND = new_kv if new_kv is not None else (q_THD, q_THD)
    check_layout(q_THD, new_kv, pages)
    if angles is not None:
        check_angles(head_dim, *angles)
    if num_tokens == 0:
        return
    group = num_heads // num_kv_heads
    block_m = max(_MIN_DOT_ROWS, triton.next_power_of_2(group))
    tile_tokens = block_m // group
    max_q = min(paging.max_q, MAX_QUERIES)
    num_requests = paging.seq_lens_B.shape[0]
    tiles = num_kv_heads * triton.cdiv(max_q, tile_tokens)
    splits = min(_MAX_SPLITS, triton.cdiv(max(paging.max_k, 1), _MIN_SPLIT))
    scratch = torch.empty(
        num_tokens * num_heads * _MAX_SPLITS * (head_dim + 1), dtype=torch.float32, device=q_THD.device
    )
    cos, sin = angles if angles is not None else (q_THD, q_THD)
    _decode_kernel[(num_requests, tiles, splits)](
        q_THD,
        k_TND,
        v_TND,
        cos,
        sin,
        out_THD,
        pages.k_BSND,
        pages.v_BSND,
        paging.slot_mapping_T,
        paging.block_table_BM,
        paging.seq_lens_B,
        paging.cu_q_B1,
        scratch,
        scratch[num_tokens * num_heads * _MAX_SPLITS * head_dim :],
        counters.at_least(num_requests * tiles),
        scale * pages.k_scale * _LOG2_E,
        pages.k_scale,
        pages.v_scale,
        q_THD.stride(0),
        k_TND.stride(0),
        v_TND.stride(0),
        pages.k_BSND.stride(0),
        pages.k_BSND.stride(1),
        paging.block_table_BM.stride(0),
        KV_HEADS=num_kv_heads,
        GROUP=group,
        HEAD_DIM=head_dim,
        BLOCK_D=max(16, triton.next_power_of_2(head_dim)),
        PAGE=pages.k_BSND.shape[1],
        WINDOW=window or 0,
        NEW_TOKENS=triton.next_power_of_2(max_q),
        TOKEN_LIMIT=MAX_QUERIES,
        TILE_TOKENS=tile_tokens,
        BLOCK_M=block_m,
        BLOCK_N=_BLOCK_N,
        MIN_SPLIT=_MIN_SPLIT,
        MAX_SPLITS=_MAX_SPLITS,
        STORES=new_kv is not None,
        ROTATE=angles is not None,
        OVERLAP=OVERLAPS,
        **launch_options(num_warps=4, num_stages=2 if q_THD.dtype == torch.float32 else 3),
    )


def check_layout(q_THD: Tensor, new_kv: tuple[Tensor, Tensor] | None, pages: Pages) -> None:
    """Refuse tensors that the attention kernels would misread.

    Raises:
        ValueError: shapes do not fit each other or the pages, H is no multiple of N, or heads of a token are not contiguous.
    """
    num_tokens, num_heads, head_dim = q_THD.shape
    num_kv_heads = pages.k_BSND.shape[2]
    if num_heads % num_kv_heads or pages.k_BSND.shape[3] != head_dim:
        raise ValueError(f"queries {tuple(q_THD.shape)} cannot share pages {tuple(pages.k_BSND.shape)}")
    for new in new_kv or ():
        if new.shape != (num_tokens, num_kv_heads, head_dim):
            raise ValueError(f"keys or values {tuple(new.shape)} do not fit queries {tuple(q_THD.shape)} and the pages")
    if any(x.stride()[1:] != (head_dim, 1) for x in (q_THD, *(new_kv or ()))):
        raise ValueError("the heads of a token must be contiguous")


def paged_attention_reference(
    q_THD: Tensor, pages: Pages, paging: Paging, scale: float, window: int | None = None
) -> Tensor:
    """Attention over pages that already hold the new tokens, request by request, in the precision of q; reads lengths on the host."""
    out_THD = torch.zeros_like(q_THD)
    starts = paging.cu_q_B1.tolist()
    page = pages.k_BSND.shape[1]
    for request, kv_len in enumerate(paging.seq_lens_B.tolist()):
        rows = slice(starts[request], starts[request + 1])
        num_queries = rows.stop - rows.start
        if kv_len == 0 or num_queries == 0:
            continue
        token = torch.arange(kv_len, device=q_THD.device)
        block = paging.block_table_BM[request, token // page].long()
        k = pages.k_BSND[block, token % page].to(q_THD.dtype) * pages.k_scale
        v = pages.v_BSND[block, token % page].to(q_THD.dtype) * pages.v_scale
        group = q_THD.shape[1] // k.shape[1]
        score = torch.einsum("qhd,khd->hqk", q_THD[rows], k.repeat_interleave(group, 1)) * scale
        position = kv_len - num_queries + torch.arange(num_queries, device=q_THD.device)[:, None]
        unseen = (token > position) | (token <= position - (window or math.inf))
        weight = score.masked_fill(unseen, -math.inf).softmax(-1)
        out_THD[rows] = torch.einsum("hqk,khd->qhd", weight, v.repeat_interleave(group, 1))
    return out_THD
