"""Attention in plain PyTorch: the fast path on the CPU, and the oracle of every other backend.

A pass is cut into groups of requests with the same number of new tokens and similar lengths. Each group gathers its
keys and values once and runs one scaled-dot-product call. Query heads that share a KV head are folded into the query
dimension, so that keys and values are never repeated. A prompt without earlier tokens attends to its own directly.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from engine.attention.backend import AttentionSpec, KvCache
from engine.attention.mask import additive_mask
from engine.attention.meta import AttentionMeta

_MAX_GROUPED_QUERIES = 8
_MAX_BUCKETS = 12
_MIN_BUCKET_ROWS = 4


class TorchReferenceAttention:
    """Backend `torch_ref`."""

    def __init__(self, spec: AttentionSpec) -> None:
        self._spec = spec

    def bind(self, kv: KvCache, meta: AttentionMeta) -> "TorchReferencePass":
        """Group the requests; reads lengths on the host, which waits for the device where there is one."""
        return TorchReferencePass(self._spec, kv, meta)


@dataclass(frozen=True, slots=True)
class _Group:
    """R requests with Q new tokens each, at most `max_k` long.

    Attributes:
        rows: their rows in the batch, R of them.
        lengths: their tokens.
        num_queries: Q.
        tokens: their new tokens, in the order of the groups.
        source: the new tokens of the first of them, in the order of the batch.
        peers: their place among all requests with Q new tokens, in the order of the groups.
    """

    rows: list[int]
    lengths: list[int]
    num_queries: int
    tokens: slice
    source: slice
    peers: slice

    @property
    def max_k(self) -> int:
        return max(self.lengths)

    @property
    def is_fresh_prompt(self) -> bool:
        return len(self.lengths) == 1 and self.lengths[0] == self.num_queries


class TorchReferencePass:
    """One forward pass of `torch_ref`."""

    def __init__(self, spec: AttentionSpec, kv: KvCache, meta: AttentionMeta) -> None:
        self._spec = spec
        self._kv = kv
        self._meta = meta
        starts = meta.cu_q_B1.tolist()
        self._groups = _group_requests(starts, meta.seq_lens_B.tolist())
        device = meta.cu_q_B1.device
        self._tables = [meta.block_table_BM[torch.tensor(group.rows, device=device)] for group in self._groups]
        order = _token_order(self._groups, starts)
        is_sorted = order == list(range(meta.slot_mapping_T.shape[0]))
        self._order = None if is_sorted else torch.tensor(order, dtype=torch.int64, device=device)
        self._masks: dict[tuple[int, int | None], Tensor] = {}

    def __call__(self, q_THD: Tensor, k_TND: Tensor, v_TND: Tensor, layer: int) -> Tensor:
        """See `engine.attention.backend.Attend`."""
        self._kv.write(layer, k_TND, v_TND, self._meta)
        q_sorted = q_THD if self._order is None else q_THD.index_select(0, self._order)
        parts = [q_THD[:0]]
        for index, group in enumerate(self._groups):
            q = q_sorted[group.tokens]
            if group.is_fresh_prompt and self._sees_all(group, layer) and k_TND.dtype == self._kv.dtype:
                parts.append(_attend_fresh(q, k_TND[group.source], v_TND[group.source], self._spec.scale))
            else:
                parts.append(self._attend_cached(index, q, layer))
        out_sorted = torch.cat(parts)
        if self._order is None:
            return out_sorted
        # Zeros where tokens are padding, which no group has.
        out_THD = torch.zeros(q_THD.shape, dtype=q_THD.dtype, device=q_THD.device)
        return out_THD.index_copy_(0, self._order, out_sorted)

    def _sees_all(self, group: _Group, layer: int) -> bool:
        window = self._spec.windows[layer]
        return window is None or group.max_k <= window

    def _attend_cached(self, index: int, q_THD: Tensor, layer: int) -> Tensor:
        group = self._groups[index]
        k_RKND, v_RKND = self._kv.read(layer, self._tables[index], group.max_k)
        num_kv_heads, head_dim = k_RKND.shape[2:]
        heads_per_kv = q_THD.shape[1] // num_kv_heads
        shape = (len(group.lengths), group.num_queries, num_kv_heads, heads_per_kv, head_dim)
        # (R, Q, N, G, D) -> (R, N, Q * G, D): the G heads of a KV head become queries at the same position.
        folded = q_THD.reshape(shape).transpose(1, 2).flatten(2, 3)
        mask = self._mask(index, layer, heads_per_kv, q_THD)
        out = scaled_dot_product_attention(
            folded, k_RKND.transpose(1, 2), v_RKND.transpose(1, 2), attn_mask=mask, scale=self._spec.scale
        )
        return (
            out.view(shape[0], num_kv_heads, group.num_queries, heads_per_kv, head_dim)
            .transpose(1, 2)
            .reshape(q_THD.shape)
        )

    def _mask(self, index: int, layer: int, heads_per_kv: int, like: Tensor) -> Tensor:
        """Additive mask (R, 1, Q * G, K): built once per pass for all requests with Q new tokens, then cut."""
        group = self._groups[index]
        key = (group.num_queries, self._spec.windows[layer])
        if key not in self._masks:
            lengths = [n for other in self._groups if other.num_queries == group.num_queries for n in other.lengths]
            mask = additive_mask(lengths, group.num_queries, max(lengths), key[1], like)
            self._masks[key] = mask.repeat_interleave(heads_per_kv, dim=1).unsqueeze(1)
        return self._masks[key][group.peers, :, :, : group.max_k]


def _attend_fresh(q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, scale: float) -> Tensor:
    """Causal attention of one prompt over its own keys: skipping the upper triangle pays for repeating the heads."""
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q_TND, k_TND, v_TND))
    out = scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
    return out.squeeze(0).transpose(0, 1)


def _group_requests(starts: list[int], lengths: list[int]) -> list[_Group]:
    """Cut the batch into groups; requests without new tokens belong to none."""
    by_queries: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        num_queries = starts[row + 1] - starts[row]
        if num_queries and length:
            by_queries.setdefault(num_queries, []).append(row)
    groups: list[_Group] = []
    token = 0
    for num_queries, rows in by_queries.items():
        peer = 0
        for bucket in _buckets(rows, lengths, num_queries):
            tokens = slice(token, token + len(bucket) * num_queries)
            source = slice(starts[bucket[0]], starts[bucket[0]] + num_queries)
            peers = slice(peer, peer + len(bucket))
            groups.append(_Group(bucket, [lengths[row] for row in bucket], num_queries, tokens, source, peers))
            token, peer = tokens.stop, peers.stop
    return groups


def _buckets(rows: list[int], lengths: list[int], num_queries: int) -> list[list[int]]:
    """Split requests by length: padding to the longest of a bucket costs less than to the longest of the batch."""
    if num_queries > _MAX_GROUPED_QUERIES:
        return [[row] for row in rows]
    if len(rows) < 2 * _MIN_BUCKET_ROWS:
        return [rows]
    ordered = sorted(rows, key=lambda row: lengths[row])
    size = max(_MIN_BUCKET_ROWS, -(-len(rows) // _MAX_BUCKETS))
    return [ordered[first : first + size] for first in range(0, len(ordered), size)]


def _token_order(groups: list[_Group], starts: list[int]) -> list[int]:
    """Number in the batch of each new token, in the order of the groups."""
    return [starts[row] + offset for group in groups for row in group.rows for offset in range(group.num_queries)]
