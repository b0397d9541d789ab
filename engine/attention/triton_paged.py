"""Attention by our own Triton kernels over a paged cache: decode, verification, prefill and any mixture of them.

Which kernel serves a request depends on its own number of new tokens, never on the rest of the batch. Nothing reads a device value,
so a pass can be captured in a CUDA graph: the grid follows from shapes, `max_q` and `max_k`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine.errors import ConfigError

try:
    from engine.kernels.kv_write import rotate_and_write_kv, write_kv
    from engine.kernels.paged_decode import MAX_QUERIES, DecodeCounters, check_layout, paged_decode
    from engine.kernels.paged_prefill import paged_prefill
    from engine.kernels.paging import Pages
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
        return self._attend((q_THD, k_TND, v_TND), layer, None)

    def attend_unrotated(self, new_tokens: tuple[Tensor, Tensor, Tensor], angles: _Angles, layer: int) -> Tensor:
        """Attend like a call, with queries and keys that are still to be rotated: one launch less per layer.

        Args:
            new_tokens: q_THD, k_TND, v_TND, not rotated; views into one tensor are fine.
            angles: cos_TD and sin_TD, sines negated in the first half; contiguous.
            layer: number of the layer in the whole model.

        Returns:
            out_THD, contiguous.
        """
        return self._attend(new_tokens, layer, angles)

    def _attend(self, new_tokens: tuple[Tensor, Tensor, Tensor], layer: int, angles: _Angles | None) -> Tensor:
        pages = self._pages(layer)
        # Views with gaps between the heads are rare; the kernels want the heads of a token side by side.
        q_THD, k_TND, v_TND = (x if x.stride()[1:] == (x.shape[2], 1) else x.contiguous() for x in new_tokens)
        check_layout(q_THD, (k_TND, v_TND), pages)
        out_THD = torch.empty(q_THD.shape, dtype=q_THD.dtype, device=q_THD.device)
        if self._meta.max_q <= MAX_QUERIES:
            self._decode(q_THD, (k_TND, v_TND), pages, layer, out_THD, angles)
            return out_THD
        if angles is not None:
            q_THD = rotate_and_write_kv(q_THD, k_TND, v_TND, angles, pages, self._meta.slot_mapping_T)
        else:
            write_kv(k_TND, v_TND, pages, self._meta.slot_mapping_T)
        window, scale = self._spec.windows[layer], self._spec.scale
        paged_prefill(q_THD, pages, self._meta, scale, out_THD=out_THD, window=window)
        if q_THD.shape[0] < self._meta.seq_lens_B.shape[0] * self._meta.max_q:
            self._decode(q_THD, None, pages, layer, out_THD, None)
        return out_THD

    def _decode(
        self,
        q_THD: Tensor,
        new_kv: tuple[Tensor, Tensor] | None,
        pages: Pages,
        layer: int,
        out_THD: Tensor,
        angles: _Angles | None,
    ) -> None:
        paged_decode(
            q_THD,
            new_kv,
            pages,
            self._meta,
            self._counters,
            scale=self._spec.scale,
            out_THD=out_THD,
            window=self._spec.windows[layer],
            angles=angles,
        )

    def _pages(self, layer: int) -> Pages:
        k_BSND, v_BSND = self._kv.layer(layer)
        k_scale, v_scale = self._kv.scales(layer)
        return Pages(k_BSND, v_BSND, k_scale, v_scale)
