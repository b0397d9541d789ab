"""Rotary position embedding in the half-split layout, for any heads that lie side by side."""

# ruff: noqa: PLR0913, PLR0917 - device functions take pointers and sizes one by one

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.jit import OVERLAPS, jit, launch_options, start_next_kernel, tl, triton, wait_for_previous_kernel


@jit
def load_rotated(
    x_ptr: tl.tensor,
    row_offset: tl.tensor,
    cos_ptr: tl.tensor,
    sin_ptr: tl.tensor,
    token: tl.tensor,
    row_mask: tl.tensor,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    ROTATE: tl.constexpr,
) -> tl.tensor:
    """Load heads (one per row, at `row_offset`) and rotate them by the angles of their `token`; masked rows are 0."""
    d = tl.arange(0, BLOCK_D)
    mask = row_mask[:, None] & (d < HEAD_DIM)[None, :]
    x = tl.load(x_ptr + row_offset[:, None] + d[None, :], mask=mask, other=0.0)
    if ROTATE:
        partner = tl.where(d < HEAD_DIM // 2, d + HEAD_DIM // 2, d - HEAD_DIM // 2)
        swapped = tl.load(x_ptr + row_offset[:, None] + partner[None, :], mask=mask, other=0.0)
        angle = token.to(tl.int64)[:, None] * HEAD_DIM + d[None, :]
        cos = tl.load(cos_ptr + angle, mask=mask, other=0.0).to(tl.float32)
        sin = tl.load(sin_ptr + angle, mask=mask, other=0.0).to(tl.float32)
        x = (x.to(tl.float32) * cos + swapped.to(tl.float32) * sin).to(x.dtype)
    return x


@jit
def _rotate_kernel(
    x_ptr: tl.tensor,
    cos_ptr: tl.tensor,
    sin_ptr: tl.tensor,
    out_ptr: tl.tensor,
    token_stride: int,
    head_stride: int,
    HEADS: tl.constexpr,
    BLOCK_H: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    inside = head < HEADS
    d = tl.arange(0, BLOCK_D)
    wait_for_previous_kernel(OVERLAP)
    start_next_kernel(OVERLAP)
    offset = token * token_stride + head * head_stride
    x = load_rotated(x_ptr, offset, cos_ptr, sin_ptr, token + head * 0, inside, HEAD_DIM, BLOCK_D, True)
    out_offset = (token * HEADS + head) * HEAD_DIM
    tl.store(out_ptr + out_offset[:, None] + d[None, :], x, mask=inside[:, None] & (d < HEAD_DIM)[None, :])


def rotate(x_THD: Tensor, cos_TD: Tensor, sin_TD: Tensor) -> Tensor:
    """Rotate the heads of T tokens.

    Args:
        x_THD: queries, keys, or both stacked along the heads; D contiguous.
        cos_TD: cosines of the D/2 angles of each token, twice; contiguous, any float dtype.
        sin_TD: sines, negated in the first half; contiguous.

    Returns:
        Contiguous tensor like x, computed in fp32 and rounded once.

    Raises:
        ValueError: D is odd or differs from that of the angles.

    Cost: x and the angles read, x written, 1 launch. Source: RoFormer, Su et al. 2021; layout of GPT-NeoX.
    """
    num_tokens, num_heads, head_dim = x_THD.shape
    check_angles(head_dim, cos_TD, sin_TD)
    out_THD = torch.empty(x_THD.shape, dtype=x_THD.dtype, device=x_THD.device)
    if num_tokens:
        block_h = min(8, triton.next_power_of_2(num_heads))
        _rotate_kernel[(num_tokens, triton.cdiv(num_heads, block_h))](
            x_THD,
            cos_TD,
            sin_TD,
            out_THD,
            x_THD.stride(0),
            x_THD.stride(1),
            HEADS=num_heads,
            BLOCK_H=block_h,
            HEAD_DIM=head_dim,
            BLOCK_D=triton.next_power_of_2(head_dim),
            OVERLAP=OVERLAPS,
            **launch_options(num_warps=4),
        )
    return out_THD


def check_angles(head_dim: int, cos_TD: Tensor, sin_TD: Tensor) -> None:
    """Refuse angles that do not fit the heads.

    Raises:
        ValueError: D is odd, differs from that of the angles, or the angles are not contiguous.
    """
    if head_dim % 2 or cos_TD.shape[-1] != head_dim or cos_TD.shape != sin_TD.shape:
        raise ValueError(
            f"heads of {head_dim} cannot be rotated by angles {tuple(cos_TD.shape)}, {tuple(sin_TD.shape)}"
        )
    if not (cos_TD.is_contiguous() and sin_TD.is_contiguous()):
        raise ValueError("cosines and sines must be contiguous")


def rotate_reference(x_THD: Tensor, cos_TD: Tensor, sin_TD: Tensor) -> Tensor:
    """`rotate` in PyTorch, in the precision of x."""
    swapped = torch.cat(x_THD.chunk(2, dim=-1)[::-1], dim=-1)
    return x_THD * cos_TD[:, None] + swapped * sin_TD[:, None]
