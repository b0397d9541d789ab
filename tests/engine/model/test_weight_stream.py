from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from engine.errors import ConfigError  # noqa: E402
from engine.model.weight_format import WeightFormat  # noqa: E402
from engine.model.weight_stream import spread_evenly  # noqa: E402
from engine.model.weights import LoadOptions, load_decoder  # noqa: E402
from tests.support.decoding import draw_prompts, logits_of  # noqa: E402
from tests.support.tiny_models import make_model, save_model  # noqa: E402

CHUNKS = [[8, 20], [1, 1], [3, 1]]


@pytest.mark.parametrize("is_prefetching", [True, False])
@pytest.mark.parametrize("share", [0.2, 0.6, 1.0])
@pytest.mark.parametrize("family", ["qwen3", "mixtral"])
def test_offloaded_layers_give_the_same_logits(family: str, share: float, is_prefetching: bool, tmp_path: Path) -> None:
    folder = save_model(make_model(family, num_hidden_layers=5), tmp_path)
    prompts = draw_prompts((12, 22), 160)
    wanted = logits_of(load_decoder(folder, LoadOptions()), prompts, CHUNKS)
    decoder = load_decoder(folder, LoadOptions(offloaded_share=share, is_prefetching=is_prefetching))
    for ours, theirs in zip(logits_of(decoder, prompts, CHUNKS), wanted, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert decoder.weight_stream is not None
    assert decoder.weight_stream.num_copies == round(5 * share) * len(CHUNKS)


def test_offloading_frees_device_memory(tmp_path: Path) -> None:
    folder = save_model(make_model("llama", num_hidden_layers=8, vocab_size=32), tmp_path)
    resident = load_decoder(folder, LoadOptions()).weight_bytes
    decoder = load_decoder(folder, LoadOptions(offloaded_share=1.0))
    assert decoder.weight_stream is not None
    # Two buffers of one layer each stay, of eight layers.
    assert decoder.weight_bytes < 0.4 * resident
    assert decoder.weight_stream.num_host_bytes > 0.6 * resident


def test_fp8_layers_can_be_offloaded_and_torchao_layers_cannot(tmp_path: Path) -> None:
    pytest.importorskip("torchao", reason="needs the package torchao")
    folder = save_model(make_model("llama"), tmp_path)
    prompts = draw_prompts((12, 22), 160)
    fp8 = LoadOptions(weight_format=WeightFormat.FP8)
    wanted = logits_of(load_decoder(folder, fp8), prompts, CHUNKS)
    ours = logits_of(
        load_decoder(folder, LoadOptions(weight_format=WeightFormat.FP8, offloaded_share=1.0)), prompts, CHUNKS
    )
    for one, other in zip(ours, wanted, strict=True):
        torch.testing.assert_close(one, other)
    with pytest.raises(ConfigError, match="cannot be offloaded"):
        load_decoder(folder, LoadOptions(weight_format=WeightFormat.INT8, offloaded_share=1.0))


def test_offloaded_weights_can_be_copied_outside_inference_mode(tmp_path: Path) -> None:
    folder = save_model(make_model("llama"), tmp_path)
    decoder = load_decoder(folder, LoadOptions(offloaded_share=1.0))
    assert decoder.weight_stream is not None
    with torch.no_grad():
        for layer in decoder.layers:
            for hook in layer._forward_pre_hooks.values():
                hook(layer, ())
    assert decoder.weight_stream.num_copies == 2


def test_offloaded_layers_are_spread_over_the_model() -> None:
    assert spread_evenly(range(8), 0.5) == (1, 3, 5, 7)
    assert spread_evenly(range(4, 8), 0.25) == (7,)
    assert spread_evenly(range(3), 1.0) == (0, 1, 2)
    assert spread_evenly(range(3), 0.0) == ()
