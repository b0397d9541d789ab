"""What attention over a paged KV cache is given: new tokens, pages and tables; and how a kernel finds a slot."""

# ruff: noqa: N802 - fields of a batch carry shape suffixes

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from engine.kernels.jit import jit, tl, triton

if TYPE_CHECKING:
    from torch import Tensor


_LEAST_REQUESTS_BLOCK = 256


def requests_block(num_requests: int) -> int:
    """Lanes to look through all requests of a batch: one width for every usual batch, so that one kernel serves all."""
    return int(max(_LEAST_REQUESTS_BLOCK, triton.next_power_of_2(num_requests)))


class Paging(Protocol):
    """B requests with T new tokens between them, packed; all tensors on the device.

    The new tokens of request b are rows `cu_q_B1[b]` to `cu_q_B1[b + 1]`, and they are its last ones: token p of
    request b lives in slot `block_table_BM[b, p // S] * S + p % S`. `max_q` and `max_k` bound the new and all tokens
    of a request.
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
                f"keys {tuple(k.shape)} {k.dtype} and values {tuple(v.shape)} {v.dtype} are laid out apart"
            )
        if k.stride(3) != 1 or k.stride(2) != k.shape[3]:
            raise ValueError(f"heads of a slot must be contiguous; strides are {k.stride()}")


@dataclass(frozen=True, slots=True)
class NewTokens:
    """Queries, keys and values of the new tokens of a batch; views into one wider tensor are fine.

    Attributes:
        q_THD: queries; H a multiple of N, heads of a token contiguous.
        kv: k_TND and v_TND, likewise; None where the pages hold them already.
        angles: cos_TD and sin_TD with which q and k are still to be rotated (`engine.kernels.rotary.rotate`); None
            where they are rotated.
    """

    q_THD: Tensor
    kv: tuple[Tensor, Tensor] | None = None
    angles: tuple[Tensor, Tensor] | None = None

    def check(self, pages: Pages) -> None:
        """Refuse tensors that the attention kernels would misread. Reads shapes only.

        Raises:
            ValueError: shapes do not fit each other or the pages, H is no multiple of N, or heads of a token are not
                contiguous.
        """
        num_tokens, num_heads, head_dim = self.q_THD.shape
        num_kv_heads = pages.k_BSND.shape[2]
        if num_heads % num_kv_heads or pages.k_BSND.shape[3] != head_dim:
            raise ValueError(f"queries {tuple(self.q_THD.shape)} cannot share pages {tuple(pages.k_BSND.shape)}")
        for new in self.kv or ():
            if new.shape != (num_tokens, num_kv_heads, head_dim):
                raise ValueError(f"keys or values {tuple(new.shape)} do not fit queries {tuple(self.q_THD.shape)}")
        if any(x.stride()[1:] != (head_dim, 1) for x in (self.q_THD, *(self.kv or ()))):
            raise ValueError("the heads of a token must be contiguous")


@dataclass(frozen=True, slots=True)
class Scores:
    """How a layer scores keys.

    Attributes:
        scale: factor on q.k before the softmax; positive.
        window: number of last tokens that a query sees, itself included; None is all.
    """

    scale: float
    window: int | None = None


@jit
def slot_offsets(
    table_row_ptr: tl.tensor,
    first: tl.tensor,
    limit: tl.tensor,
    strides: tl.tensor,
    PAGE: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> tl.tensor:
    """Element offsets of the slots of tokens `first` to `first + BLOCK_N`; from `limit` on arbitrary, but inside.

    `strides` are those of a block and of a slot.
    """
    if PAGE % BLOCK_N == 0:
        # The tile starts at a multiple of its size, so it lies in one block: one look-up instead of one per token.
        block = tl.load(table_row_ptr + first // PAGE).to(tl.int64)
        offsets = block * strides[0] + (first % PAGE + tl.arange(0, BLOCK_N)) * strides[1]
    else:
        token = tl.minimum(first + tl.arange(0, BLOCK_N), limit - 1)
        block = tl.load(table_row_ptr + token // PAGE).to(tl.int64)
        offsets = block * strides[0] + (token % PAGE) * strides[1]
    return offsets


@jit
def to_stored(x: tl.tensor, scale: tl.tensor, STORED: tl.constexpr) -> tl.tensor:
    """Convert keys or values to the dtype of the cache."""
    if STORED == tl.float8e4nv:  # noqa: SIM300 - the constant is the right-hand side
        # This format has no infinity: a cast past its largest number gives NaN.
        x = tl.minimum(tl.maximum(x.to(tl.float32) / scale, -448.0), 448.0)
    return x.to(STORED)
