"""Products with a weight matrix, one class per way of keeping the matrix."""

from typing import Protocol

from torch import Tensor, nn
from torch.nn.functional import linear


class Linear(Protocol):
    """Anything that maps (..., I) to (..., O)."""

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply."""
        ...


class DenseLinear(nn.Module):
    """The matrix as the checkpoint has it."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        """Keep the tensors, without a copy."""
        super().__init__()
        self.weight = nn.Parameter(weight_OI, requires_grad=False)
        self.bias = None if bias_O is None else nn.Parameter(bias_O, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply by the transposed matrix and add the bias."""
        return linear(x, self.weight, self.bias)
