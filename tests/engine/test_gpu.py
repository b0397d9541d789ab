"""The engine on a GPU: the same tokens as on the CPU, through graphs, overlap, own kernels, offload and speculation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from engine import LLM, SamplingParams  # noqa: E402
from tests.support.engine_requests import MixedRequests, greedy_params, mixed_requests  # noqa: E402
from tests.support.tiny_models import make_model, save_model  # noqa: E402

TOP = 5
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MixedRequests]:
    model = make_model("llama")
    return save_model(model, tmp_path_factory.mktemp("llama")), mixed_requests(model, 24)


def build(folder: Path, **options: Any) -> LLM:
    defaults = {"device": "cuda", "dtype": "float32", "max_model_len": 128, "max_num_seqs": 16, "num_blocks": 400}
    return LLM(str(folder), **{**defaults, **options})


CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "healthy": {},
    "no graphs": {"cuda_graphs": False},
    "mixed graphs": {"max_cudagraph_capture_size": 2048},
    "mixed graphs, chunks": {"max_cudagraph_capture_size": 2048, "max_num_batched_tokens": 24},
    "mixed graphs, micro-batches": {"max_cudagraph_capture_size": 64, "micro_batch_size": 3},
    "mixed graphs, contiguous": {"max_cudagraph_capture_size": 64, "kv": "contiguous", "num_blocks": None},
    "mixed graphs, n-gram": {"max_cudagraph_capture_size": 64, "speculate": "ngram", "ngram_min": 1},
    "no overlap": {"overlap": False},
    "chunks": {"max_num_batched_tokens": 24},
    "micro-batches": {"micro_batch_size": 3},
    "contiguous": {"kv": "contiguous", "num_blocks": None},
    "concat": {"kv": "concat"},
    "torch_ref": {"attention": "torch_ref"},
    "eager": {"attention": "eager"},
    "swap": {"preemption": "swap", "host_blocks": 60, "num_blocks": 20, "admission": "free-blocks", "block_size": 4},
    "swap pageable": {
        "preemption": "swap",
        "host_blocks": 60,
        "num_blocks": 20,
        "admission": "free-blocks",
        "block_size": 4,
        "kv_copies": "pageable",
    },
    "recompute": {"num_blocks": 20, "admission": "free-blocks", "block_size": 4},
    "n-gram": {"speculate": "ngram", "ngram_min": 1},
    "offload": {"weight_offload": 0.5},
    "offload blocking": {"weight_offload": 0.5, "weight_copies": "blocking"},
    "pageable staging": {"staging": "pageable"},
    "waits for the device": {"step_wait": "device"},
    "waits in every layer": {"layer_boundary": "synchronize"},
    "empties the cache": {"after_step": "empty-cache"},
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_fp32_greedy_gives_the_tokens_of_transformers(llama: tuple[Path, MixedRequests], name: str) -> None:
    folder, requests = llama
    answers = build(folder, **CONFIGURATIONS[name]).generate(requests.prompts, requests.params)
    assert [answer.token_ids for answer in answers] == requests.answers


def test_a_draft_model_gives_the_tokens_of_transformers(llama: tuple[Path, MixedRequests]) -> None:
    folder, requests = llama
    llm = build(folder, speculate=f"draft:{folder}")
    answers = llm.generate(requests.prompts, requests.params)
    assert [answer.token_ids for answer in answers] == requests.answers
    assert llm.core.counters.accepted > 0.9 * llm.core.counters.drafted


def test_decode_replays_graphs_and_overlaps_without_other_waits(llama: tuple[Path, MixedRequests]) -> None:
    folder, _ = llama
    llm = build(folder)
    llm.generate([[5, 6, 7]] * 8, SamplingParams(temperature=0, max_new_tokens=40, ignore_eos=True))
    counters = llm.core.counters
    assert counters.graph_replays >= 38
    assert counters.syncs == counters.steps
    assert counters.steps_overlapped >= counters.steps - 2
    assert counters.pageable_copies == 0


def test_a_decode_step_makes_one_wait_and_one_launch_of_a_graph(llama: tuple[Path, MixedRequests]) -> None:
    folder, _ = llama
    llm = build(folder)
    params = SamplingParams(temperature=0, max_new_tokens=60, ignore_eos=True)
    for _ in range(4):
        llm.core.submit([5, 6, 7], params)
    for _ in range(20):
        llm.core.step()
    torch.cuda.synchronize()
    with torch.profiler.profile(acc_events=True) as profile:
        for _ in range(10):
            llm.core.step()
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["cudaGraphLaunch"] == 10
    assert counts.get("cudaStreamSynchronize", 0) == 0
    assert counts.get("cudaEventSynchronize", 0) <= 10
    names = {event.name for event in profile.events()}
    assert not [name for name in names if "Pageable" in name]


def test_prompts_beside_decodes_are_one_launch_of_a_graph(llama: tuple[Path, MixedRequests]) -> None:
    folder, _ = llama
    llm = build(folder, max_cudagraph_capture_size=64, prefix_caching=False, max_num_batched_tokens=24)
    assert llm.core.counters.graph_captures == 2 + 5  # 16 and 24 tokens; 1, 2, 4, 8 and 16 requests
    llm.core.submit([5, 6, 7], greedy_params(60))
    for _ in range(3):
        llm.core.step()
    for _ in range(4):
        llm.core.submit(list(range(3, 83)), greedy_params(8))
    torch.cuda.synchronize()
    llm.core.counters.reset()
    with torch.profiler.profile(acc_events=True) as profile:
        for _ in range(10):
            llm.core.step()
    counts = {event.key: event.count for event in profile.key_averages()}
    assert llm.core.counters.mixed_graph_replays == counts["prefill"] == 10
    assert counts["cudaGraphLaunch"] == counts["graph_replay"] == 10
    assert counts.get("cudaLaunchKernel", 0) + counts.get("cuLaunchKernelEx", 0) + counts.get("cuLaunchKernel", 0) == 0
    assert llm.core.counters.pageable_copies == 0


def test_memory_of_graphs_is_stated_and_less_than_what_is_set_aside_for_it(llama: tuple[Path, MixedRequests]) -> None:
    folder, _ = llama
    with_mixed = build(folder, max_cudagraph_capture_size=2048).core.footprint.graph_bytes
    without = build(folder, max_cudagraph_capture_size=0).core.footprint.graph_bytes
    assert 0 < without < with_mixed < 1 << 30
    assert build(folder, cuda_graphs=False, max_cudagraph_capture_size=2048).core.footprint.graph_bytes == 0


def test_bf16_graphs_of_mixed_steps_answer_like_eager_steps(llama: tuple[Path, MixedRequests]) -> None:
    """Padding may change how a product is added up, so tokens may differ where two were nearly as probable."""
    folder, requests = llama
    params = [
        SamplingParams(temperature=0, max_new_tokens=length, ignore_eos=True, logprobs=TOP)
        for length in requests.lengths
    ]
    eager = build(folder, dtype="bfloat16", cuda_graphs=False).generate(requests.prompts, params)
    graphed = build(folder, dtype="bfloat16", max_cudagraph_capture_size=2048).generate(requests.prompts, params)
    for ours, theirs in zip(graphed, eager, strict=True):
        pairs = enumerate(zip(ours.token_ids, theirs.token_ids, strict=True))
        for place in [place for place, (mine, other) in pairs if mine != other][:1]:
            assert ours.token_ids[place] in [token for token, _ in theirs.logprobs[place].top]
            assert theirs.token_ids[place] in [token for token, _ in ours.logprobs[place].top]


def test_sampled_requests_repeat_with_their_seed_on_either_device(llama: tuple[Path, MixedRequests]) -> None:
    folder, requests = llama
    params = [SamplingParams(max_new_tokens=10, temperature=1.0, top_k=20, seed=index) for index in range(24)]
    on_gpu = build(folder).generate(requests.prompts, params)
    alone = [build(folder).generate([requests.prompts[3]], params[3])[0]]
    on_cpu = LLM(str(folder), device="cpu", dtype="float32").generate(requests.prompts, params)
    assert alone[0].token_ids == on_gpu[3].token_ids
    assert [answer.token_ids for answer in on_cpu] == [answer.token_ids for answer in on_gpu]


@pytest.mark.parametrize("size", [0, 64, 2048], ids=["no mixed graphs", "some", "all"])
def test_no_kernel_is_compiled_and_no_graph_recorded_while_requests_are_served(
    llama: tuple[Path, MixedRequests], size: int
) -> None:
    triton = pytest.importorskip("triton")
    folder, requests = llama
    options: dict[str, Any] = {"dtype": "bfloat16", "max_cudagraph_capture_size": size}
    llm = build(folder, **options, prefix_caching=True)
    draft = build(folder, **options, speculate="ngram", ngram_min=1)
    num_recorded = llm.core.counters.graph_captures
    compiled: list[str] = []
    triton.knobs.runtime.jit_post_compile_hook = lambda **about: compiled.append(about["repr"])
    try:
        for served in (llm, draft):
            for first in range(0, 24, 7):  # batches of several sizes, the later ones behind cached prompts
                served.generate(requests.prompts[first:], requests.params[first:])
    finally:
        triton.knobs.runtime.jit_post_compile_hook = None
    assert llm.core.counters.prefix_hit_tokens > 0
    assert compiled == []
    assert llm.core.counters.graph_captures == num_recorded
