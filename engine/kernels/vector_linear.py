"""Linear layers of one token, with the steps around them: RMSNorm before; residual addition, or an MLP's gate, after.

With one token a linear layer is bound by reading its weights once. Each program owns some output rows. It loads their
first weights before the previous kernel has ended, and always has the next ones in flight while it multiplies, so that
the memory system never waits for a launch or a dependency. The norm costs no pass of its own: its factor is the same
for all of a row, so it is applied to the sums, and the sum of squares is taken on the way.
"""

# ruff: noqa: PLR0913, PLR0917 - device functions take pointers and sizes one by one

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from engine.kernels.jit import OVERLAPS, jit, launch_options, start_next_kernel, tl, triton, wait_for_previous_kernel

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class VectorTile:
    """Shape of the work of one program.

    Attributes:
        rows: output elements per program.
        columns: weights of a row loaded at a time; a power of two.
        num_warps: warps of 32 threads.
    """

    rows: int
    columns: int
    num_warps: int


@jit
def _vector_linear_kernel(  # noqa: C901 - cut into functions it needs more registers and spills
    x_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    norm_ptr: tl.tensor,
    residual_ptr: tl.tensor,
    out_ptr: tl.tensor,
    eps: float,
    OUT: tl.constexpr,
    IN: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    NORMS: tl.constexpr,
    GATES: tl.constexpr,
    ADDS_RESIDUAL: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    out_row = tl.program_id(0) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    column = tl.arange(0, BLOCK_IN)
    row_inside = (out_row < OUT)[:, None]
    row_ptr = weight_ptr + out_row.to(tl.int64)[:, None] * IN + column[None, :]
    inside = row_inside & (column < IN)[None, :]
    weight = tl.load(row_ptr, mask=inside, other=0.0)
    if GATES:
        up = tl.load(row_ptr + OUT * IN, mask=inside, other=0.0)
    wait_for_previous_kernel(OVERLAP)
    start_next_kernel(OVERLAP)
    acc = tl.zeros((BLOCK_OUT, BLOCK_IN), tl.float32)
    acc_up = tl.zeros((BLOCK_OUT, BLOCK_IN), tl.float32)
    square = tl.zeros((BLOCK_IN,), tl.float32)
    for first in tl.static_range(0, IN, BLOCK_IN):
        here = first + column
        x = tl.load(x_ptr + here, mask=here < IN, other=0.0).to(tl.float32)
        if NORMS:
            square += x * x
            x = x * tl.load(norm_ptr + here, mask=here < IN, other=0.0).to(tl.float32)
        current = weight
        if GATES:
            current_up = up
        if first + BLOCK_IN < IN:
            inside = row_inside & (here + BLOCK_IN < IN)[None, :]
            weight = tl.load(row_ptr + (first + BLOCK_IN), mask=inside, other=0.0)
            if GATES:
                up = tl.load(row_ptr + (OUT * IN + first + BLOCK_IN), mask=inside, other=0.0)
        acc += current.to(tl.float32) * x[None, :]
        if GATES:
            acc_up += current_up.to(tl.float32) * x[None, :]
    y = tl.sum(acc, axis=1)
    if NORMS:
        factor = tl.rsqrt(tl.sum(square, axis=0) / IN + eps)
        y = y * factor
    if GATES:
        y_up = tl.sum(acc_up, axis=1)
        if NORMS:
            y_up = y_up * factor
        y = y / (1.0 + tl.exp(-y)) * y_up
    if ADDS_RESIDUAL:
        y += tl.load(residual_ptr + out_row, mask=out_row < OUT, other=0.0).to(tl.float32)
    tl.store(out_ptr + out_row, y.to(out_ptr.dtype.element_ty), mask=out_row < OUT)


def vector_linear(
    x_1I: Tensor,
    weight_OI: Tensor,
    norm: tuple[Tensor, float] | None = None,
    residual_1O: Tensor | None = None,
    tile: VectorTile | None = None,
) -> Tensor:
    """Linear layer of one token.

    Args:
        x_1I: (1, I), contiguous; fp32, fp16 or bf16.
        weight_OI: (O, I), contiguous, same dtype.
        norm: weight_I and eps: apply RMSNorm to x first. The norm is not rounded, so results are closer to the exact
            ones than those of separate kernels, and not identical to them.
        residual_1O: added to the result.
        tile: shape of a program's work; None chooses by the sizes.

    Returns:
        (1, O) in dtype of x.

    Raises:
        ValueError: shapes, dtypes or strides do not fit.

    Cost: the weights read once, 1 launch.
    """
    _check(x_1I, weight_OI, norm)
    out_1O = torch.empty((1, weight_OI.shape[0]), dtype=x_1I.dtype, device=x_1I.device)
    _launch(
        x_1I,
        weight_OI,
        norm,
        residual_1O,
        out_1O,
        tile or _choose_tile(weight_OI.shape[1], norms=norm is not None, gates=False),
    )
    return out_1O


def vector_gate_up(
    x_1I: Tensor, weight_2FI: Tensor, norm: tuple[Tensor, float] | None = None, tile: VectorTile | None = None
) -> Tensor:
    """First half of a gated MLP for one token: `silu(gate(x)) * up(x)`.

    Args:
        x_1I: (1, I), contiguous.
        weight_2FI: (2 * F, I): rows of the gate, then rows of the up projection; contiguous, dtype of x.
        norm: weight_I and eps: apply RMSNorm to x first.
        tile: shape of a program's work; None chooses by the sizes.

    Returns:
        (1, F) in dtype of x; nothing is rounded on the way.

    Raises:
        ValueError: shapes, dtypes or strides do not fit.

    Cost: the weights read once, 1 launch.
    """
    _check(x_1I, weight_2FI, norm)
    out_1F = torch.empty((1, weight_2FI.shape[0] // 2), dtype=x_1I.dtype, device=x_1I.device)
    _launch(
        x_1I,
        weight_2FI,
        norm,
        None,
        out_1F,
        tile or _choose_tile(weight_2FI.shape[1], norms=norm is not None, gates=True),
    )
    return out_1F


def vector_linear_reference(
    x_1I: Tensor, weight_OI: Tensor, norm: tuple[Tensor, float] | None = None, residual_1O: Tensor | None = None
) -> Tensor:
    """`vector_linear` in PyTorch, in the precision of x."""
    if norm is not None:
        x_1I = x_1I * torch.rsqrt(x_1I.square().mean(-1, keepdim=True) + norm[1]) * norm[0]
    y = x_1I @ weight_OI.T
    return y if residual_1O is None else y + residual_1O


def vector_gate_up_reference(x_1I: Tensor, weight_2FI: Tensor, norm: tuple[Tensor, float] | None = None) -> Tensor:
    """`vector_gate_up` in PyTorch, in the precision of x."""
    gate, up = vector_linear_reference(x_1I, weight_2FI, norm).chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def _check(x_1I: Tensor, weight_OI: Tensor, norm: tuple[Tensor, float] | None) -> None:
    if x_1I.shape[0] != 1 or x_1I.shape[1:] != weight_OI.shape[1:] or x_1I.dtype != weight_OI.dtype:
        raise ValueError(
            f"one token {tuple(x_1I.shape)} {x_1I.dtype} does not fit {tuple(weight_OI.shape)} {weight_OI.dtype}"
        )
    if not (x_1I.is_contiguous() and weight_OI.is_contiguous()):
        raise ValueError("token and weights must be contiguous")
    if norm is not None and norm[0].shape != x_1I.shape[1:]:
        raise ValueError(f"norm of {tuple(norm[0].shape)} weights does not fit {tuple(x_1I.shape)}")


def _choose_tile(num_in: int, *, norms: bool, gates: bool) -> VectorTile:
    """The tile that was fastest in a decode step on an H200 (tests/benchmarks/gpu_tuning.py and its results)."""
    if gates:
        return VectorTile(4, 1024, 4) if num_in >= 4096 else VectorTile(4, 512, 2)
    if num_in >= 8192:
        return VectorTile(2, 2048, 4)
    if num_in >= 4096:
        return VectorTile(1, 4096, 4) if norms else VectorTile(4, 512, 2)
    return VectorTile(4, min(2048, triton.next_power_of_2(num_in)), 4)


def _launch(
    x_1I: Tensor,
    weight: Tensor,
    norm: tuple[Tensor, float] | None,
    residual: Tensor | None,
    out: Tensor,
    tile: VectorTile,
) -> None:
    num_out = out.shape[1]
    norm_weight, eps = norm if norm is not None else (x_1I, 0.0)
    _vector_linear_kernel[(triton.cdiv(num_out, tile.rows),)](
        x_1I,
        weight,
        norm_weight,
        residual if residual is not None else x_1I,
        out,
        eps,
        OUT=num_out,
        IN=x_1I.shape[1],
        BLOCK_OUT=tile.rows,
        BLOCK_IN=tile.columns,
        NORMS=norm is not None,
        GATES=weight.shape[0] != num_out,
        ADDS_RESIDUAL=residual is not None,
        OVERLAP=OVERLAPS,
        **launch_options(num_warps=tile.num_warps),
    )
