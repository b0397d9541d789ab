"""The attention block of a layer: project, norm heads, rotate, attend, project back."""

from torch import Tensor, nn

from engine.attention.backend import Attend, AttendUnrotated
from engine.model.norm import RmsNorm
from engine.model.operators import Operators


class SelfAttention(nn.Module):
    """Grouped-query attention over the heads that its weights hold, which may be a part of the layer's heads."""

    def __init__(
        self, qkv: nn.Module, output: nn.Module, head_norms: RmsNorm | None, heads: tuple[int, int, int], layer: int
    ) -> None:
        """Keep the projections.

        Args:
            qkv: gives queries, keys and values of all heads here, one after the other.
            output: maps the heads back to the residual width.
            head_norms: norms query and key heads, with one row of weights per head; None where the model has none.
            heads: query heads H, KV heads N, head size D.
            layer: number in the whole model, which names the cache.
        """
        super().__init__()
        self.qkv = qkv
        self.output = output
        self.head_norms = head_norms
        self.num_heads, self.num_kv_heads, self.head_dim = heads
        self.layer = layer

    def forward(self, x_TD: Tensor, rotation: tuple[Tensor, Tensor], attend: Attend, operators: Operators) -> Tensor:
        """Apply to T normed tokens.

        Args:
            x_TD: input.
            rotation: rows of the rotary table for the T positions.
            attend: attention of this pass.
            operators: elementwise steps.
        """
        out_TD: Tensor = self.output(self.attend_projected(self.qkv(x_TD), rotation, attend, operators))
        return out_TD

    def attend_projected(
        self, qkv_TX: Tensor, rotation: tuple[Tensor, Tensor], attend: Attend, operators: Operators
    ) -> Tensor:
        """Norm, rotate and attend what the first projection gives.

        Args:
            qkv_TX: heads of queries, keys and values side by side, X = (H + 2 N) * D.
            rotation: rows of the rotary table for the T positions.
            attend: attention of this pass.
            operators: elementwise steps.

        Returns:
            (T, H * D), input of the second projection.
        """
        heads = qkv_TX.view(qkv_TX.shape[0], -1, self.head_dim)
        num_qk = self.num_heads + self.num_kv_heads
        qk, v = heads[:, :num_qk], heads[:, num_qk:]
        if self.head_norms is not None:
            qk = self.head_norms(qk)
        return self._attend(qk, v, rotation, attend, operators).flatten(1)

    def _attend(
        self, qk: Tensor, v: Tensor, rotation: tuple[Tensor, Tensor], attend: Attend, operators: Operators
    ) -> Tensor:
        fused: AttendUnrotated | None = getattr(attend, "attend_unrotated", None)
        if fused is not None:
            return fused((qk[:, : self.num_heads], qk[:, self.num_heads :], v), rotation, self.layer)
        qk = operators.rotate(qk, *rotation)
        return attend(qk[:, : self.num_heads], qk[:, self.num_heads :], v, self.layer)
