"""The decoder: embedding, layers, norm and head, or a stage of them."""

import torch
from torch import Tensor, nn

from engine.attention.backend import Attend, AttentionSpec
from engine.model.architectures import ModelGeometry
from engine.model.attention import SelfAttention
from engine.model.memory import weight_bytes
from engine.model.norm import RmsNorm
from engine.model.one_token import OneTokenLayers
from engine.model.operators import Operators
from engine.model.rope import RotaryTable
from engine.model.weight_stream import WeightStream
from engine.tracing import Range, span


class DecoderLayer(nn.Module):
    """Attention and MLP (or experts), each behind a norm."""

    def __init__(self, attention: SelfAttention, mlp: nn.Module, norms: tuple[RmsNorm, RmsNorm]) -> None:
        """Keep the parts; `norms` stand before attention and before the MLP."""
        super().__init__()
        self.attention = attention
        self.mlp = mlp
        self.attention_norm, self.mlp_norm = norms

    def forward(
        self,
        x_TD: Tensor,
        residual_TD: Tensor | None,
        rotation: tuple[Tensor, Tensor],
        attend: Attend,
        operators: Operators,
    ) -> tuple[Tensor, Tensor]:
        """Apply to T tokens.

        Args:
            x_TD: what the previous block added; not yet in the residual.
            residual_TD: sum of all blocks before that one; None before the first.
            rotation: rows of the rotary table.
            attend: attention of this pass.
            operators: elementwise steps.

        Returns:
            What the MLP adds, and the residual without it: the addition is fused with the next norm.
        """
        if residual_TD is None:
            normed, residual = self.attention_norm(x_TD), x_TD
        else:
            normed, residual = self.attention_norm.add(x_TD, residual_TD)
        with span(Range.ATTENTION, self.attention.layer):
            attended = self.attention(normed, rotation, attend, operators)
        normed, residual = self.mlp_norm.add(attended, residual)
        with span(Range.MLP, self.attention.layer):
            return self.mlp(normed), residual


class Decoder(nn.Module):
    """A stage of a model: some layers, with the embedding if the first is here and norm and head if the last is."""

    def __init__(
        self,
        geometry: ModelGeometry,
        layers: dict[int, DecoderLayer],
        rotary: RotaryTable,
        operators: Operators,
    ) -> None:
        """Keep the layers; the loader adds embedding, norm, head, and the FP8 KV factors of layers that have some.

        Args:
            geometry: shape of the whole model.
            layers: those of this stage by their number, ascending.
            rotary: angles of all positions that may occur.
            operators: elementwise steps.
        """
        super().__init__()
        self.geometry = geometry
        self.layers = nn.ModuleList(layers.values())
        self._stack = tuple(layers.values())
        self.layer_range = range(min(layers), max(layers) + 1)
        self.rotary = rotary
        self.operators = operators
        self.embedding: nn.Module | None = None
        self.norm: RmsNorm | None = None
        self.head: nn.Module | None = None
        self.weight_stream: WeightStream | None = None
        self.kv_scales: dict[int, tuple[float, float]] = {}
        self._one_token = OneTokenLayers.of(self._stack, operators)

    @property
    def attention_spec(self) -> AttentionSpec:
        """What an attention backend must know of the whole model."""
        return AttentionSpec(scale=self.geometry.head_dim**-0.5, windows=self.geometry.windows)

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of activations, queries and keys; weights may be kept in another one."""
        return self.rotary.cos_PD.dtype

    @property
    def weight_bytes(self) -> int:
        """Bytes that the weights take on the device (see `engine.model.memory`)."""
        return weight_bytes(self)

    @property
    def num_kv_heads(self) -> int:
        """KV heads held here."""
        return self._stack[0].attention.num_kv_heads

    def forward(self, token_ids_T: Tensor, positions_T: Tensor, attend: Attend) -> Tensor:
        """Run a whole model.

        Args:
            token_ids_T: int64.
            positions_T: int64, place of each token in its request.
            attend: attention of this pass.

        Returns:
            hidden_TD, normed, ready for `logits`.
        """
        return self.finish(*self.run_layers(self.embed(token_ids_T), None, positions_T, attend))

    def embed(self, token_ids_T: Tensor) -> Tensor:
        """Embedding of T tokens (first stage)."""
        assert self.embedding is not None, "this stage has no embedding"
        x_TD: Tensor = self.embedding(token_ids_T)
        return x_TD

    def run_layers(
        self, x_TD: Tensor, residual_TD: Tensor | None, positions_T: Tensor, attend: Attend
    ) -> tuple[Tensor, Tensor]:
        """Run the layers of this stage; takes and gives the pair (last addition, residual before it)."""
        rotation = self.rotary(positions_T)
        # Offloaded weights come and go layer by layer, which only the layers themselves know.
        if self._one_token is not None and len(x_TD) == 1 and self.weight_stream is None:
            return self._one_token.run(x_TD if residual_TD is None else x_TD + residual_TD, rotation, attend)
        residual = residual_TD
        for layer in self._stack:
            with span(Range.LAYER, layer.attention.layer):
                x_TD, residual = layer(x_TD, residual, rotation, attend, self.operators)
        assert residual is not None
        return x_TD, residual

    def finish(self, x_TD: Tensor, residual_TD: Tensor) -> Tensor:
        """Add up and norm (last stage)."""
        assert self.norm is not None, "this stage has no final norm"
        return self.norm.add(x_TD, residual_TD)[0]

    def logits(self, hidden_RD: Tensor) -> Tensor:
        """Scores of all tokens for R rows, in model dtype (last stage)."""
        assert self.head is not None, "this stage has no head"
        logits_RV: Tensor = self.head(hidden_RD)
        return logits_RV
