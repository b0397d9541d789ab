"""Matrices of a checkpoint as products, in the wanted weight format, without a second copy on the device."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engine.errors import CheckpointError
from engine.model.checkpoint import Checkpoint
from engine.model.fp8 import Fp8Linear, dequantise_blocks, fits_scaled_product, quantise_channels, row_scales
from engine.model.linear import DenseLinear, keep_matrix
from engine.model.operators import FP8, Operators
from engine.model.weight_format import WeightFormat
from engine.model.weight_only import quantise_weight_only


@dataclass(frozen=True, slots=True)
class Placement:
    """Where matrices go and what they become.

    Attributes:
        device: final device.
        dtype: model dtype.
        weight_format: format of the layers' matrices.
        keeps_plain: never repack for the CPU, so that a matrix stays one tensor that can be copied.
    """

    device: torch.device
    dtype: torch.dtype
    weight_format: WeightFormat = WeightFormat.NATIVE
    keeps_plain: bool = False


class ProjectionReader:
    """Reads projections by their Hugging Face names."""

    def __init__(self, checkpoint: Checkpoint, placement: Placement, operators: Operators) -> None:
        """Keep where to read and where to put."""
        self._checkpoint = checkpoint
        self._placement = placement
        self._operators = operators

    def vector(self, name: str) -> Tensor:
        """One tensor on its device in model dtype."""
        return self._checkpoint.tensor(name).to(self._placement.device, self._placement.dtype)

    def router(self, name: str) -> Tensor:
        """Router weights, in fp32: close scores decide where a token goes."""
        return self._checkpoint.tensor(name).to(self._placement.device, torch.float32)

    def stacked(self, names: list[str]) -> Tensor:
        """Tensors one below the other; a single one that needs no change stays a view of the file."""
        if len(names) == 1:
            return self._plain(names[0]).to(self._placement.device, self._placement.dtype)
        parts = [self._plain(name) for name in names]
        return self._stack(parts, self._placement.dtype)

    def native(self, name: str) -> nn.Module:
        """A product in model dtype, whatever the format of the others."""
        return self._product(self.stacked([f"{name}.weight"]), self._bias([name]), WeightFormat.NATIVE)

    def fused(self, *names: str) -> nn.Module:
        """One product for several projections with the same input, in the wanted format.

        A checkpoint with FP8 matrices and one factor per row or matrix is taken as it is; with one factor per block it
        is brought to model dtype first.
        """
        weights = [f"{name}.weight" for name in names]
        bias = self._bias(list(names))
        if all(self._is_fp8_by_row(name) for name in weights):
            return self._stored_fp8(weights, bias)
        return self._product(self.stacked(weights), bias, self._placement.weight_format)

    def expert_stack(self, prefix: str, numbers: range, names: tuple[str, ...]) -> Tensor:
        """One tensor (experts, rows, columns) for a projection of all experts, `names` one below the other in each."""
        first = [self._checkpoint.tensor(f"{prefix}.experts.{numbers.start}.{name}.weight") for name in names]
        rows = [part.shape[0] for part in first]
        shape = (len(numbers), sum(rows), first[0].shape[1])
        stack = torch.empty(shape, dtype=self._placement.dtype, device=self._placement.device)
        for place, number in zip(stack, numbers, strict=True):
            for part, name in zip(torch.split(place, rows), names, strict=True):
                part.copy_(self._plain(f"{prefix}.experts.{number}.{name}.weight"))
        return stack

    def _product(self, weight_OI: Tensor, bias_O: Tensor | None, weight_format: WeightFormat) -> nn.Module:
        if weight_format in (WeightFormat.INT8, WeightFormat.INT4):
            return quantise_weight_only(weight_OI, bias_O, weight_format)
        if weight_format == WeightFormat.FP8 and fits_scaled_product(weight_OI):
            return Fp8Linear(*quantise_channels(weight_OI), bias_O, self._operators)
        return DenseLinear(weight_OI, bias_O) if self._placement.keeps_plain else keep_matrix(weight_OI, bias_O)

    def _bias(self, names: list[str]) -> Tensor | None:
        biases = [f"{name}.bias" for name in names]
        return self.stacked(biases) if any(bias in self._checkpoint for bias in biases) else None

    def _stack(self, parts: list[Tensor], dtype: torch.dtype) -> Tensor:
        rows = [part.shape[0] for part in parts]
        whole = torch.empty((sum(rows), *parts[0].shape[1:]), dtype=dtype, device=self._placement.device)
        for place, part in zip(torch.split(whole, rows), parts, strict=True):
            place.copy_(part)
        return whole

    def _is_fp8_by_row(self, name: str) -> bool:
        """Whether the matrix is FP8 with factors that `torch._scaled_mm` can apply."""
        tensor = self._checkpoint.tensor(name)
        return tensor.dtype == FP8 and f"{name}_scale" in self._checkpoint and fits_scaled_product(tensor)

    def _stored_fp8(self, names: list[str], bias_O: Tensor | None) -> Fp8Linear:
        parts = [self._checkpoint.tensor(name) for name in names]
        scales = [self._row_scales(name, part.shape[0]) for name, part in zip(names, parts, strict=True)]
        # Copied as bytes: not every device has a copy kernel for FP8.
        weight = self._stack([part.view(torch.uint8) for part in parts], torch.uint8).view(FP8)
        return Fp8Linear(weight, self._stack(scales, torch.float32), bias_O, self._operators)

    def _row_scales(self, name: str, num_rows: int) -> Tensor:
        try:
            return row_scales(self._checkpoint.tensor(f"{name}_scale"), num_rows)
        except ValueError as error:
            raise CheckpointError(f"{name}_scale: {error}") from error

    def _plain(self, name: str) -> Tensor:
        """A tensor of the file; FP8 brought to model dtype."""
        tensor = self._checkpoint.tensor(name)
        if tensor.dtype != FP8:
            return tensor
        if f"{name}_scale_inv" in self._checkpoint:
            blocks = self._checkpoint.tensor(f"{name}_scale_inv")
            return dequantise_blocks(tensor, blocks, self._placement.dtype)
        return (tensor.float() * self._row_scales(name, tensor.shape[0])[:, None]).to(self._placement.dtype)
