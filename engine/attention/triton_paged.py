"""Attention by our own Triton kernels over a paged cache: decode, verification, prefill and any mixture of them.

Which kernel serves a request depends on its own number of new tokens, never on the rest of the batch. Nothing reads a
device value, so a pass can be captured in a CUDA graph: the grid follows from shapes, `max_q` and `max_k`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine.errors import ConfigError

try:
    from engine.kernels.kv_write import rotate_and_write_kv, write_kv
    from engine.kernels.paged_decode import MAX_QUERIES, paged_decode
    from engine.kernels.paged_prefill import paged_prefill
    from engine.kernels.paging import NewTokens, Pages, Scores
    from engine.kernels.split_merge import DecodeCounters
except ImportError as error:
    raise ConfigError(f"attention backend triton_paged cannot be used: {error}") from error

if TYPE_CHECKING:
    from torch import Tensor

    from engine.attention.backend import AttentionSpec, KvCache
    from engine.attention.meta import AttentionMeta

_Angles = tuple[torch.Tensor, torch.Tensor]


class TritonPagedAttention:
    """Backend `triton_paged`. One object serves one stream."""

    def __init__(self, spec: AttentionSpec) -> None:
        self._spec = spec
        self._counters: dict[torch.device, DecodeCounters] = {}

    def bind(self, kv: KvCache, meta: AttentionMeta) -> TritonPagedPass:
        """Prepare a pass: no launch, no look at device values."""
        device = meta.seq_lens_B.device
        if device not in self._counters:
            self._counters[device] = DecodeCounters(device)
        return TritonPagedPass(self._spec, kv, meta, self._counters[device])


class TritonPagedPass:
    """One forward pass of `triton_paged`."""

    def __init__(self, spec: AttentionSpec, kv: KvCache, meta: AttentionMeta, counters: DecodeCounters) -> None:
        self._spec = spec
        self._kv = kv
        self._meta = meta
        self._counters = counters

    def __call__(self, q_THD: Tensor, k_TND: Tensor, v_TND: Tensor, layer: int) -> Tensor:
        """See `engine.attention.backend.Attend`. 1 launch where all requests have few new tokens, else 2 or 3."""
        return self._attend(NewTokens(_packed(q_THD), (_packed(k_TND), _packed(v_TND))), layer)

    def attend_unrotated(self, new_tokens: tuple[Tensor, Tensor, Tensor], angles: _Angles, layer: int) -> Tensor:
        """Attend like a call, with queries and keys that are still to be rotated: one launch less per layer.

        Args:
            new_tokens: q_THD, k_TND, v_TND, not rotated; views into one tensor are fine.
            angles: cos_TD and sin_TD, sines negated in the first half; contiguous.
            layer: number of the layer in the whole model.

        Returns:
            out_THD, contiguous.
        """
        q_THD, k_TND, v_TND = (_packed(x) for x in new_tokens)
        return self._attend(NewTokens(q_THD, (k_TND, v_TND), angles), layer)

    def _attend(self, new: NewTokens, layer: int) -> Tensor:
        pages = self._pages(layer)
        scores = Scores(self._spec.scale, self._spec.windows[layer])
        out_THD = torch.empty(new.q_THD.shape, dtype=new.q_THD.dtype, device=new.q_THD.device)
        if self._meta.max_q > MAX_QUERIES:
            new = self._store(new, pages)
            paged_prefill(new, pages, self._meta, scores, out_THD)
            if new.q_THD.shape[0] == self._meta.seq_lens_B.shape[0] * self._meta.max_q:
                return out_THD  # every request has max_q new tokens: none is left for the decode kernel
        paged_decode(new, pages, self._meta, scores, self._counters, out_THD)
        return out_THD

    def _store(self, new: NewTokens, pages: Pages) -> NewTokens:
        """Write keys and values, rotated; returns rotated queries."""
        assert new.kv is not None, "new tokens come with their keys and values"
        new.check(pages)
        slot_T = self._meta.slot_mapping_T
        if new.angles is None:
            write_kv(*new.kv, pages, slot_T)
            return NewTokens(new.q_THD)
        return NewTokens(rotate_and_write_kv(new.q_THD, *new.kv, new.angles, pages, slot_T))

    def _pages(self, layer: int) -> Pages:
        k_BSND, v_BSND = self._kv.layer(layer)
        k_scale, v_scale = self._kv.scales(layer)
        return Pages(k_BSND, v_BSND, k_scale, v_scale)


def _packed(x: Tensor) -> Tensor:
    """Heads side by side: the kernels take gaps between tokens, not between heads."""
    return x if x.stride()[1:] == (x.shape[2], 1) else x.contiguous()
