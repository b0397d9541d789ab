"""Each factor once on the real small model, against transformers: fp32, greedy, on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from transformers import AutoModelForCausalLM  # noqa: E402

from engine import LLM, SamplingParams  # noqa: E402
from tests.support.engine_requests import transformers_answer  # noqa: E402
from tests.support.real_small_model import small_model_or_skip  # noqa: E402

PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a village by the sea, there lived",
    "Once upon a time, in a village by the sea, a boat",
    "def add(a, b):\n    return",
    "1 2 3 4 1 2 3 4 1 2",
)
LENGTHS = (6, 14, 10, 8, 12)
FACTORS: dict[str, dict[str, Any]] = {
    "continuous": {},
    "single": {"batching": "single"},
    "static": {"batching": "static", "max_num_seqs": 3},
    "dynamic": {"batching": "dynamic", "batch_window_s": 0.0},
    "overlapped": {"overlap": True},
    "contiguous": {"kv": "contiguous"},
    "concat": {"kv": "concat"},
    "offloaded": {
        "preemption": "swap",
        "host_blocks": 40,
        "num_blocks": 9,
        "block_size": 4,
        "admission": "free-blocks",
    },
    "chunks": {"max_num_batched_tokens": 5},
    "preempted": {"num_blocks": 9, "block_size": 4, "admission": "free-blocks"},
    "prefixes": {"block_size": 4, "batching": "single"},
    "eager attention": {"attention": "eager"},
    "n-gram": {"speculate": "ngram", "ngram_min": 1},
    "micro-batches": {"micro_batch_size": 2},
}


@pytest.fixture(scope="module")
def folder() -> Path:
    return small_model_or_skip()


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[tuple[int, ...]]:
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = build(folder).core.vocabulary.tokenizer
    assert tokenizer is not None
    return [
        transformers_answer(model, tuple(tokenizer(prompt)["input_ids"]), length)
        for prompt, length in zip(PROMPTS, LENGTHS, strict=True)
    ]


def build(folder: Path, **options: Any) -> LLM:
    return LLM(str(folder), **{"device": "cpu", "dtype": "float32", "max_model_len": 64, **options})


@pytest.mark.parametrize("name", FACTORS)
def test_tokens_are_those_of_transformers(folder: Path, expected: list[tuple[int, ...]], name: str) -> None:
    llm = build(folder, **FACTORS[name])
    params = [SamplingParams(temperature=0, max_new_tokens=length, ignore_eos=True) for length in LENGTHS]
    answers = llm.generate(PROMPTS, params)
    assert [answer.token_ids for answer in answers] == expected
    counters = llm.core.counters
    happened = {
        "offloaded": counters.swapped_in_blocks,
        "preempted": counters.preemptions,
        "prefixes": counters.prefix_hit_tokens,
        "n-gram": counters.accepted,
        "overlapped": counters.steps_overlapped,
    }
    assert happened.get(name, 1) > 0


def test_the_text_makes_sense(folder: Path) -> None:
    [answer] = build(folder).generate(
        [PROMPTS[0]], SamplingParams(temperature=0, max_new_tokens=12, ignore_eos=True, stop=(".",))
    )
    assert answer.text == " Paris"
