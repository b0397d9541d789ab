"""Steps that replay graphs give the tokens of transformers: prompts, chunks, decodes and drafts, alone and mixed.

On the CPU a recorded pass is run again instead of being replayed (`tests.support.replayed_graphs`); the same options
with CUDA graphs are in `test_gpu.py`.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from engine import LLM, EngineConfig, SamplingParams  # noqa: E402
from tests.support.engine_requests import MixedRequests, mixed_requests  # noqa: E402
from tests.support.replayed_graphs import replay_graphs  # noqa: E402
from tests.support.tiny_models import make_model, save_model  # noqa: E402

STRATEGIES: dict[str, dict[str, Any]] = {
    "single": {"batching": "single"},
    "static": {"batching": "static", "max_num_seqs": 4},
    "continuous": {},
    "overlapped": {"overlap": True},
    "micro-batches": {"overlap": True, "micro_batch_size": 3},
    "n-gram": {"speculate": "ngram", "ngram_min": 1},
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "paged": {"block_size": 4},
    "preempting": {"block_size": 4, "num_blocks": 20, "admission": "free-blocks"},
    "contiguous": {"kv": "contiguous"},
}
CHUNKS: dict[str, dict[str, Any]] = {"whole prompts": {}, "chunks": {"max_num_batched_tokens": 12}}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MixedRequests]:
    model = make_model("llama")
    return save_model(model, tmp_path_factory.mktemp("llama")), mixed_requests(model, 8)


def build(folder: Path, **options: Any) -> LLM:
    defaults = {"device": "cpu", "dtype": "float32", "max_model_len": 80, "max_num_seqs": 8}
    config = EngineConfig(str(folder), **{**defaults, "max_cudagraph_capture_size": 224, **options})
    llm = LLM.from_config(config)
    replay_graphs(llm, config)
    return llm


@pytest.mark.parametrize(("layout", "chunk"), list(product(LAYOUTS, CHUNKS)))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_combination_gives_the_tokens_of_transformers(
    llama: tuple[Path, MixedRequests], strategy: str, layout: str, chunk: str
) -> None:
    folder, requests = llama
    llm = build(folder, **STRATEGIES[strategy], **LAYOUTS[layout], **CHUNKS[chunk])
    answers = llm.generate(requests.prompts, requests.params)
    assert [answer.token_ids for answer in answers] == requests.answers
    llm.core.loop.scheduler.check_invariants()
    counters = llm.core.counters
    assert counters.mixed_graph_replays > 0
    if chunk == "chunks":
        assert counters.graph_replays == counters.pieces


@pytest.mark.parametrize("family", ["mistral", "qwen3_moe"])
def test_windows_and_experts_pass_over_the_padding(family: str, tmp_path: Path) -> None:
    model = make_model(family)
    requests = mixed_requests(model, 6)
    llm = build(save_model(model, tmp_path), max_num_batched_tokens=40)
    answers = llm.generate(requests.prompts, requests.params)
    assert [answer.token_ids for answer in answers] == requests.answers
    assert llm.core.counters.graph_padding_tokens > 0


def test_the_kernels_of_the_gpu_pass_over_the_padding(llama: tuple[Path, MixedRequests]) -> None:
    pytest.importorskip("triton", reason="needs the package triton")
    folder, _ = llama
    requests = mixed_requests(make_model("llama"), 2, longest_prompt=6, longest_answer=2, num_shared=18)
    options: dict[str, Any] = {"attention": "triton_paged", "max_model_len": 32, "max_num_seqs": 2}
    llm = build(folder, **options, block_size=4, max_num_batched_tokens=20)
    answers = llm.generate(requests.prompts, requests.params)
    assert [answer.token_ids for answer in answers] == requests.answers
    assert llm.core.counters.graph_replays == llm.core.counters.pieces


def test_sampled_requests_draw_the_same_tokens_with_and_without_graphs(llama: tuple[Path, MixedRequests]) -> None:
    folder, requests = llama
    params = [
        SamplingParams(max_new_tokens=8, temperature=1.0, top_k=20, seed=index, repetition_penalty=1.2, logprobs=2)
        for index in range(8)
    ]
    graphed = build(folder, overlap=True, max_num_batched_tokens=40).generate(requests.prompts, params)
    eager = LLM(str(folder), device="cpu", dtype="float32", max_model_len=80).generate(requests.prompts, params)
    assert [answer.token_ids for answer in graphed] == [answer.token_ids for answer in eager]


def test_verification_beside_prompts_gives_the_same_tokens(llama: tuple[Path, MixedRequests]) -> None:
    folder, requests = llama
    llm = build(folder, speculate=f"draft:{folder}")
    answers = llm.generate(requests.prompts, requests.params)
    assert [answer.token_ids for answer in answers] == requests.answers
    assert llm.core.counters.accepted > 0.9 * llm.core.counters.drafted
