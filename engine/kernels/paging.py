"""How a paged KV cache is addressed: the tables of a batch on the host, the addresses of slots inside a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from engine.kernels.jit import jit, tl

if TYPE_CHECKING:
    from torch import Tensor


class Paging(Protocol):
    """B requests with T new tokens between them, packed; all tensors on the device.

    The new tokens of request b are rows `cu_q_B1[b]` to `cu_q_B1[b + 1]`, and they are its last ones: token p of request b lives in
    slot `block_table_BM[b, p // S] * S + p % S`. `max_q` and `max_k` bound the new and all tokens of a request.
    """

    @property
    def cu_q_B1(self) -> Tensor:
        """int32, cumulative numbers of new tokens."""
        ...

    @property
    def seq_lens_B(self) -> Tensor:
        """int32, tokens of each request, new ones included; 0 is padding."""
        ...

    @property
    def block_table_BM(self) -> Tensor:
        """int32, block numbers, last dimension contiguous."""
        ...

    @property
    def slot_mapping_T(self) -> Tensor:
        """int64, slot of each new token; negative is padding and not written."""
        ...

    @property
    def max_q(self) -> int:
        """Upper bound of new tokens per request."""
        ...

    @property
    def max_k(self) -> int:
        """Upper bound of tokens per request."""
        ...


@dataclass(frozen=True, slots=True)
class Pages:
    """Keys and values of one layer, (B blocks, S slots, N KV heads, D), as stored.

    Attributes:
        k_BSND: keys; N and D contiguous, block and slot strides equal to those of the values.
        v_BSND: values.
        k_scale: factor on stored keys; 1 unless they are FP8.
        v_scale: factor on stored values.
    """

    k_BSND: Tensor
    v_BSND: Tensor
    k_scale: float = 1.0
    v_scale: float = 1.0

    def __post_init__(self) -> None:
        """Check what a kernel takes for granted.

        Raises:
            ValueError: shapes, strides or dtypes of keys and values differ, or heads are not contiguous.
        """
        k, v = self.k_BSND, self.v_BSND
        if k.shape != v.shape or k.stride() != v.stride() or k.dtype != v.dtype:
            raise ValueError(
                f"keys {tuple(k.shape)} {k.dtype} and values {tuple(v.shape)} {v.dtype} are laid out differently"
            )
        if k.stride(3) != 1 or k.stride(2) != k.shape[3]:
            raise ValueError(f"heads of a slot must be contiguous; strides are {k.stride()}")


@jit
def slot_offsets(  # noqa: PLR0913 - kernels take pointers and sizes one by one
    table_row_ptr: tl.tensor,
    first: tl.tensor,
    limit: tl.tensor,
    block_stride: tl.tensor,
    slot_stride: tl.tensor,
    PAGE: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> tl.tensor:
    """Element offsets of the slots of tokens `first` to `first + BLOCK_N`; those from `limit` on are arbitrary but valid."""
    if PAGE % BLOCK_N == 0:
        # The tile starts at a multiple of its size, so it lies in one block: one look-up instead of one per token.
        block = tl.load(table_row_ptr + first // PAGE).to(tl.int64)
        offsets = block * block_stride + (first % PAGE + tl.arange(0, BLOCK_N)) * slot_stride
    else:
        token = tl.minimum(first + tl.arange(0, BLOCK_N), limit - 1)
        block = tl.load(table_row_ptr + token // PAGE).to(tl.int64)
        offsets = block * block_stride + (token % PAGE) * slot_stride
    return offsets


@jit
def to_stored(x: tl.tensor, scale: tl.tensor, STORED: tl.constexpr) -> tl.tensor:
    """Convert keys or values to the dtype of the cache."""
    if STORED == tl.float8e4nv:
        # This format has no infinity: a cast past its largest number gives NaN.
        x = tl.minimum(tl.maximum(x.to(tl.float32) / scale, -448.0), 448.0)
    return x.to(STORED)
