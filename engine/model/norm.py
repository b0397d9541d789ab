"""Root-mean-square norm."""

import torch
from torch import Tensor, nn

from engine.model.operators import Operators


class RmsNorm(nn.Module):
    """Norm over the last dimension, alone or fused with the addition of the residual."""

    def __init__(self, weight: Tensor, eps: float, operators: Operators) -> None:
        """Keep the weight; it broadcasts against the input from the right."""
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.eps = eps
        self._operators = operators

    def forward(self, x: Tensor) -> Tensor:
        """Norm of x."""
        return self._operators.rms_norm(x, self.weight, self.eps)

    def add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Norm of x + residual, and that sum."""
        return self._operators.add_rms_norm(x, residual, self.weight, self.eps)


def stack_head_norms(q_weight_D: Tensor, k_weight_D: Tensor, num_heads: int, num_kv_heads: int) -> Tensor:
    """Weights that norm query and key heads in one call, (H + N, D)."""
    return torch.cat((q_weight_D.expand(num_heads, -1), k_weight_D.expand(num_kv_heads, -1)))
