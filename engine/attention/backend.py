"""The seam between the model and attention: what a backend is given and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import Tensor

    from engine.attention.meta import AttentionMeta


class Attend(Protocol):
    """Attention of one forward pass, bound to its cache and its requests; the model calls it once per layer."""

    def __call__(self, q_THD: Tensor, k_TND: Tensor, v_TND: Tensor, layer: int) -> Tensor:
        """Store the new keys and values, then attend.

        T new tokens, H query heads, N KV heads (H a multiple of N), D head size.

        Args:
            q_THD: queries, rotated.
            k_TND: new keys, rotated; written to the cache of the layer.
            v_TND: new values; written too.
            layer: number of the layer in the whole model.

        Returns:
            out_THD, dtype of q.
        """
        ...


AttendUnrotated: TypeAlias = "Callable[[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor], int], Tensor]"
"""A pass may offer this as `attend_unrotated`: (q, k, v) still to be rotated, (cos_TD, sin_TD), layer."""


class KvCache(Protocol):
    """Keys and values of the layers held here. Layers are numbered as in the whole model."""

    @property
    def block_size(self) -> int:
        """Slots per block, S."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Type of a stored number; that of the model, or FP8."""
        ...

    @property
    def num_bytes(self) -> int:
        """Bytes allocated for keys, values and scales."""
        ...

    def scales(self, layer: int) -> tuple[float, float]:
        """Factors by which stored keys and values are multiplied on the way out; 1 unless stored as FP8."""
        ...

    def layer(self, layer: int) -> tuple[Tensor, Tensor]:
        """Stored keys and values of a layer, each (B blocks, S slots, N KV heads, D head size)."""
        ...

    def write(self, layer: int, k_TND: Tensor, v_TND: Tensor, meta: AttentionMeta) -> None:
        """Store the new keys and values of a batch at its slots, in the cache's own format."""
        ...

    def read(self, layer: int, block_table_RM: Tensor, max_k: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of R requests as (R, max_k, N, D) in model dtype; rows past a length are arbitrary."""
        ...


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """What a backend must know of the model.

    Attributes:
        scale: factor on q.k before the softmax.
        windows: for each layer of the whole model the number of last tokens a query sees, itself included;
            None is all of them.
    """

    scale: float
    windows: tuple[int | None, ...]


class AttentionBackend(Protocol):
    """An implementation of attention; one object serves all steps."""

    def bind(self, kv: KvCache, meta: AttentionMeta) -> Attend:
        """Prepare one forward pass. Work that does not depend on the layer belongs here."""
        ...
