from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from torch import Tensor  # noqa: E402

from engine.attention.backend import KvCache  # noqa: E402
from engine.model.fp8 import Fp8Linear, quantise_channels  # noqa: E402
from engine.model.kv.paged import FP8, KvGeometry, PagedKv  # noqa: E402
from engine.model.moe import GroupedExperts, LoopedExperts, gate_at_once, has_grouped_product  # noqa: E402
from engine.model.operators import REFERENCE  # noqa: E402
from engine.model.weight_format import WeightFormat  # noqa: E402
from engine.model.weights import LoadOptions, load_decoder  # noqa: E402
from tests.support.decoding import draw_prompts, logits_of, paged_on  # noqa: E402
from tests.support.tiny_models import make_model, save_model  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
GPU = torch.device("cuda")
LENGTHS = (7, 21, 33)
CHUNKS = [[5, 9, 30], [1, 1, 1], [1, 11, 2]]


def on_gpu(folder: Path, options: LoadOptions, backend: str = "torch_ref", block_size: int = 8) -> Tensor:
    prompts = draw_prompts(LENGTHS, 160)
    parts = logits_of(load_decoder(folder, options), prompts, CHUNKS, backend, paged_on(GPU), block_size)
    logits: Tensor = torch.cat(parts).float()
    return logits


def relative(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen3", "mixtral", "qwen3_moe"])
def test_fp32_logits_on_the_gpu_equal_those_on_the_cpu(family: str, tmp_path: Path) -> None:
    folder = save_model(make_model(family), tmp_path)
    prompts = draw_prompts(LENGTHS, 160)
    wanted = torch.cat(logits_of(load_decoder(folder, LoadOptions()), prompts, CHUNKS))
    torch.testing.assert_close(on_gpu(folder, LoadOptions(device=GPU)), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("block_size", [8, 40, 256])
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen3"])
def test_varlen_is_as_close_to_fp32_as_torch_attention_in_bf16(family: str, block_size: int, tmp_path: Path) -> None:
    folder = save_model(make_model(family), tmp_path)
    exact = on_gpu(folder, LoadOptions(device=GPU))
    options = LoadOptions(device=GPU, dtype=torch.bfloat16)
    reference = relative(on_gpu(folder, options, "torch_ref", block_size), exact)
    assert relative(on_gpu(folder, options, "varlen", block_size), exact) < 1.5 * reference


@pytest.mark.parametrize("share", [0.4, 0.6, 1.0])
@pytest.mark.parametrize("is_prefetching", [True, False])
def test_offloaded_weights_arrive_before_their_layer_runs(share: float, is_prefetching: bool, tmp_path: Path) -> None:
    folder = save_model(make_model("llama", num_hidden_layers=5, hidden_size=256, intermediate_size=2048), tmp_path)
    wanted = on_gpu(folder, LoadOptions(device=GPU))
    decoder = load_decoder(folder, LoadOptions(device=GPU, offloaded_share=share, is_prefetching=is_prefetching))
    stream = decoder.weight_stream
    assert stream is not None
    assert stream.is_pinned == is_prefetching
    for _ in range(20):
        parts = logits_of(decoder, draw_prompts(LENGTHS, 160), CHUNKS, "torch_ref", paged_on(GPU))
        torch.testing.assert_close(torch.cat(parts), wanted, atol=1e-5, rtol=1e-5)
    assert stream.num_copies >= 20 * len(CHUNKS) * round(5 * share)


def test_weights_go_to_the_gpu_without_a_second_copy(tmp_path: Path) -> None:
    model = make_model("llama", hidden_size=1024, intermediate_size=4096, num_hidden_layers=4)
    folder = save_model(model.to(torch.bfloat16), tmp_path)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    decoder = load_decoder(folder, LoadOptions(device=GPU))
    peak = torch.cuda.max_memory_allocated() - before
    assert peak < 1.02 * decoder.weight_bytes


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("has_bias", [True, False])
def test_fp8_product_on_the_gpu_equals_the_exact_product_within_its_mantissa(dtype: object, has_bias: bool) -> None:
    torch.manual_seed(0)
    weight, bias = torch.randn(128, 256, device=GPU, dtype=dtype), torch.randn(128, device=GPU, dtype=dtype)
    product = Fp8Linear(*quantise_channels(weight), bias if has_bias else None, REFERENCE)
    for num_tokens in (1, 3, 17, 200):
        x = torch.randn(num_tokens, 256, device=GPU, dtype=dtype)
        exact = x.double() @ weight.double().t() + (bias.double() if has_bias else 0.0)
        assert relative(product(x).double(), exact) < 2**-4


def test_fp8_weights_on_the_gpu_stay_close(tmp_path: Path) -> None:
    folder = save_model(make_model("llama").to(torch.bfloat16), tmp_path)
    exact = on_gpu(folder, LoadOptions(device=GPU))
    assert relative(on_gpu(folder, LoadOptions(device=GPU, weight_format=WeightFormat.FP8)), exact) < 0.2


@pytest.mark.parametrize("backend", ["torch_ref", "varlen"])
def test_fp8_cache_on_the_gpu_stays_close(backend: str, tmp_path: Path) -> None:
    def fp8(geometry: KvGeometry, num_blocks: int, block_size: int) -> KvCache:
        return PagedKv(geometry, num_blocks, block_size, FP8, GPU)

    folder = save_model(make_model("llama").to(torch.bfloat16), tmp_path)
    exact = on_gpu(folder, LoadOptions(device=GPU))
    decoder = load_decoder(folder, LoadOptions(device=GPU))
    ours = torch.cat(logits_of(decoder, draw_prompts(LENGTHS, 160), CHUNKS, backend, fp8)).float()
    assert relative(ours, exact) < 0.1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_grouped_experts_on_the_gpu_say_the_same_as_looped_ones(dtype: object) -> None:
    torch.manual_seed(0)
    gate_up = torch.randn(8, 2 * 64, 128, device=GPU, dtype=dtype) * 0.1
    down = torch.randn(8, 128, 64, device=GPU, dtype=dtype) * 0.1
    for num_tokens in (1, 5, 100):
        x = torch.randn(num_tokens, 128, device=GPU, dtype=dtype)
        weights, experts = gate_at_once(torch.randn(num_tokens, 8, device=GPU), 3, is_renormalised=True)
        grouped = GroupedExperts(gate_up, down, 0, 8, REFERENCE)(x, weights, experts)
        looped = LoopedExperts(gate_up, down, 0, 8, REFERENCE)(x, weights, experts)
        assert has_grouped_product(x) == (dtype == torch.bfloat16)
        assert relative(grouped.float(), looped.float()) < (0.02 if dtype == torch.bfloat16 else 1e-5)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
def test_grouped_experts_on_the_gpu_do_not_wait_for_the_device() -> None:
    gate_up = torch.randn(8, 2 * 64, 128, device=GPU, dtype=torch.bfloat16)
    down = torch.randn(8, 128, 64, device=GPU, dtype=torch.bfloat16)
    x = torch.randn(9, 128, device=GPU, dtype=torch.bfloat16)
    weights, experts = gate_at_once(torch.randn(9, 8, device=GPU), 2, is_renormalised=True)
    healthy = GroupedExperts(gate_up, down, 0, 8, REFERENCE)
    healthy(x, weights, experts)
    torch.cuda.set_sync_debug_mode("error")
    try:
        healthy(x, weights, experts)
        with pytest.raises(RuntimeError, match="synchroniz"):
            LoopedExperts(gate_up, down, 0, 8, REFERENCE)(x, weights, experts)
    finally:
        torch.cuda.set_sync_debug_mode("default")
