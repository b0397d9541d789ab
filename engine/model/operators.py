"""The elementwise steps between matrix products, as a table in which fused kernels can take their places."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import silu

FP8 = torch.float8_e4m3fn
FP8_MAX = torch.finfo(FP8).max


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Divide by the root mean square over the last dimension, then multiply by `weight`.

    The mean is taken in fp32 and the result is cast before the product with `weight`, as transformers does. `weight`
    broadcasts against x from the right, so one call can norm heads with different weights.

    Source: Zhang and Sennrich 2019.
    """
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * normed.to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return `rms_norm(x + residual)` and the sum itself, which is the next residual."""
    total = x + residual
    return rms_norm(total, weight, eps), total


def silu_mul(gate_up: Tensor) -> Tensor:
    """SiLU of the first half of the last dimension, times the second half."""
    gate, up = gate_up.chunk(2, dim=-1)
    return silu(gate).mul_(up)


def rotate(x_THD: Tensor, cos_TD: Tensor, sin_TD: Tensor) -> Tensor:
    """Apply rotary position embedding in the half-split layout.

    Args:
        x_THD: queries, keys, or both stacked along the heads.
        cos_TD: cosines of the angles of a token, the D/2 of them twice.
        sin_TD: sines, negated in the first half (see `engine.model.rope`).

    Source: RoFormer, Su et al. 2021; layout of GPT-NeoX.
    """
    half = x_THD.shape[-1] // 2
    sin_T1D = sin_TD[:, None]
    out_THD = x_THD * cos_TD[:, None]
    out_THD[..., :half].addcmul_(x_THD[..., half:], sin_T1D[..., :half])
    out_THD[..., half:].addcmul_(x_THD[..., :half], sin_T1D[..., half:])
    return out_THD


def quantise_rows(x_TI: Tensor) -> tuple[Tensor, Tensor]:
    """Round each row to FP8 with a factor of its own, so that its largest number becomes the largest of FP8.

    Returns:
        x_TI in float8_e4m3fn, and the factors (T, 1) in fp32.
    """
    wide = x_TI.float()
    scale_T1 = (wide.abs().amax(dim=-1, keepdim=True) / FP8_MAX).clamp_min(torch.finfo(torch.float32).tiny)
    # float8_e4m3fn has no infinity: a cast past the largest number gives NaN, so clamp first.
    return (wide / scale_T1).clamp_(-FP8_MAX, FP8_MAX).to(FP8), scale_T1


@dataclass(frozen=True, slots=True)
class OneTokenOperators:
    """Products of one token that take the steps around them along (see `engine.kernels.vector_linear`).

    Attributes:
        linear: (x_1I, weight_OI, norm, residual_1O): norm x with (weight, eps) if given, multiply, add if given.
        gate_up: (x_1I, weight_2FI, norm): norm x, multiply, SiLU of the first half times the second.
    """

    linear: Callable[[Tensor, Tensor, tuple[Tensor, float] | None, Tensor | None], Tensor]
    gate_up: Callable[[Tensor, Tensor, tuple[Tensor, float] | None], Tensor]


@dataclass(frozen=True, slots=True)
class Operators:
    """One implementation of each step; signatures are those of the functions in this file.

    `one_token` stands for several of them where a pass has a single token; None where there is no such kernel.
    """

    rms_norm: Callable[[Tensor, Tensor, float], Tensor] = rms_norm
    add_rms_norm: Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]] = add_rms_norm
    silu_mul: Callable[[Tensor], Tensor] = silu_mul
    rotate: Callable[[Tensor, Tensor, Tensor], Tensor] = rotate
    quantise_rows: Callable[[Tensor], tuple[Tensor, Tensor]] = quantise_rows
    one_token: OneTokenOperators | None = None


REFERENCE = Operators()
