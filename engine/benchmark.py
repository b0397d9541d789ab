"""Measures one engine on one workload: the numbers of `bench` and of the strategy table."""

from __future__ import annotations

import random
import resource
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from engine.llm import Progress, draws
from engine.sampling_params import SamplingParams

if TYPE_CHECKING:
    from engine.llm import LLM, Answer

SCHEMA = "engine.bench/1"
_NUM_WARM_UP = 2


@dataclass(frozen=True, slots=True)
class Workload:
    """Random prompts.

    Attributes:
        num_requests: how many.
        prompt_tokens: shortest and longest prompt.
        output_tokens: shortest and longest answer; the end of sequence is ignored.
        shared_tokens: tokens at the beginning that all prompts have in common, beside `prompt_tokens`.
        requests_per_s: mean rate of arrival (exponential gaps); 0 is all at once.
        seed: of lengths, tokens and gaps.
    """

    num_requests: int = 64
    prompt_tokens: tuple[int, int] = (16, 256)
    output_tokens: tuple[int, int] = (16, 128)
    shared_tokens: int = 0
    requests_per_s: float = 0.0
    seed: int = 0

    def prompts(self, vocab_size: int) -> list[tuple[tuple[int, ...], int]]:
        """Prompts and lengths of answers."""
        # Not for secrets: a workload has to be the same again.
        numbers = random.Random(self.seed)  # noqa: S311
        lowest = min(3, vocab_size - 1)
        shared = tuple(numbers.randint(lowest, vocab_size - 1) for _ in range(self.shared_tokens))
        requests = []
        for _ in range(self.num_requests):
            own = tuple(numbers.randint(lowest, vocab_size - 1) for _ in range(numbers.randint(*self.prompt_tokens)))
            requests.append((shared + own, numbers.randint(*self.output_tokens)))
        return requests

    def arrivals_s(self) -> list[float]:
        """Moment of arrival of each request, from the start."""
        if self.requests_per_s == 0:
            return [0.0] * self.num_requests
        numbers = random.Random(self.seed + 1)  # noqa: S311  see above
        gaps = [numbers.expovariate(self.requests_per_s) for _ in range(self.num_requests)]
        return [float(moment) for moment in np.cumsum(gaps)]


@dataclass(frozen=True, slots=True)
class TimedRequest:
    """A prompt, how it is answered, and when it arrives (seconds from the start)."""

    prompt: str | tuple[int, ...]
    params: SamplingParams
    arrival_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run.

    Attributes:
        answers: of all requests, in order.
        prompt_tokens: tokens of the prompts.
        seconds: wall time of the whole job, prompts included, load and warm-up not.
        cpu_seconds: time of the process on all cores.
        peak_memory_bytes: of the GPU as torch sees it; without one the peak resident size of the process.
        counters: what was counted.
        weight_bytes: of the weights on the device, and all that a draft model takes.
        graph_bytes: by which recording the CUDA graphs has reduced the free memory of the device.
        kv_reserved_bytes: taken for KV when the engine was built.
        kv_peak_bytes: KV that requests held at most.
    """

    answers: list[Answer]
    prompt_tokens: int
    seconds: float
    cpu_seconds: float
    peak_memory_bytes: int
    counters: dict[str, int]
    weight_bytes: int
    graph_bytes: int
    kv_reserved_bytes: int
    kv_peak_bytes: int

    @property
    def output_tokens(self) -> int:
        """Generated tokens."""
        return sum(len(answer.token_ids) for answer in self.answers)

    def as_json(self) -> dict[str, Any]:
        """The object that `bench` prints."""
        itl_s = [gap for answer in self.answers for gap in answer.itl_s]
        ttft_s = [answer.ttft_s for answer in self.answers if answer.ttft_s is not None]
        return {
            "schema": SCHEMA,
            "output_tokens": self.output_tokens,
            "prompt_tokens": self.prompt_tokens,
            "seconds": self.seconds,
            "output_tokens_per_s": self.output_tokens / self.seconds,
            "output_tokens_per_cpu_s": self.output_tokens / max(self.cpu_seconds, 1e-9),
            "ttft_s": _percentiles(ttft_s),
            "itl_s": _percentiles(itl_s),
            "peak_memory_bytes": self.peak_memory_bytes,
            "weight_bytes": self.weight_bytes,
            "graph_bytes": self.graph_bytes,
            "kv_reserved_bytes": self.kv_reserved_bytes,
            "kv_peak_bytes": self.kv_peak_bytes,
            "counters": self.counters,
            "derived": derived(self.counters, self.prompt_tokens),
        }


def derived(counters: dict[str, int], prompt_tokens: int) -> dict[str, float | None]:
    """Ratios of counters; None where nothing was counted."""
    return {
        "pieces_per_step": _ratio(counters["pieces"], counters["steps"]),
        "syncs_per_step": _ratio(counters["syncs"], counters["steps"]),
        "graph_share": _ratio(counters["graph_replays"], counters["pieces"]),
        "graph_padding_tokens_per_replay": _ratio(counters["graph_padding_tokens"], counters["mixed_graph_replays"]),
        "decode_tokens_per_step": _ratio(counters["decode_tokens"], counters["steps"]),
        "kv_utilisation": _ratio(counters["kv_slots_filled_sum"], counters["kv_slots_allocated_sum"]),
        "prefix_hit_share": _ratio(counters["prefix_hit_tokens"], prompt_tokens),
        "acceptance": _ratio(counters["accepted"], counters["drafted"]),
        "tokens_per_verification": _ratio(counters["accepted"] + counters["verifications"], counters["verifications"]),
        "schedule_ms_per_step": _ratio(counters["schedule_ns"], counters["steps"] * 1_000_000),
    }


def timed_requests(workload: Workload, vocab_size: int) -> list[TimedRequest]:
    """The requests of a random workload, greedy."""
    return [
        TimedRequest(prompt, SamplingParams(max_new_tokens=length, temperature=0, ignore_eos=True), arrival_s)
        for (prompt, length), arrival_s in zip(workload.prompts(vocab_size), workload.arrivals_s(), strict=True)
    ]


def measure(
    llm: LLM, requests: Sequence[TimedRequest], capture: AbstractContextManager[None] | None = None
) -> Measurement:
    """Run a workload once, after a warm-up with its first requests that leaves no prefix behind.

    Args:
        llm: engine to measure.
        requests: workload.
        capture: entered once the warm-up is over: a profiler that records a part of the run.
    """
    encoded = [_encode(llm, request) for request in requests]
    _run(llm, encoded[:_NUM_WARM_UP])
    llm.core.forget_prefixes()
    counters = llm.core.counters
    counters.reset()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    cpu_s, started_s = time.process_time(), time.perf_counter()
    with capture or nullcontext():
        answers = _run(llm, encoded)
    seconds, cpu_seconds = time.perf_counter() - started_s, time.process_time() - cpu_s
    return Measurement(
        answers,
        prompt_tokens=sum(len(prompt) * request.params.n for prompt, request in encoded),
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        peak_memory_bytes=_peak_memory_bytes(),
        counters=counters.as_dict(),
        weight_bytes=llm.core.footprint.weight_bytes + llm.core.footprint.draft_bytes,
        graph_bytes=llm.core.footprint.graph_bytes,
        kv_reserved_bytes=llm.core.footprint.kv_reserved_bytes,
        kv_peak_bytes=llm.core.footprint.kv_peak_bytes(counters),
    )


def _encode(llm: LLM, request: TimedRequest) -> tuple[list[int], TimedRequest]:
    prompt = request.prompt
    return (llm.core.encode(prompt) if isinstance(prompt, str) else list(prompt)), request


def _run(llm: LLM, requests: Sequence[tuple[list[int], TimedRequest]]) -> list[Answer]:
    """Submit each request when it is due, and turn the loop until all have ended."""
    waiting = deque(sorted(requests, key=lambda pair: pair[1].arrival_s))
    progress: dict[int, Progress] = {}
    order: dict[int, list[int]] = {}
    started_s = time.monotonic()
    while waiting or not llm.core.is_idle:
        while waiting and started_s + waiting[0][1].arrival_s <= time.monotonic():
            prompt, request = waiting.popleft()
            order[id(request)] = _submit(llm, prompt, request, progress, started_s)
        if llm.core.is_idle:
            time.sleep(max(0.0, started_s + waiting[0][1].arrival_s - time.monotonic()))
        llm.advance(progress)
    return [progress[request_id].answer() for _, request in requests for request_id in order[id(request)]]


def _submit(
    llm: LLM, prompt: list[int], request: TimedRequest, progress: dict[int, Progress], started_s: float
) -> list[int]:
    request_ids = [llm.core.submit(prompt, params) for params in draws(request.params)]
    progress.update({request_id: Progress(started_s + request.arrival_s) for request_id in request_ids})
    return request_ids


def _percentiles(values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {"p50": None, "p99": None}
    middle, high = np.percentile(values, (50, 99))
    return {"p50": float(middle), "p99": float(high)}


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _peak_memory_bytes() -> int:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
