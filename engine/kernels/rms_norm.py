"""RMSNorm, alone and fused with the residual addition before it."""

# ruff: noqa: PLR0913, PLR0917 - device functions take pointers and sizes one by one

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.jit import OVERLAPS, jit, launch_options, start_next_kernel, tl, triton, wait_for_previous_kernel

_MAX_ELEMENTS = 65536


@jit
def _rms_norm_kernel(
    x_ptr: tl.tensor,
    residual_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    out_ptr: tl.tensor,
    total_ptr: tl.tensor,
    x_stride: int,
    weight_rows: int,
    eps: float,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    ADDS_RESIDUAL: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < DIM
    weight = tl.load(weight_ptr + (row % weight_rows) * DIM + column, mask=inside, other=0.0)
    wait_for_previous_kernel(OVERLAP)
    start_next_kernel(OVERLAP)
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0)
    if ADDS_RESIDUAL:
        residual = tl.load(residual_ptr + row * DIM + column, mask=inside, other=0.0)
        # Rounded before the norm: the next layer reads the rounded sum, and so does the reference.
        x = (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)
        tl.store(total_ptr + row * DIM + column, x, mask=inside)
    wide = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / DIM + eps)
    normed = (wide * scale).to(x.dtype).to(tl.float32) * weight.to(tl.float32)
    tl.store(out_ptr + row * DIM + column, normed.to(out_ptr.dtype.element_ty), mask=inside)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Divide rows by their root mean square, then multiply by `weight`.

    Args:
        x: (..., D), last dimension contiguous, rows evenly spaced; any float dtype.
        weight: (D,), or (H, D) for x of (..., H, D).
        eps: added to the mean square.

    Returns:
        Contiguous tensor like x. The mean is taken in fp32 and the quotient rounded before the product, as
        transformers does.

    Cost: x read and written once, 1 launch. Source: Zhang and Sennrich 2019.
    """
    rows = _rows(x)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _launch(rows, None, weight, out, eps)
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Add two tensors and norm the sum.

    Args:
        x: (..., D), last dimension contiguous.
        residual: like x, contiguous.
        weight: (D,).
        eps: added to the mean square.

    Returns:
        `rms_norm(x + residual)` and the sum, both contiguous, the sum rounded to the dtype of x.

    Cost: two tensors read, two written, 1 launch.
    """
    rows = _rows(x)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = torch.empty_like(out)
    _launch(rows, (residual, total), weight, out, eps)
    return out, total


def rms_norm_reference(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`rms_norm` in PyTorch, in the precision of x."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def _rows(x: Tensor) -> Tensor:
    """View x as (rows, D) without a copy where its rows are evenly spaced."""
    if x.shape[-1] > _MAX_ELEMENTS:
        raise ValueError(f"rms_norm holds a row in registers: {x.shape[-1]} elements are more than {_MAX_ELEMENTS}")
    rows = x.flatten(0, -2) if x.dim() > 2 else x.view(-1, x.shape[-1])
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def _launch(rows: Tensor, added: tuple[Tensor, Tensor] | None, weight: Tensor, out: Tensor, eps: float) -> None:
    num_rows, dim = rows.shape
    if num_rows == 0:
        return
    residual, total = added if added is not None else (rows, rows)
    block = triton.next_power_of_2(dim)
    _rms_norm_kernel[(num_rows,)](
        rows,
        residual,
        weight,
        out,
        total,
        rows.stride(0),
        weight.numel() // dim,
        eps,
        DIM=dim,
        BLOCK=block,
        ADDS_RESIDUAL=added is not None,
        OVERLAP=OVERLAPS,
        **launch_options(num_warps=min(max(block // 512, 1), 16)),
    )
