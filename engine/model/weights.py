"""From checkpoint names to modules: each tensor goes straight to its device and dtype, and its place in a matrix."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from engine.errors import CheckpointError, UnsupportedArchitectureError
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
from engine.model.projections import Placement, ProjectionReader
from engine.model.rope import build_rotary_table
from engine.model.weight_format import WeightFormat
from engine.model.weight_stream import WeightStream, spread_evenly

_CPU = torch.device("cpu")
_LOG = logging.getLogger(__name__)
_READABLE_METHODS = ("fp8", "fbgemm_fp8", "compressed-tensors")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a checkpoint becomes a decoder.

    Attributes:
        device: where the weights go.
        dtype: dtype of weights and activations; None is that of the checkpoint.
        layers: layers of this stage; None is all.
        experts: experts held here, of every layer that has some; None is all. The others' answers are to be added.
        max_positions: positions that the rotary table covers; None is the model's own limit.
        operators: elementwise steps.
        weight_format: how the matrices of the layers are kept.
        offloaded_share: share of the layers whose weights stay on the host, in [0, 1].
        is_prefetching: bring offloaded weights ahead of time from pinned memory (else blocking, the ill variant).
        has_grouped_experts: run experts by grouped products (else one after the other, the ill variant).
        has_fused_gate: choose experts in one selection (else in rounds, the ill variant).
    """

    device: torch.device = _CPU
    dtype: torch.dtype | None = None
    layers: range | None = None
    experts: range | None = None
    max_positions: int | None = None
    operators: Operators = REFERENCE
    weight_format: WeightFormat = WeightFormat.NATIVE
    offloaded_share: float = 0.0
    is_prefetching: bool = True
    has_grouped_experts: bool = True
    has_fused_gate: bool = True


def load_decoder(folder: Path, options: LoadOptions) -> Decoder:
    """Load a decoder, or a stage of it, from a Hugging Face checkpoint folder.

    Args:
        folder: holds config.json and safetensors files.
        options: device, dtype, stage, formats.

    Raises:
        CheckpointError: the folder is incomplete or damaged, or shapes do not fit the config.
        UnsupportedArchitectureError: no decoder here implements what the config names.
        ConfigError: the weight format does not work for this device, dtype or offload.

    Cost: every tensor is copied once, from the mapped file to its final place (not at all where that is the file).
    """
    config = read_config(folder)
    geometry = read_geometry(config)
    _check_quantisation(config)
    dtype = options.dtype or config.dtype or torch.float32
    checkpoint = Checkpoint(folder)
    layers = options.layers or range(geometry.num_layers)
    offloaded = spread_evenly(layers, options.offloaded_share)
    builder = _Builder(checkpoint, geometry, options, Placement(options.device, dtype, options.weight_format))
    # Not inference mode: tensors made in it cannot be written to outside it, as weight offload does.
    with torch.no_grad():
        positions = options.max_positions or geometry.max_position
        rotary = build_rotary_table(config, positions, dtype, options.device)
        stream = WeightStream(options.device, options.is_prefetching) if offloaded else None
        built = {number: builder.layer(number, stream if number in offloaded else None) for number in layers}
        decoder = Decoder(geometry, built, rotary, options.operators)
        builder.attach_ends(decoder)
        decoder.kv_scales = builder.kv_scales(layers)
        if stream is not None:
            stream.start()
            decoder.weight_stream = stream
    _report_unread(checkpoint, layers, geometry)
    return decoder.eval()


def _check_quantisation(config: object) -> None:
    """Refuse checkpoints whose matrices are packed in a way that is not read here."""
    found = getattr(config, "quantization_config", None)
    method = found.get("quant_method") if isinstance(found, dict) else getattr(found, "quant_method", None)
    if method is not None and str(getattr(method, "value", method)) not in _READABLE_METHODS:
        names = ", ".join(_READABLE_METHODS)
        raise UnsupportedArchitectureError(f"checkpoint quantised by {method}; readable are {names} (FP8 weights)")


def _report_unread(checkpoint: Checkpoint, layers: range, geometry: ModelGeometry) -> None:
    """Say so if the whole model was loaded and tensors are left over: they may be something this decoder leaves out."""
    ignorable = (".rotary_emb.inv_freq", "lm_head.weight")
    left = sorted(name for name in checkpoint.unread if not name.endswith(ignorable))
    if left and len(layers) == geometry.num_layers:
        _LOG.warning("%d tensors of the checkpoint are not used, the first is %s", len(left), left[0])


class _Builder:
    """Reads tensors by their Hugging Face names and assembles modules."""

    def __init__(
        self, checkpoint: Checkpoint, geometry: ModelGeometry, options: LoadOptions, placement: Placement
    ) -> None:
        self._checkpoint = checkpoint
        self._geometry = geometry
        self._options = options
        self._resident = ProjectionReader(checkpoint, placement, options.operators)
        on_host = replace(placement, device=_CPU, keeps_plain=True)
        self._offloaded = ProjectionReader(checkpoint, on_host, options.operators)

    def layer(self, number: int, stream: WeightStream | None) -> DecoderLayer:
        """Build a layer on its device, or on the host if `stream` is to bring its weights."""
        reader = self._resident if stream is None else self._offloaded
        prefix = f"model.layers.{number}"
        norms = (
            self._norm(reader, f"{prefix}.input_layernorm"),
            self._norm(reader, f"{prefix}.post_attention_layernorm"),
        )
        experts = self._geometry.experts
        is_sparse = experts is not None and number in experts.layers
        mlp = self._experts(reader, prefix) if is_sparse else self._mlp(reader, f"{prefix}.mlp")
        layer = DecoderLayer(self._attention(reader, number), mlp, norms)
        if stream is not None:
            stream.add(layer)
        return layer

    def attach_ends(self, decoder: Decoder) -> None:
        """Embedding on the first stage; norm and head on the last."""
        is_last = decoder.layer_range.stop == self._geometry.num_layers
        is_tied = self._geometry.is_tied or "lm_head.weight" not in self._checkpoint
        if decoder.layer_range.start == 0 or (is_last and is_tied):
            self._expect_width(1, "model.embed_tokens.weight")
            embedding = self._resident.stacked(["model.embed_tokens.weight"])
        if decoder.layer_range.start == 0:
            decoder.embedding = nn.Embedding(embedding.shape[0], embedding.shape[1], _weight=embedding, _freeze=True)
        if is_last:
            decoder.norm = self._norm(self._resident, "model.norm")
            decoder.head = keep_matrix(embedding, None) if is_tied else self._resident.native("lm_head")

    def kv_scales(self, layers: range) -> dict[int, tuple[float, float]]:
        """Factors for keys and values kept as FP8, of those layers for which the checkpoint has both."""
        names = {number: [f"model.layers.{number}.self_attn.{side}_scale" for side in "kv"] for number in layers}
        return {
            number: (float(self._checkpoint.tensor(k_name)), float(self._checkpoint.tensor(v_name)))
            for number, (k_name, v_name) in names.items()
            if k_name in self._checkpoint and v_name in self._checkpoint
        }

    def _expect_width(self, dim: int, *names: str) -> None:
        """Check that a dimension of some tensors is the hidden size; the other may be a part of the whole model's.

        Raises:
            CheckpointError: it is not.
        """
        for name in names:
            shape = tuple(self._checkpoint.tensor(name).shape)
            if shape[dim] != self._geometry.hidden_size:
                wanted = self._geometry.hidden_size
                raise CheckpointError(f"{name} has shape {shape}; the config wants {wanted} in dimension {dim}")

    def _norm(self, reader: ProjectionReader, name: str) -> RmsNorm:
        self._expect_width(0, f"{name}.weight")
        return RmsNorm(reader.vector(f"{name}.weight"), self._geometry.rms_eps, self._options.operators)

    def _attention(self, reader: ProjectionReader, number: int) -> SelfAttention:
        prefix = f"model.layers.{number}.self_attn"
        head_dim = self._geometry.head_dim
        inputs = [f"{prefix}.{name}" for name in ("q_proj", "k_proj", "v_proj")]
        self._expect_width(1, *(f"{name}.weight" for name in inputs))
        self._expect_width(0, f"{prefix}.o_proj.weight")
        q_rows, k_rows, v_rows = (self._checkpoint.tensor(f"{name}.weight").shape[0] for name in inputs)
        if q_rows % head_dim or k_rows % head_dim or k_rows == 0 or q_rows % k_rows or v_rows != k_rows:
            raise CheckpointError(
                f"{prefix}: {q_rows}, {k_rows} and {v_rows} rows of queries, keys and values are no whole heads "
                f"of {head_dim} that share evenly"
            )
        num_heads, num_kv_heads = q_rows // head_dim, k_rows // head_dim
        qkv = reader.fused(*inputs)
        head_norms = self._head_norms(reader, prefix, num_heads, num_kv_heads)
        heads = (num_heads, num_kv_heads, head_dim)
        return SelfAttention(qkv, reader.fused(f"{prefix}.o_proj"), head_norms, heads, number)

    def _head_norms(self, reader: ProjectionReader, prefix: str, num_heads: int, num_kv_heads: int) -> RmsNorm | None:
        if not self._geometry.has_head_norms:
            return None
        q_weight, k_weight = (reader.vector(f"{prefix}.{name}.weight") for name in ("q_norm", "k_norm"))
        weight = stack_head_norms(q_weight, k_weight, num_heads, num_kv_heads)
        return RmsNorm(weight, self._geometry.rms_eps, self._options.operators)

    def _mlp(self, reader: ProjectionReader, prefix: str) -> nn.Module:
        self._expect_width(1, f"{prefix}.gate_proj.weight", f"{prefix}.up_proj.weight")
        self._expect_width(0, f"{prefix}.down_proj.weight")
        gate_up = reader.fused(f"{prefix}.gate_proj", f"{prefix}.up_proj")
        return GatedMlp(gate_up, reader.fused(f"{prefix}.down_proj"), self._options.operators)

    def _experts(self, reader: ProjectionReader, prefix: str) -> MixtureOfExperts:
        geometry = self._geometry.experts
        assert geometry is not None
        block, gate, up, down = geometry.names
        numbers = self._options.experts or range(geometry.num_experts)
        gate_up_ECD = reader.expert_stack(f"{prefix}.{block}", numbers, (gate, up))
        down_EDI = reader.expert_stack(f"{prefix}.{block}", numbers, (down,))
        kind: type[Experts] = GroupedExperts if self._options.has_grouped_experts else LoopedExperts
        experts = kind(gate_up_ECD, down_EDI, numbers.start, geometry.num_experts, self._options.operators)
        choose: Gate = gate_at_once if self._options.has_fused_gate else gate_in_rounds
        router_ED = reader.router(f"{prefix}.{block}.gate.weight")
        return MixtureOfExperts(router_ED, experts, choose, geometry.top_k, geometry.is_renormalised)
