"""The architectures that the decoder implements, read from a transformers config.

They are one decoder with a few choices: bias where the checkpoint has one, norms on query and key heads, a sliding
window in some layers, experts instead of an MLP in some layers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.errors import CheckpointError, UnsupportedArchitectureError


@dataclass(frozen=True, slots=True)
class ExpertGeometry:
    """Mixture of experts.

    Attributes:
        num_experts: experts of a layer in the whole model.
        top_k: experts that a token visits.
        is_renormalised: whether the weights of the chosen experts are divided by their sum.
        layers: numbers of the layers that have experts; the others have an MLP.
        names: how the checkpoint calls block, gate, up and down projection.
    """

    num_experts: int
    top_k: int
    is_renormalised: bool
    layers: frozenset[int]
    names: tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class ModelGeometry:
    """Shape of a whole model; what a rank holds of it is read from its weights.

    Attributes:
        architecture: class name in transformers.
        hidden_size: width D of the residual stream.
        num_layers: decoder layers.
        num_heads: query heads.
        num_kv_heads: KV heads.
        head_dim: size of a head; need not be hidden_size / num_heads.
        vocab_size: rows of the embedding.
        max_position: tokens that the model was made for.
        rms_eps: added to the mean square in every norm.
        has_head_norms: whether query and key heads are normed before the rotation.
        is_tied: whether the head is the embedding.
        windows: for each layer the number of last tokens that a query sees; None is all.
        experts: mixture of experts, or None.
    """

    architecture: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position: int
    rms_eps: float
    has_head_norms: bool
    is_tied: bool
    windows: tuple[int | None, ...]
    experts: ExpertGeometry | None


def _one_window(config: Any) -> tuple[int | None, ...]:
    window: int | None = getattr(config, "sliding_window", None)
    num_layers: int = config.num_hidden_layers
    return (window,) * num_layers


def _no_window(config: Any) -> tuple[int | None, ...]:
    num_layers: int = config.num_hidden_layers
    return (None,) * num_layers


def _window_by_layer_type(config: Any) -> tuple[int | None, ...]:
    return tuple(config.sliding_window if kind == "sliding_attention" else None for kind in config.layer_types)


def _mixtral_experts(config: Any) -> ExpertGeometry:
    return ExpertGeometry(
        num_experts=config.num_local_experts,
        top_k=config.num_experts_per_tok,
        is_renormalised=True,
        layers=frozenset(range(config.num_hidden_layers)),
        names=("block_sparse_moe", "w1", "w3", "w2"),
    )


def _qwen3_experts(config: Any) -> ExpertGeometry:
    step, dense = config.decoder_sparse_step, set(config.mlp_only_layers or ())
    sparse = (layer for layer in range(config.num_hidden_layers) if layer not in dense and (layer + 1) % step == 0)
    return ExpertGeometry(
        num_experts=config.num_experts,
        top_k=config.num_experts_per_tok,
        is_renormalised=config.norm_topk_prob,
        layers=frozenset(sparse),
        names=("mlp", "gate_proj", "up_proj", "down_proj"),
    )


@dataclass(frozen=True, slots=True)
class _Architecture:
    windows: Callable[[Any], tuple[int | None, ...]]
    has_head_norms: bool = False
    experts: Callable[[Any], ExpertGeometry] | None = None


_ARCHITECTURES = {
    "LlamaForCausalLM": _Architecture(windows=_no_window),
    "MistralForCausalLM": _Architecture(windows=_one_window),
    "MixtralForCausalLM": _Architecture(windows=_one_window, experts=_mixtral_experts),
    "Qwen2ForCausalLM": _Architecture(windows=_window_by_layer_type),
    "Qwen3ForCausalLM": _Architecture(windows=_window_by_layer_type, has_head_norms=True),
    "Qwen3MoeForCausalLM": _Architecture(windows=_one_window, has_head_norms=True, experts=_qwen3_experts),
}


def supported_architectures() -> tuple[str, ...]:
    """Class names that `read_geometry` accepts, sorted."""
    return tuple(sorted(_ARCHITECTURES))


def read_geometry(config: Any) -> ModelGeometry:
    """Read the shape of a model from its transformers config.

    Args:
        config: a `PretrainedConfig` as `AutoConfig.from_pretrained` returns it.

    Raises:
        UnsupportedArchitectureError: none of its `architectures` is implemented, or its activation is not SiLU.
        CheckpointError: the query heads cannot be shared out evenly among the KV heads.
    """
    named = tuple(config.architectures or ())
    known = [name for name in named if name in _ARCHITECTURES]
    if not known:
        asked = ", ".join(named) or f"model_type {config.model_type}"
        raise UnsupportedArchitectureError(
            f"no decoder for {asked}; supported are {', '.join(supported_architectures())}"
        )
    if config.hidden_act != "silu":
        raise UnsupportedArchitectureError(f"{known[0]} with activation {config.hidden_act!r}; supported is 'silu'")
    if config.num_attention_heads % config.num_key_value_heads:
        raise CheckpointError(
            f"{config.num_attention_heads} query heads cannot share {config.num_key_value_heads} KV heads evenly"
        )
    architecture = _ARCHITECTURES[known[0]]
    return ModelGeometry(
        architecture=known[0],
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        vocab_size=config.vocab_size,
        max_position=config.max_position_embeddings,
        rms_eps=config.rms_norm_eps,
        has_head_norms=architecture.has_head_norms,
        is_tied=bool(config.tie_word_embeddings),
        windows=architecture.windows(config),
        experts=architecture.experts(config) if architecture.experts else None,
    )
