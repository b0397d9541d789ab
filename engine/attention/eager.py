"""Attention with the whole score matrix in memory. Ill on purpose: the cure is any other backend.

Keys and values are repeated for every query head, scores and probabilities of the padded batch are written out in
fp32, and the mask is built anew in every layer.
"""

import torch
from torch import Tensor

from engine.attention.backend import AttentionSpec, KvCache
from engine.attention.mask import visible
from engine.attention.meta import AttentionMeta


class EagerAttention:
    """Backend `eager`."""

    def __init__(self, spec: AttentionSpec) -> None:
        """Keep the scale and the windows."""
        self._spec = spec

    def bind(self, kv: KvCache, meta: AttentionMeta) -> "EagerPass":
        """Keep the batch; nothing is prepared."""
        return EagerPass(self._spec, kv, meta)


class EagerPass:
    """One forward pass of `eager`."""

    def __init__(self, spec: AttentionSpec, kv: KvCache, meta: AttentionMeta) -> None:
        """Keep the batch."""
        self._spec = spec
        self._kv = kv
        self._meta = meta

    def __call__(self, q_THD: Tensor, k_TND: Tensor, v_TND: Tensor, layer: int) -> Tensor:
        """See `engine.attention.backend.Attend`.

        Cost: B x H x max_q x max_k scores in fp32, written and read three times; one synchronisation.
        """
        meta = self._meta
        self._kv.write(layer, k_TND, v_TND, meta)
        k_BKND, v_BKND = self._kv.read(layer, meta.block_table_BM, meta.max_k)
        starts_B = meta.cu_q_B1[:-1].long()
        counts_B = meta.cu_q_B1[1:].long() - starts_B
        offset = torch.arange(meta.max_q, device=q_THD.device)
        is_token_BQ = offset < counts_B[:, None]
        rows_BQ = (starts_B[:, None] + offset).clamp_(max=max(q_THD.shape[0] - 1, 0))
        q_BQHD = q_THD[rows_BQ]
        seen_BQK = self._visible(counts_B, layer)
        out_BQHD = _attend_padded(q_BQHD, k_BKND, v_BKND, seen_BQK, self._spec.scale)
        out_THD = torch.zeros_like(q_THD, memory_format=torch.contiguous_format)
        out_THD[rows_BQ[is_token_BQ]] = out_BQHD[is_token_BQ]
        return out_THD

    def _visible(self, counts_B: Tensor, layer: int) -> Tensor:
        """Mask of the padded batch: `visible` counts queries from the end, here they stand at the front."""
        meta = self._meta
        as_if_full_B = meta.seq_lens_B.long() - counts_B + meta.max_q
        return visible(as_if_full_B, meta.max_q, meta.max_k, self._spec.windows[layer])


def _attend_padded(q_BQHD: Tensor, k_BKND: Tensor, v_BKND: Tensor, seen_BQK: Tensor, scale: float) -> Tensor:
    repeats = q_BQHD.shape[2] // k_BKND.shape[2]
    k_BHKD = k_BKND.repeat_interleave(repeats, dim=2).transpose(1, 2)
    v_BHKD = v_BKND.repeat_interleave(repeats, dim=2).transpose(1, 2)
    scores_BHQK = torch.matmul(q_BQHD.transpose(1, 2), k_BHKD.transpose(2, 3)).float() * scale
    scores_BHQK = scores_BHQK.masked_fill(~seen_BQK[:, None], -torch.inf)
    probabilities_BHQK = scores_BHQK.softmax(-1).to(q_BQHD.dtype)
    return torch.matmul(probabilities_BHQK, v_BHKD).transpose(1, 2)
