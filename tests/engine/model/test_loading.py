import json
import logging
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from safetensors.torch import load_file, save_file  # noqa: E402
from torch import Tensor  # noqa: E402

from engine.attention.registry import create_backend  # noqa: E402
from engine.errors import CheckpointError, UnsupportedArchitectureError  # noqa: E402
from engine.model.architectures import supported_architectures  # noqa: E402
from engine.model.decoder import Decoder  # noqa: E402
from engine.model.weights import LoadOptions, load_decoder  # noqa: E402
from tests.support.decoding import draw_prompts, geometry_of, logits_of, paged  # noqa: E402
from tests.support.packed_batch import BlockTables, positions  # noqa: E402
from tests.support.tiny_models import make_model, save_model  # noqa: E402

LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "factor": 2.0,
    "short_factor": [1.0] * 8,
    "long_factor": [2.0] * 8,
    "original_max_position_embeddings": 128,
}
State = tuple[Tensor, Tensor | None]


def change_config(folder: Path, **values: object) -> Path:
    config = json.loads((folder / "config.json").read_text())
    config.update(values)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_unknown_architecture_is_refused_with_the_list_of_supported_ones(tmp_path: Path) -> None:
    folder = change_config(save_model(make_model("llama"), tmp_path), architectures=["GemmaForCausalLM"])
    with pytest.raises(UnsupportedArchitectureError, match="GemmaForCausalLM") as caught:
        load_decoder(folder, LoadOptions())
    for name in supported_architectures():
        assert name in str(caught.value)


def test_model_type_unknown_to_transformers_is_refused_with_the_list(tmp_path: Path) -> None:
    folder = change_config(save_model(make_model("llama"), tmp_path), model_type="my_own_model")
    with pytest.raises(UnsupportedArchitectureError, match=r"my_own_model.*LlamaForCausalLM"):
        load_decoder(folder, LoadOptions())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
        ({"rope_parameters": LONGROPE}, "longrope"),
        (
            {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
            "a part of each",
        ),
    ],
)
def test_what_the_decoder_cannot_compute_is_refused(values: dict[str, object], message: str, tmp_path: Path) -> None:
    folder = change_config(save_model(make_model("llama"), tmp_path), **values)
    with pytest.raises(UnsupportedArchitectureError, match=message):
        load_decoder(folder, LoadOptions())


def test_folder_without_config_or_weights_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json does not exist"):
        load_decoder(tmp_path, LoadOptions())
    folder = save_model(make_model("llama"), tmp_path / "model")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor"):
        load_decoder(folder, LoadOptions())


def test_damaged_files_are_reported(tmp_path: Path) -> None:
    folder = save_model(make_model("llama"), tmp_path)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=r"model\.safetensors cannot be read"):
        load_decoder(folder, LoadOptions())
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read"):
        load_decoder(folder, LoadOptions())


def test_config_that_transformers_refuses_is_reported_with_its_reason(tmp_path: Path) -> None:
    folder = change_config(save_model(make_model("llama"), tmp_path), rope_parameters={"rope_type": "yarn"})
    with pytest.raises(CheckpointError, match=r"config\.json: .*factor"):
        load_decoder(folder, LoadOptions())


def test_missing_tensor_and_missing_shard_are_reported(tmp_path: Path) -> None:
    folder = save_model(make_model("llama"), tmp_path / "whole")
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"no tensor 'model\.layers\.1\.mlp\.up_proj\.weight'"):
        load_decoder(folder, LoadOptions())
    sharded = save_model(make_model("llama"), tmp_path / "sharded", max_shard_size="50KB")
    next(sharded.glob("model-00002-of-*.safetensors")).unlink()
    with pytest.raises(CheckpointError, match="model-00002"):
        load_decoder(sharded, LoadOptions())


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("model.embed_tokens.weight", (160, 48), "wants 64 in dimension 1"),
        ("model.layers.1.mlp.down_proj.weight", (80, 96), "wants 64 in dimension 0"),
        ("model.layers.0.self_attn.k_proj.weight", (24, 64), "no whole heads of 16"),
        ("model.layers.0.self_attn.v_proj.weight", (16, 64), "64, 32 and 16 rows"),
    ],
)
def test_tensors_that_do_not_fit_the_config_are_reported(
    name: str, shape: tuple[int, int], message: str, tmp_path: Path
) -> None:
    folder = save_model(make_model("llama"), tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors[name] = torch.zeros(shape)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=message):
        load_decoder(folder, LoadOptions())


def test_tensors_that_no_module_uses_are_named_in_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = save_model(make_model("llama"), tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.sinks"] = torch.zeros(4)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with caplog.at_level(logging.WARNING, logger="engine"):
        load_decoder(folder, LoadOptions())
    assert "1 tensors of the checkpoint are not used, the first is model.layers.0.self_attn.sinks" in caplog.text


def test_dtype_follows_the_checkpoint_unless_asked_otherwise(tmp_path: Path) -> None:
    folder = save_model(make_model("llama").to(torch.bfloat16), tmp_path)
    assert load_decoder(folder, LoadOptions()).dtype == torch.bfloat16
    assert load_decoder(folder, LoadOptions(dtype=torch.float32)).dtype == torch.float32


def run_stage(stage: Decoder, state: State, tables: BlockTables) -> State:
    spans = [(0, 9), (0, 20)]
    kv = paged(geometry_of(stage), tables.num_blocks, tables.block_size)
    attend = create_backend("torch_ref", stage.attention_spec).bind(kv, tables.meta(spans))
    return stage.run_layers(*state, positions(spans), attend)


def test_stages_one_after_the_other_equal_the_whole_model(tmp_path: Path) -> None:
    folder = save_model(make_model("qwen3", num_hidden_layers=5), tmp_path)
    prompts = draw_prompts((9, 20), 160)
    wanted = logits_of(load_decoder(folder, LoadOptions()), prompts, [[9, 20]])
    stages = [load_decoder(folder, LoadOptions(layers=layers)) for layers in (range(2), range(2, 4), range(4, 5))]
    assert [stage.embedding is not None for stage in stages] == [True, False, False]
    assert [stage.head is not None for stage in stages] == [False, False, True]
    tables = BlockTables(2, 3, 8)
    with torch.inference_mode():
        state: State = (stages[0].embed(torch.cat(prompts)), None)
        for stage in stages:
            state = run_stage(stage, state, tables)
        assert state[1] is not None
        logits = stages[-1].logits(stages[-1].finish(state[0], state[1]))
    torch.testing.assert_close(logits, torch.cat(wanted), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe"])
def test_experts_loaded_in_two_places_add_up_to_the_whole_layer(family: str, tmp_path: Path) -> None:
    folder = save_model(make_model(family), tmp_path)
    experts = (None, range(1), range(1, 8 if family == "qwen3_moe" else 4))
    layers: list[Any] = [load_decoder(folder, LoadOptions(experts=part)).layers[1] for part in experts]
    whole, few, many = (layer.mlp for layer in layers)
    x_TD = torch.randn(20, 64)
    assert sum(p.numel() for p in few.parameters()) < sum(p.numel() for p in many.parameters())
    torch.testing.assert_close(few(x_TD) + many(x_TD), whole(x_TD), atol=1e-5, rtol=1e-5)


def test_loading_allocates_every_matrix_once(tmp_path: Path) -> None:
    folder = save_model(make_model("mixtral", hidden_size=256, intermediate_size=512).to(torch.bfloat16), tmp_path)
    kept = load_decoder(folder, LoadOptions()).weight_bytes
    with torch.profiler.profile(profile_memory=True) as profile:
        decoder = load_decoder(folder, LoadOptions())
    mapped = (folder / "model.safetensors").stat().st_size
    taken, peak = 0, 0
    for event in profile.profiler.kineto_results.events():
        # The profiler reports the mapping of the file too, which is no memory of its own.
        if event.name() == "[memory]" and event.nbytes() != mapped:
            taken += event.nbytes()
            peak = max(peak, taken)
    # One fused matrix at a time stands beside its packed form.
    assert peak < 1.15 * kept
    assert decoder.weight_bytes == kept
