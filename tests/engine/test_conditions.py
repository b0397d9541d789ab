"""Each condition is proven by what the engine counts, sick against cured, not by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from engine import LLM, EngineConfig, SamplingParams  # noqa: E402
from engine.benchmark import Measurement, TimedRequest, measure  # noqa: E402
from engine.conditions import CONDITIONS, find_condition  # noqa: E402
from engine.errors import ConfigError  # noqa: E402
from tests.support.tiny_models import make_model, save_model  # noqa: E402

Count = Callable[[Measurement], float]


def count(name: str) -> Count:
    return lambda run: run.counters[name]


def per_step(name: str) -> Count:
    return lambda run: run.counters[name] / run.counters["steps"]


PROOFS: dict[str, Count] = {
    "unpaged-kv": count("kv_bytes_copied"),
    "contiguous-kv": lambda run: run.counters["kv_slots_allocated_sum"] / run.counters["kv_slots_filled_sum"],
    "micro-batch-small": per_step("pieces"),
    "sync-every-layer": count("layer_syncs"),
    "blocking-step-wait": lambda run: -run.counters["steps_overlapped"],
    "static-batching": count("steps"),
    "single-request": count("steps"),
    "fp32": lambda run: run.weight_bytes,
    "empty-cache-every-step": count("cache_flushes"),
    "slow-scheduler": count("audits"),
    "low-acceptance-draft": lambda run: run.counters["drafted"] - run.counters["accepted"],
    "slow-gating": count("gating_rounds"),
    "moe-expert-loop": count("expert_visits"),
    "prefix-cache-off": lambda run: -run.counters["prefix_hit_tokens"],
    "preemption-thrash": count("preemptions"),
    "pageable-copies": lambda run: run.counters["pageable_copies"],
    "prefill-blocks-decode": count("step_tokens_peak"),
}
# Told apart by the kernels that run, on a GPU: tests/engine/test_gpu.py.
SHOWN_ON_A_GPU = {"no-cuda-graphs", "pageable-staging", "eager-attention", "pageable-copies"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        family: save_model(make_model(family, max_position_embeddings=1024), tmp_path_factory.mktemp(family))
        for family in ("llama", "mixtral")
    }


def run(folder: Path, name: str, is_cured: bool) -> Measurement:
    extra: dict[str, Any] = {"num_blocks": 40} if name == "preemption-thrash" else {}
    base = EngineConfig(
        str(folder), device="cpu", dtype="float32", max_model_len=400, max_num_seqs=6, block_size=8, **extra
    )
    llm = LLM.from_config(find_condition(name).apply(base, is_cured))
    shared = tuple(3 + (7 * index) % 150 for index in range(40))
    requests = [
        TimedRequest(
            (*shared, *(3 + (index * step) % 150 for step in range(6 + 20 * index))),
            SamplingParams(temperature=0, max_new_tokens=10 + 6 * (index % 5), ignore_eos=True),
        )
        for index in range(9)
    ]
    return measure(llm, requests)


@pytest.mark.parametrize("name", sorted(set(PROOFS) - SHOWN_ON_A_GPU))
def test_the_sick_run_counts_more_of_its_problem_than_the_cured_one(folders: dict[str, Path], name: str) -> None:
    folder = folders["mixtral" if name in ("slow-gating", "moe-expert-loop") else "llama"]
    sick, cured = run(folder, name, is_cured=False), run(folder, name, is_cured=True)
    assert PROOFS[name](sick) > PROOFS[name](cured)
    assert sick.output_tokens == cured.output_tokens


@pytest.mark.parametrize("name", sorted(set(CONDITIONS) - {"fp32"}))
def test_the_problem_changes_how_tokens_are_made_and_not_which(folders: dict[str, Path], name: str) -> None:
    sick, cured = run(folders["llama"], name, is_cured=False), run(folders["llama"], name, is_cured=True)
    assert [answer.token_ids for answer in sick.answers] == [answer.token_ids for answer in cured.answers]


def test_every_condition_has_a_proof() -> None:
    assert set(PROOFS) | SHOWN_ON_A_GPU == set(CONDITIONS)


def test_conditions_that_are_documented_exist() -> None:
    documented = {
        "unpaged-kv",
        "micro-batch-small",
        "sync-every-layer",
        "no-cuda-graphs",
        "pageable-copies",
        "static-batching",
        "eager-attention",
        "fp32",
        "empty-cache-every-step",
        "slow-scheduler",
        "low-acceptance-draft",
        "slow-gating",
    }
    assert documented <= set(CONDITIONS)


@pytest.mark.parametrize("name", sorted(CONDITIONS))
def test_sick_and_cured_differ_in_the_same_options(name: str) -> None:
    condition = CONDITIONS[name]
    common = set(condition.sick) & set(condition.cure)
    assert {option for option in common if condition.sick[option] != condition.cure[option]}
    assert set(condition.cure) <= set(condition.sick)


def test_an_unknown_condition_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="unknown condition 'slow'; known: blocking-step-wait, contiguous-kv"):
        find_condition("slow")
