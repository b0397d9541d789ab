"""A step that fails on the device loses no request, no token and no block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from torch import Tensor  # noqa: E402

from engine import LLM, SamplingParams  # noqa: E402
from engine.attention.backend import Attend  # noqa: E402
from engine.attention.registry import create_backend  # noqa: E402
from engine.core import EngineCore  # noqa: E402
from engine.scheduling.request import FinishReason  # noqa: E402
from tests.support.engine_requests import MixedRequests, mixed_requests  # noqa: E402
from tests.support.tiny_models import make_model, save_model  # noqa: E402


class FailingAttention:
    """A real backend whose second layer fails at some passes, like a kernel that crashes or runs out of memory."""

    def __init__(self, backend: Any, fails: Callable[[int, Any], Exception | None]) -> None:
        self._backend = backend
        self._fails = fails
        self.num_passes = 0

    def bind(self, kv: Any, meta: Any) -> Attend:
        attend = self._backend.bind(kv, meta)
        error = self._fails(self.num_passes, meta)
        self.num_passes += 1

        def failing(q_THD: Tensor, k_TND: Tensor, v_TND: Tensor, layer: int) -> Tensor:
            out: Tensor = attend(q_THD, k_TND, v_TND, layer)
            if error is not None and layer == 1:
                raise error
            return out

        return failing


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MixedRequests]:
    model = make_model("llama")
    return save_model(model, tmp_path_factory.mktemp("llama")), mixed_requests(model, 10)


@pytest.fixture
def build(llama: tuple[Path, MixedRequests], monkeypatch: pytest.MonkeyPatch) -> Callable[..., LLM]:
    def with_failures(fails: Callable[[int, Any], Exception | None], **options: Any) -> LLM:
        monkeypatch.setattr(
            "engine.assembly.create_backend", lambda name, spec: FailingAttention(create_backend(name, spec), fails)
        )
        options = {"max_model_len": 80, "block_size": 4, **options}
        return LLM(str(llama[0]), device="cpu", dtype="float32", **options)

    return with_failures


def crash(passes: Sequence[int], error: Exception) -> Callable[[int, Any], Exception | None]:
    return lambda number, meta: error if number in passes else None


OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
LAUNCH_FAILURE = RuntimeError("CUDA error: unspecified launch failure")


def everything_is_free(core: EngineCore) -> bool:
    core.loop.scheduler.check_invariants()
    core.forget_prefixes()
    return core.loop.scheduler.tables.device.num_used == 0


@pytest.mark.parametrize("error", [OUT_OF_MEMORY, LAUNCH_FAILURE], ids=["out of memory", "launch failure"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"overlap": True},
        {"max_num_batched_tokens": 12},
        {"speculate": "ngram", "ngram_min": 1},
        {"num_blocks": 20, "admission": "free-blocks"},
        {"num_blocks": 20, "admission": "free-blocks", "preemption": "swap", "host_blocks": 40},
        {"micro_batch_size": 2},
    ],
    ids=["plain", "overlapped", "chunks", "speculating", "preempting", "swapping", "micro-batches"],
)
def test_all_requests_are_answered_as_if_nothing_had_failed(
    llama: tuple[Path, MixedRequests], build: Callable[..., LLM], options: dict[str, Any], error: Exception
) -> None:
    llm = build(crash((0, 3, 4, 9), error), **options)
    answers = llm.generate(llama[1].prompts, llama[1].params)
    assert [answer.token_ids for answer in answers] == llama[1].answers
    assert llm.core.counters.step_failures >= 3
    assert everything_is_free(llm.core)


def test_sampled_requests_with_penalties_are_answered_as_if_nothing_had_failed(
    llama: tuple[Path, MixedRequests], build: Callable[..., LLM]
) -> None:
    params = [
        SamplingParams(max_new_tokens=8, seed=index, frequency_penalty=0.5, repetition_penalty=1.2)
        for index in range(10)
    ]
    calm = build(crash((), OUT_OF_MEMORY)).generate(llama[1].prompts, params)
    rough = build(crash((0, 2, 5), OUT_OF_MEMORY)).generate(llama[1].prompts, params)
    assert [answer.token_ids for answer in rough] == [answer.token_ids for answer in calm]


def test_a_request_that_always_fails_ends_with_an_error_and_the_others_are_answered(
    llama: tuple[Path, MixedRequests], build: Callable[..., LLM]
) -> None:
    requests = llama[1]
    longest = max(range(10), key=lambda index: len(requests.prompts[index]))
    limit = len(requests.prompts[longest])

    def fails(number: int, meta: Any) -> Exception | None:
        is_there = any(length >= limit for length in meta.seq_lens_B.tolist())
        return RuntimeError("CUDA error: an illegal memory access was encountered") if is_there else None

    short = [index for index in range(10) if len(requests.prompts[index]) + requests.lengths[index] < limit]
    assert 3 < len(short) < 10
    llm = build(fails, prefix_caching=False)
    answers = llm.generate(requests.prompts, requests.params)
    assert [answers[index].token_ids for index in short] == [requests.answers[index] for index in short]
    assert answers[longest].finish_reason is FinishReason.ERROR
    assert "illegal memory access" in (answers[longest].error or "")
    assert everything_is_free(llm.core)


def test_the_engine_answers_new_requests_after_a_failure(
    llama: tuple[Path, MixedRequests], build: Callable[..., LLM]
) -> None:
    llm = build(crash((1,), OUT_OF_MEMORY))
    for _ in range(2):
        answers = llm.generate(llama[1].prompts, llama[1].params)
        assert [answer.token_ids for answer in answers] == llama[1].answers
