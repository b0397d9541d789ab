import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from engine.model.decoder import Decoder  # noqa: E402
from engine.model.weights import LoadOptions, load_decoder  # noqa: E402
from tests.support.decoding import draw_prompts, logits_of  # noqa: E402
from tests.support.tiny_models import CONFIGS, make_model, save_model  # noqa: E402

LENGTHS = (5, 23, 40)
WHOLE = [[5, 23, 40]]
MIXED = [[4, 9, 30], [1, 1, 7], [0, 13, 1], [0, 0, 2]]
ROPE = {"rope_theta": 10000.0}
ROPE_KINDS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", **ROPE},
    "linear": {"rope_type": "linear", "factor": 4.0, **ROPE},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0, **ROPE},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, **ROPE},
    "yarn with mscale": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "mscale": 0.7,
        "mscale_all_dim": 1.1,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        **ROPE,
    },
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
        **ROPE,
    },
}


def assert_equal_logits(model: Any, decoder: Decoder, chunks: list[list[int]]) -> None:
    prompts = draw_prompts(LENGTHS, model.config.vocab_size)
    for prompt, ours in zip(prompts, logits_of(decoder, prompts, chunks), strict=True):
        with torch.inference_mode():
            theirs = model(prompt[None]).logits[0]
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("chunks", [WHOLE, MIXED], ids=["whole prompts", "mixed steps"])
@pytest.mark.parametrize("family", CONFIGS)
def test_logits_equal_transformers_for_every_architecture(family: str, chunks: list[list[int]], tmp_path: Path) -> None:
    model = make_model(family)
    decoder = load_decoder(save_model(model, tmp_path), LoadOptions())
    assert_equal_logits(model, decoder, chunks)


@pytest.mark.parametrize("family", ["llama", "mixtral", "qwen3"])
@pytest.mark.parametrize("kind", ROPE_KINDS)
def test_logits_equal_transformers_for_every_rope_scaling(kind: str, family: str, tmp_path: Path) -> None:
    model = make_model(family, rope_parameters=ROPE_KINDS[kind])
    decoder = load_decoder(save_model(model, tmp_path), LoadOptions())
    assert_equal_logits(model, decoder, WHOLE)


OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "tied head": ("llama", {"tie_word_embeddings": True}),
    "bias in attention and MLP": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "bias and head norms": ("qwen3", {"attention_bias": True}),
    "one KV head": ("llama", {"num_key_value_heads": 1}),
    "as many KV heads as query heads": ("llama", {"num_key_value_heads": 4}),
    "heads wider than the hidden size": ("llama", {"head_dim": 48}),
    "head size implied": ("mixtral", {"head_dim": None}),
    "window in the upper layer only": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    ),
    "no window in Mistral": ("mistral", {"sliding_window": None}),
    "window in Mixtral": ("mixtral", {"sliding_window": 12}),
    "experts in every other layer": ("qwen3_moe", {"decoder_sparse_step": 2}),
    "first layer without experts": ("qwen3_moe", {"mlp_only_layers": [0]}),
    "expert weights made to add up": ("qwen3_moe", {"norm_topk_prob": True}),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_logits_equal_transformers_for_every_config_option(name: str, tmp_path: Path) -> None:
    family, options = OPTIONS[name]
    model = make_model(family, **options)
    decoder = load_decoder(save_model(model, tmp_path), LoadOptions())
    assert_equal_logits(model, decoder, MIXED)


@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")
def test_dynamic_scaling_equals_transformers_for_tokens_decoded_past_the_trained_length(tmp_path: Path) -> None:
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}
    model = make_model("llama", max_position_embeddings=24, rope_parameters=rope)
    decoder = load_decoder(save_model(model, tmp_path), LoadOptions(max_positions=40))
    (prompt,) = draw_prompts((36,), 160)
    (ours,) = logits_of(decoder, [prompt], [[20], *([[1]] * 16)])
    with torch.inference_mode():
        state = model(prompt[None, :20], use_cache=True)
        theirs = [state.logits[0]]
        for position in range(20, 36):
            state = model(prompt[None, position : position + 1], past_key_values=state.past_key_values, use_cache=True)
            theirs.append(state.logits[0])
    torch.testing.assert_close(ours, torch.cat(theirs), atol=2e-5, rtol=1e-5)


def test_sharded_checkpoint_gives_the_same_logits(tmp_path: Path) -> None:
    model = make_model("qwen3")
    whole = load_decoder(save_model(model, tmp_path / "whole"), LoadOptions())
    sharded = load_decoder(save_model(model, tmp_path / "sharded", max_shard_size="50KB"), LoadOptions())
    index = json.loads((tmp_path / "sharded" / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 2
    prompts = draw_prompts(LENGTHS, 160)
    for one, many in zip(logits_of(whole, prompts, WHOLE), logits_of(sharded, prompts, WHOLE), strict=True):
        assert torch.equal(one, many)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", CONFIGS)
def test_half_precision_is_as_close_to_fp32_as_that_of_transformers(family: str, dtype: Any, tmp_path: Path) -> None:
    model = make_model(family)
    decoder = load_decoder(save_model(model, tmp_path), LoadOptions(dtype=dtype))
    prompts = draw_prompts(LENGTHS, model.config.vocab_size)
    ours = torch.cat(logits_of(decoder, prompts, WHOLE)).float()
    with torch.inference_mode():
        exact = torch.cat([model(prompt[None]).logits[0] for prompt in prompts])
        model.to(dtype)
        theirs = torch.cat([model(prompt[None]).logits[0] for prompt in prompts]).float()
    # The median over tokens: where two experts score nearly the same, rounding sends a token elsewhere, here or there.
    ours_error, theirs_error = ((half - exact).norm(dim=-1).median() for half in (ours, theirs))
    assert ours_error < 1.3 * theirs_error
