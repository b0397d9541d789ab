"""From checkpoint names to modules: each tensor goes straight to its device and dtype, and its place in a matrix."""

import logging
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from engine.errors import CheckpointError
from engine.model.architectures import ModelGeometry, read_geometry
from engine.model.attention import SelfAttention
from engine.model.checkpoint import Checkpoint, read_config
from engine.model.decoder import Decoder, DecoderLayer
from engine.model.linear import keep_matrix
from engine.model.mlp import GatedMlp
from engine.model.moe import (
    Experts,
    Gate,
    GroupedExperts,
    LoopedExperts,
    MixtureOfExperts,
    gate_at_once,
    gate_in_rounds,
)
from engine.model.norm import RmsNorm, stack_head_norms
from engine.model.operators import REFERENCE, Operators
from engine.model.rope import build_rotary_table

_CPU = torch.device("cpu")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a checkpoint becomes a decoder.

    Attributes:
        device: where the weights go.
        dtype: dtype of weights and activations; None is that of the checkpoint.
        layers: layers of this stage; None is all.
        max_positions: positions that the rotary table covers; None is the model's own limit.
        operators: elementwise steps.
        has_grouped_experts: run experts by grouped products (else one after the other, the ill variant).
        has_fused_gate: choose experts in one selection (else in rounds, the ill variant).
    """

    device: torch.device = _CPU
    dtype: torch.dtype | None = None
    layers: range | None = None
    max_positions: int | None = None
    operators: Operators = REFERENCE
    has_grouped_experts: bool = True
    has_fused_gate: bool = True


def load_decoder(folder: Path, options: LoadOptions) -> Decoder:
    """Load a decoder, or a stage of it, from a Hugging Face checkpoint folder.

    Args:
        folder: holds config.json and safetensors files.
        options: device, dtype, stage.

    Raises:
        CheckpointError: the folder is incomplete or damaged, or shapes do not fit the config.
        UnsupportedArchitectureError: no decoder here implements what the config names.

    Cost: every tensor is copied once, from the mapped file to its final place (not at all where that is the file).
    """
    config = read_config(folder)
    geometry = read_geometry(config)
    dtype = options.dtype or config.dtype or torch.float32
    checkpoint = Checkpoint(folder)
    layers = options.layers or range(geometry.num_layers)
    builder = _Builder(checkpoint, geometry, options, dtype)
    with torch.inference_mode():
        positions = options.max_positions or geometry.max_position
        rotary = build_rotary_table(config, positions, dtype, options.device)
        decoder = Decoder(geometry, {n: builder.layer(n) for n in layers}, rotary, options.operators)
        builder.attach_ends(decoder)
    _report_unread(checkpoint, layers, geometry)
    return decoder.eval()


def _report_unread(checkpoint: Checkpoint, layers: range, geometry: ModelGeometry) -> None:
    """Say so if the whole model was loaded and tensors are left over: they may be something this decoder leaves out."""
    ignorable = (".rotary_emb.inv_freq", "lm_head.weight")
    left = sorted(name for name in checkpoint.unread if not name.endswith(ignorable))
    if left and len(layers) == geometry.num_layers:
        _LOG.warning("%d tensors of the checkpoint are not used, the first is %s", len(left), left[0])


class _Builder:
    """Reads tensors by their Hugging Face names and assembles modules."""

    def __init__(
        self, checkpoint: Checkpoint, geometry: ModelGeometry, options: LoadOptions, dtype: torch.dtype
    ) -> None:
        self._checkpoint = checkpoint
        self._geometry = geometry
        self._options = options
        self._dtype = dtype

    def vector(self, name: str) -> Tensor:
        return self._checkpoint.tensor(name).to(self._options.device, self._dtype)

    def stacked(self, names: list[str]) -> Tensor:
        """Tensors one below the other; a single one that needs no change stays a view of the file."""
        parts = [self._checkpoint.tensor(name) for name in names]
        if len(parts) == 1:
            return parts[0].to(self._options.device, self._dtype)
        rows = sum(part.shape[0] for part in parts)
        whole = torch.empty((rows, *parts[0].shape[1:]), dtype=self._dtype, device=self._options.device)
        for place, part in zip(torch.split(whole, [part.shape[0] for part in parts]), parts, strict=True):
            place.copy_(part)
        return whole

    def linear(self, *names: str) -> nn.Module:
        """One product for several projections with the same input."""
        weight = self.stacked([f"{name}.weight" for name in names])
        biases = [f"{name}.bias" for name in names]
        if not any(bias in self._checkpoint for bias in biases):
            return keep_matrix(weight, None)
        return keep_matrix(weight, self.stacked(biases))

    def norm(self, name: str) -> RmsNorm:
        return RmsNorm(self.vector(f"{name}.weight"), self._geometry.rms_eps, self._options.operators)

    def layer(self, number: int) -> DecoderLayer:
        prefix = f"model.layers.{number}"
        norms = (self.norm(f"{prefix}.input_layernorm"), self.norm(f"{prefix}.post_attention_layernorm"))
        experts = self._geometry.experts
        is_sparse = experts is not None and number in experts.layers
        mlp = self._experts(prefix) if is_sparse else self._mlp(f"{prefix}.mlp")
        return DecoderLayer(self._attention(number), mlp, norms)

    def _attention(self, number: int) -> SelfAttention:
        prefix = f"model.layers.{number}.self_attn"
        head_dim = self._geometry.head_dim
        num_heads, num_kv_heads = (
            self._checkpoint.tensor(f"{prefix}.{name}.weight").shape[0] // head_dim for name in ("q_proj", "k_proj")
        )
        if num_kv_heads == 0 or num_heads % num_kv_heads:
            raise CheckpointError(f"{prefix}: {num_heads} query heads cannot share {num_kv_heads} KV heads evenly")
        qkv = self.linear(*(f"{prefix}.{name}" for name in ("q_proj", "k_proj", "v_proj")))
        head_norms = self._head_norms(prefix, num_heads, num_kv_heads)
        heads = (num_heads, num_kv_heads, head_dim)
        return SelfAttention(qkv, self.linear(f"{prefix}.o_proj"), head_norms, heads, number)

    def _head_norms(self, prefix: str, num_heads: int, num_kv_heads: int) -> RmsNorm | None:
        if not self._geometry.has_head_norms:
            return None
        q_weight, k_weight = (self.vector(f"{prefix}.{name}.weight") for name in ("q_norm", "k_norm"))
        weight = stack_head_norms(q_weight, k_weight, num_heads, num_kv_heads)
        return RmsNorm(weight, self._geometry.rms_eps, self._options.operators)

    def _mlp(self, prefix: str) -> nn.Module:
        gate_up = self.linear(f"{prefix}.gate_proj", f"{prefix}.up_proj")
        return GatedMlp(gate_up, self.linear(f"{prefix}.down_proj"), self._options.operators)

    def _experts(self, prefix: str) -> MixtureOfExperts:
        geometry = self._geometry.experts
        assert geometry is not None
        block, gate, up, down = geometry.names
        numbers = range(geometry.num_experts)
        gate_up_ECD = self._expert_stack(f"{prefix}.{block}", numbers, (gate, up))
        down_EDI = self._expert_stack(f"{prefix}.{block}", numbers, (down,))
        kind: type[Experts] = GroupedExperts if self._options.has_grouped_experts else LoopedExperts
        experts = kind(gate_up_ECD, down_EDI, numbers.start, geometry.num_experts, self._options.operators)
        choose: Gate = gate_at_once if self._options.has_fused_gate else gate_in_rounds
        router_ED = self._checkpoint.tensor(f"{prefix}.{block}.gate.weight").to(self._options.device)
        return MixtureOfExperts(router_ED, experts, choose, geometry.top_k, geometry.is_renormalised)

    def _expert_stack(self, prefix: str, numbers: range, names: tuple[str, ...]) -> Tensor:
        """One tensor for a projection of all experts; `names` lie one below the other in each."""
        first = [self._checkpoint.tensor(f"{prefix}.experts.{numbers.start}.{name}.weight") for name in names]
        rows = [part.shape[0] for part in first]
        shape = (len(numbers), sum(rows), first[0].shape[1])
        stack = torch.empty(shape, dtype=self._dtype, device=self._options.device)
        for place, number in zip(stack, numbers, strict=True):
            for part, name in zip(torch.split(place, rows), names, strict=True):
                part.copy_(self._checkpoint.tensor(f"{prefix}.experts.{number}.{name}.weight"))
        return stack

    def attach_ends(self, decoder: Decoder) -> None:
        embedding = self.stacked(["model.embed_tokens.weight"])
        if decoder.layer_range.start == 0:
            decoder.embedding = nn.Embedding(embedding.shape[0], embedding.shape[1], _weight=embedding, _freeze=True)
        if decoder.layer_range.stop == self._geometry.num_layers:
            decoder.norm = self.norm("model.norm")
            is_tied = self._geometry.is_tied or "lm_head.weight" not in self._checkpoint
            decoder.head = keep_matrix(embedding, None) if is_tied else self.linear("lm_head")
