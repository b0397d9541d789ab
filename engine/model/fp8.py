"""FP8 weights, e4m3 with one factor per output channel; activations are quantised on the fly, one factor per token."""

import torch
from torch import Tensor, nn

from engine.model.operators import FP8, FP8_MAX, Operators

_ALIGNMENT = 16


class Fp8Linear(nn.Module):
    """A product of FP8 matrices by `torch._scaled_mm`, which sums in fp32 and multiplies by both factors."""

    def __init__(self, weight_OI: Tensor, scale_O: Tensor, bias_O: Tensor | None, operators: Operators) -> None:
        """Keep the tensors.

        Args:
            weight_OI: float8_e4m3fn, row-major; O and I are multiples of 16.
            scale_O: fp32 factors of the rows.
            bias_O: in model dtype.
            operators: quantises activations.

        Raises:
            ValueError: the weight is not FP8, or not a multiple of 16 wide and high.
        """
        super().__init__()
        if weight_OI.dtype != FP8 or not fits_scaled_product(weight_OI):
            raise ValueError(f"an FP8 product needs multiples of {_ALIGNMENT}, not {tuple(weight_OI.shape)}")
        self.weight = nn.Parameter(weight_OI, requires_grad=False)
        self.scale = nn.Parameter(scale_O.float().reshape(1, -1), requires_grad=False)
        self.bias = None if bias_O is None else nn.Parameter(bias_O, requires_grad=False)
        self._operators = operators

    def forward(self, x_TI: Tensor) -> Tensor:
        """Quantise the tokens, multiply by the transposed matrix, add the bias.

        Cost: one pass over x and one product at twice the bf16 rate, reading half the bytes of bf16 weights.
        """
        x8_TI, scale_T1 = self._operators.quantise_rows(x_TI)
        # On CUDA row-wise factors come with bf16 results only (torch 2.11 to 2.13).
        out_dtype = torch.bfloat16 if x_TI.is_cuda else x_TI.dtype
        out_TO = torch._scaled_mm(x8_TI, self.weight.t(), scale_T1, self.scale, out_dtype=out_dtype)
        out_TO = out_TO.to(x_TI.dtype)
        return out_TO if self.bias is None else out_TO + self.bias


def fits_scaled_product(weight_OI: Tensor) -> bool:
    """Whether `torch._scaled_mm` takes a matrix of this shape."""
    return all(size % _ALIGNMENT == 0 for size in weight_OI.shape)


def quantise_channels(weight_OI: Tensor) -> tuple[Tensor, Tensor]:
    """Round a matrix to FP8 with a factor per row that makes the row's largest number the largest of FP8.

    Returns:
        weight_OI in float8_e4m3fn, and scale_O in fp32.
    """
    wide = weight_OI.float()
    scale_O = (wide.abs().amax(dim=1) / FP8_MAX).clamp_min(torch.finfo(torch.float32).tiny)
    return (wide / scale_O[:, None]).clamp_(-FP8_MAX, FP8_MAX).to(FP8), scale_O


def row_scales(scale: Tensor, num_rows: int) -> Tensor:
    """Factors of a checkpoint as one per row; it may keep one for the whole matrix.

    Raises:
        ValueError: it has neither one factor nor one per row.
    """
    flat = scale.float().flatten()
    if flat.numel() not in (1, num_rows):
        raise ValueError(f"{flat.numel()} factors for {num_rows} rows")
    return flat.expand(num_rows)


def dequantise_blocks(weight_OI: Tensor, scale_blocks: Tensor, dtype: torch.dtype) -> Tensor:
    """Undo FP8 with one factor per square block (DeepSeek and Qwen checkpoints, 128 x 128).

    Args:
        weight_OI: float8_e4m3fn.
        scale_blocks: factors, ceil(O / block) x ceil(I / block).
        dtype: of the result.
    """
    rows, columns = (-(-size // blocks) for size, blocks in zip(weight_OI.shape, scale_blocks.shape, strict=True))
    # The last block may be cut off, so that the quotient above can fall short of the true block size.
    block = 1 << (max(rows, columns) - 1).bit_length()
    spread = scale_blocks.float().repeat_interleave(block, 0).repeat_interleave(block, 1)
    return (weight_OI.float() * spread[: weight_OI.shape[0], : weight_OI.shape[1]]).to(dtype)
