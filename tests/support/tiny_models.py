"""Small random models of every supported architecture, as true checkpoint folders."""

from pathlib import Path
from typing import Any

import torch
import transformers

SMALL = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "mistral": ("MistralConfig", {"sliding_window": 16}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3_moe": ("Qwen3MoeConfig", {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48}),
}


def make_model(family: str, seed: int = 0, **options: Any) -> Any:
    """Build a transformers model with weights wide enough (std 0.08) that two tokens rarely score the same."""
    class_name, extra = CONFIGS[family]
    torch.manual_seed(seed)
    config = getattr(transformers, class_name)(**{**SMALL, **extra, **options})
    model = transformers.AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
        config, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0, 0.08)
    return model


def save_model(model: Any, folder: Path, max_shard_size: str = "5GB") -> Path:
    """Write the checkpoint as transformers does."""
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    return folder
