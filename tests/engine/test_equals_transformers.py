"""The engine gives the tokens that transformers gives, whatever its strategy, KV layout, chunk size and backend."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from tests.support.engine_requests import MixedRequests, mixed_requests, run  # noqa: E402
from tests.support.tiny_models import make_model, save_model  # noqa: E402

STRATEGIES: dict[str, dict[str, Any]] = {
    "single": {"batching": "single"},
    "static": {"batching": "static", "max_num_seqs": 4},
    "dynamic": {"batching": "dynamic", "max_num_seqs": 4, "batch_window_s": 0.0},
    "continuous": {"batching": "continuous"},
    "overlapped": {"batching": "continuous", "overlap": True},
    "n-gram": {"speculate": "ngram", "ngram_min": 1},
    "draft model": {"speculate": "draft"},
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "paged": {"kv": "paged", "block_size": 4},
    "contiguous": {"kv": "contiguous"},
    "concat": {"kv": "concat"},
    "offloaded": {"kv": "paged", "block_size": 4, "preemption": "swap", "host_blocks": 40},
}
CHUNKS = {"whole prompts": 2048, "chunks": 12}
POOLS: dict[str, dict[str, Any]] = {"roomy": {}, "preempting": {"admission": "free-blocks"}}
# Blocks in a pool that is too small for the requests below at once, and large enough for the longest of them.
SCARCE = {"paged": 20, "offloaded": 20, "contiguous": 2, "concat": 2}


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(make_model("llama", seed=7, num_hidden_layers=1), tmp_path_factory.mktemp("draft"))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MixedRequests]:
    model = make_model("llama")
    return save_model(model, tmp_path_factory.mktemp("llama")), mixed_requests(model, 8)


@pytest.mark.parametrize("prefix_caching", [True, False], ids=["prefixes", "no prefixes"])
@pytest.mark.parametrize("attention", ["torch_ref", "eager"])
@pytest.mark.parametrize(("layout", "chunk", "pool"), list(product(LAYOUTS, CHUNKS, POOLS)))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_combination_gives_the_tokens_of_transformers(  # noqa: PLR0917
    llama: tuple[Path, MixedRequests],
    draft: Path,
    strategy: str,
    layout: str,
    chunk: str,
    pool: str,
    attention: str,
    prefix_caching: bool,
) -> None:
    folder, requests = llama
    options = STRATEGIES[strategy] | LAYOUTS[layout] | POOLS[pool]
    if options.get("speculate") == "draft":
        options |= {"speculate": f"draft:{draft}"}
    if pool == "preempting":
        options |= {"num_blocks": SCARCE[layout]} if layout != "concat" else {"max_num_seqs": SCARCE[layout]}
    answers, llm = run(
        folder,
        requests,
        max_model_len=80,
        max_num_batched_tokens=CHUNKS[chunk],
        attention=attention,
        prefix_caching=prefix_caching,
        **options,
    )
    assert answers == requests.answers
    llm.core.loop.scheduler.check_invariants()


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_64_mixed_requests_give_the_tokens_of_transformers(family: str, tmp_path: Path) -> None:
    model = make_model(family)
    requests = mixed_requests(model, 64, longest_prompt=100, longest_answer=24)
    answers, llm = run(save_model(model, tmp_path), requests, max_num_batched_tokens=64, block_size=8)
    assert answers == requests.answers
    assert llm.core.counters.prefix_hit_tokens > 0
    assert llm.core.counters.steps < sum(requests.lengths)


def test_preemption_happens_in_the_small_pools(llama: tuple[Path, MixedRequests]) -> None:
    folder, requests = llama
    options = {**LAYOUTS["paged"], **POOLS["preempting"], "num_blocks": SCARCE["paged"], "max_model_len": 80}
    _, llm = run(folder, requests, **options)
    assert llm.core.counters.preemptions > 0


def test_swapped_blocks_travel_to_the_host_and_back(llama: tuple[Path, MixedRequests]) -> None:
    folder, requests = llama
    options = {**LAYOUTS["offloaded"], **POOLS["preempting"], "num_blocks": SCARCE["offloaded"], "max_model_len": 80}
    _, llm = run(folder, requests, **options)
    assert llm.core.counters.swapped_out_blocks > 0
    assert llm.core.counters.swapped_in_blocks == llm.core.counters.swapped_out_blocks
