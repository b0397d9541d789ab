"""The gated MLP."""

from torch import Tensor, nn

from engine.model.operators import Operators


class GatedMlp(nn.Module):
    """down(SiLU(gate(x)) * up(x)), gate and up in one product."""

    def __init__(self, gate_up: nn.Module, down: nn.Module, operators: Operators) -> None:
        """Keep the projections; `gate_up` gives the gate half first."""
        super().__init__()
        self.gate_up = gate_up
        self.down = down
        self._operators = operators

    def forward(self, x_TD: Tensor) -> Tensor:
        """Apply to T tokens."""
        out_TD: Tensor = self.down(self._operators.silu_mul(self.gate_up(x_TD)))
        return out_TD
