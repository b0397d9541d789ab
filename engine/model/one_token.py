"""A pass of one token through dense layers, with five kernels per layer.

At one token a layer is bound by reading its weights, and every launch leaves the memory idle for about a microsecond.
So the norms ride on the products behind them and the residual additions on the products before them: the residual
itself goes from kernel to kernel, and nothing is added apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.model.linear import DenseLinear
from engine.model.mlp import GatedMlp
from engine.tracing import Range, span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from engine.attention.backend import Attend
    from engine.model.attention import SelfAttention
    from engine.model.decoder import DecoderLayer
    from engine.model.norm import RmsNorm
    from engine.model.operators import OneTokenOperators, Operators


class OneTokenLayers:
    """The layers of a decoder, seen as weights for the kernels of one token."""

    def __init__(self, layers: Sequence[DecoderLayer], operators: Operators, products: OneTokenOperators) -> None:
        self._layers = tuple(layers)
        self._operators = operators
        self._products = products

    @classmethod
    def of(cls, layers: Sequence[DecoderLayer], operators: Operators) -> OneTokenLayers | None:
        """The layers of a stage; None if there are no such kernels, or a layer has other weights than dense ones."""
        if operators.one_token is None or not all(map(_is_dense, layers)):
            return None
        return cls(layers, operators, operators.one_token)

    def run(self, x_1D: Tensor, rotation: tuple[Tensor, Tensor], attend: Attend) -> tuple[Tensor, Tensor]:
        """Run the layers.

        Args:
            x_1D: the residual before the first of them.
            rotation: row of the rotary table.
            attend: attention of this pass.

        Returns:
            What the last MLP adds, and the residual without it, as the layers themselves give it.
        """
        last = self._layers[-1]
        after = x_1D
        for layer in self._layers:
            with span(Range.LAYER, layer.attention.layer):
                with span(Range.ATTENTION, layer.attention.layer):
                    x_1D = self._attend(after, layer.attention, layer.attention_norm, rotation, attend)
                with span(Range.MLP, layer.attention.layer):
                    after = self._run_mlp(x_1D, layer, None if layer is last else x_1D)
        return after, x_1D

    def _attend(
        self, x_1D: Tensor, attention: SelfAttention, norm: RmsNorm, rotation: tuple[Tensor, Tensor], attend: Attend
    ) -> Tensor:
        weight, bias = _matrix(attention.qkv)
        qkv = self._products.linear(x_1D, weight, (norm.weight, norm.eps), None if bias is None else bias[None])
        attended = attention.attend_projected(qkv, rotation, attend, self._operators)
        return self._products.linear(attended, _matrix(attention.output)[0], None, x_1D)

    def _run_mlp(self, x_1D: Tensor, layer: DecoderLayer, residual_1D: Tensor | None) -> Tensor:
        mlp, norm = layer.mlp, layer.mlp_norm
        assert isinstance(mlp, GatedMlp)
        gated = self._products.gate_up(x_1D, _matrix(mlp.gate_up)[0], (norm.weight, norm.eps))
        return self._products.linear(gated, _matrix(mlp.down)[0], None, residual_1D)


def _is_dense(layer: DecoderLayer) -> bool:
    """Whether the kernels take the matrices of a layer; only the first projection may have a bias."""
    if not isinstance(layer.mlp, GatedMlp):
        return False
    others = (layer.attention.output, layer.mlp.gate_up, layer.mlp.down)
    return isinstance(layer.attention.qkv, DenseLinear) and all(
        isinstance(matrix, DenseLinear) and matrix.bias is None for matrix in others
    )


def _matrix(product: object) -> tuple[Tensor, Tensor | None]:
    assert isinstance(product, DenseLinear)
    return product.weight, product.bias
