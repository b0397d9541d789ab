"""The shape of a model out of its `config.json`, whatever the architecture calls its parts."""

from __future__ import annotations

from typing import Any

_COUNTS: dict[str, tuple[str, ...]] = {
    "layer_count": ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "num_layer"),
    "hidden_count": ("hidden_size", "n_embd", "d_model", "dim"),
    "head_count": ("num_attention_heads", "n_head", "n_heads", "num_heads", "head_num"),
    "kv_head_count": (
        "num_key_value_heads",
        "num_kv_heads",
        "n_head_kv",
        "n_kv_heads",
        "multi_query_group_num",
        "kv_head_num",
    ),
    "head_dim_count": ("head_dim", "head_size", "kv_channels", "size_per_head"),
    "feed_forward_count": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "hidden_dim", "inter_size"),
    "expert_count": ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"),
    "expert_per_token_count": ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "top_k_experts"),
    "expert_feed_forward_count": ("moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size"),
    "shared_expert_count": ("n_shared_experts", "num_shared_experts"),
    "dense_layer_count": ("first_k_dense_replace",),
    "vocabulary_count": ("vocab_size", "padded_vocab_size"),
    "max_position_count": ("max_position_embeddings", "n_positions", "seq_length", "max_sequence_length"),
}
_INSIDE = ("text_config", "llm_config", "language_config", "thinker_config", "pretrained_config", "tm_config", "llama")
_MOST = 10**9


def shape_of(config: dict[str, Any]) -> dict[str, Any] | None:
    """Columns of `model_shape`; None where the document is no model's configuration.

    Args:
        config: the document; a multimodal model's language part and an engine's `pretrained_config` are looked into.
    """
    inner: dict[str, Any] = next((config[name] for name in _INSIDE if isinstance(config.get(name), dict)), {})
    merged = {**config, **{name: value for name, value in inner.items() if value is not None}}
    shape: dict[str, Any] = {name: _count(merged, spelled) for name, spelled in _COUNTS.items()}
    heads = shape["head_count"]
    if shape["hidden_count"] is None and heads and shape["head_dim_count"]:
        shape["hidden_count"] = heads * shape["head_dim_count"]
    is_cache_known = shape["kv_head_count"] is not None and shape["head_dim_count"] is not None
    if shape["layer_count"] is None or (shape["hidden_count"] is None and not is_cache_known):
        return None
    shape["kv_head_count"] = shape["kv_head_count"] or (1.0 if merged.get("multi_query") is True else heads)
    if shape["head_dim_count"] is None and heads and shape["hidden_count"]:
        shape["head_dim_count"] = shape["hidden_count"] // heads
    architectures = merged.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else merged.get("architecture")
    dtype = merged.get("dtype") or merged.get("torch_dtype")
    method, bits = _quantisation(merged)
    return {
        **shape,
        "architecture": str(first)[:80] if isinstance(first, str) else None,
        "attention_layer_count": _attention_layers(merged, shape["layer_count"]),
        "kv_latent_count": _latent(merged),
        "is_embedding_tied": _flag(merged, "tie_word_embeddings"),
        "dtype": str(dtype).removeprefix("torch.")[:20] if isinstance(dtype, str) else None,
        "quantisation": method,
        "weight_bit_count": bits,
        "is_cache_used": _flag(merged, "use_cache"),
        "attention": _word(merged, "_attn_implementation") or _word(merged, "attn_implementation"),
    }


def _count(config: dict[str, Any], spelled: tuple[str, ...]) -> float | None:
    for name in spelled:
        value = config.get(name)
        if isinstance(value, str) and value.isdecimal() and len(value) < 12:
            value = int(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MOST:
            return float(value)
    return None


def _attention_layers(config: dict[str, Any], layers: float) -> float:
    """Layers with a cache that grows: hybrid models list their layers' types or name an interval."""
    kinds = config.get("layer_types") or config.get("layers_block_type")
    if isinstance(kinds, list) and kinds and all(isinstance(kind, str) for kind in kinds):
        return float(sum(not any(word in kind for word in ("linear", "mamba", "conv", "recurrent")) for kind in kinds))
    interval = _count(config, ("full_attention_interval", "attn_layer_period"))
    return float(layers // interval) if interval else layers


def _latent(config: dict[str, Any]) -> float | None:
    rank = _count(config, ("kv_lora_rank",))
    return None if rank is None else rank + (_count(config, ("qk_rope_head_dim",)) or 0.0)


def _quantisation(config: dict[str, Any]) -> tuple[str | None, float | None]:
    told = config.get("quantization_config") or config.get("quantization") or config.get("compression_config")
    if not isinstance(told, dict):
        return None, None
    method = told.get("quant_method") or told.get("quant_algo") or told.get("quant_type")
    if told.get("load_in_8bit") is True or told.get("_load_in_8bit") is True:
        return "bitsandbytes", 8.0
    if told.get("load_in_4bit") is True or told.get("_load_in_4bit") is True:
        return "bitsandbytes", 4.0
    name = str(method).lower()[:40] if isinstance(method, str) else None
    bits = _count(told, ("bits", "w_bit", "num_bits", "weight_bits")) or _group_bits(told)
    if bits is None and name is not None:
        bits = 8.0 if "fp8" in name or "int8" in name or "w8" in name else 4.0 if "4" in name or name == "awq" else None
    return name, bits


def _group_bits(told: dict[str, Any]) -> float | None:
    """Bits of the first group of a compressed-tensors checkpoint."""
    groups = told.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    return _count(weights, ("num_bits",)) if isinstance(weights, dict) else None


def _flag(config: dict[str, Any], name: str) -> bool | None:
    value = config.get(name)
    return value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value).lower())


def _word(config: dict[str, Any], name: str) -> str | None:
    value = config.get(name)
    return value.lower()[:40] if isinstance(value, str) else None
