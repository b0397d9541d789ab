"""Replay of arrival traces through the real scheduler, with a cost model in the place of the device.

Nothing here knows a tensor: a step costs a + b * prefill tokens + c * decode rows + d * KV tokens read, in whole
nanoseconds, and every sampled token is a dummy. Thousands of requests take seconds.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.scheduling.arrivals import Arrival
from engine.scheduling.balancer import Balancer
from engine.scheduling.plan import RequestOutput, StepPlan, StepResult
from engine.scheduling.request import Request
from engine.scheduling.scheduler import Scheduler

STOP_TOKEN = 0
OTHER_TOKEN = 1
FIRST_PROMPT_TOKEN = 2
TOKENS_PER_PREFIX = 1 << 32


@dataclass(frozen=True, slots=True)
class CostModel:
    """What a step takes, in nanoseconds. The defaults are estimates for Llama 2 13 B in float16 on an A100 of 80 GB.

    `base_ns`: the 26 GB of weights are read once, at 1.6 TB/s. `prefill_token_ns`: 26 GFLOP at 60 % of 312 TFLOP/s.
    `decode_row_ns`: sampling and small kernels. `kv_token_ns`: 0.82 MB per token are read at 1.6 TB/s.
    `swapped_block_ns`: 16 tokens over PCIe at 25 GB/s, not hidden behind the step.
    """

    base_ns: int = 16_000_000
    prefill_token_ns: int = 140_000
    decode_row_ns: int = 30_000
    kv_token_ns: int = 500
    swapped_block_ns: int = 520_000

    def step_ns(self, plan: StepPlan) -> int:
        """Duration of a step."""
        decode_rows = sum(item.num_tokens == 1 for item in plan.scheduled)
        prefill_tokens = plan.num_tokens - decode_rows
        kv_tokens = sum(item.start + item.num_tokens for item in plan.scheduled)
        work = prefill_tokens * self.prefill_token_ns + decode_rows * self.decode_row_ns + kv_tokens * self.kv_token_ns
        return self.base_ns + work + (len(plan.swap_out) + len(plan.swap_in)) * self.swapped_block_ns


@dataclass(slots=True)
class Served:
    """One request of the trace and when it was answered; times in microseconds, None where it never was."""

    arrival: Arrival
    first_token_us: int | None = None
    finished_us: int | None = None


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What came of a trace. `progress` holds the end of each step in microseconds and its output tokens."""

    served: tuple[Served, ...]
    progress: tuple[tuple[int, int], ...]
    preemptions: int
    prefix_hit_tokens: int
    scheduled_tokens: int
    steps: int
    peak_blocks: tuple[int, ...]

    def output_tokens_per_s(self, start_us: int, end_us: int) -> float:
        """Output tokens per second between two moments."""
        num_tokens = sum(tokens for at_us, tokens in self.progress if start_us < at_us <= end_us)
        return num_tokens * 1_000_000 / (end_us - start_us)


@dataclass(slots=True)
class Engine:
    """One simulated replica: its scheduler, and the step it is busy with."""

    scheduler: Scheduler
    plan: StepPlan | None = None


def simulate(
    arrivals: Sequence[Arrival],
    make_scheduler: Callable[[], Scheduler],
    cost: CostModel,
    num_replicas: int = 1,
    balancer: Balancer | None = None,
) -> SimulationResult:
    """Serve a trace to its end with `num_replicas` schedulers; without a balancer they take turns."""
    engines = [Engine(make_scheduler()) for _ in range(num_replicas)]
    return Simulation(arrivals, engines, cost, balancer).run()


class Simulation:
    """The clock: arrivals and ends of steps in order of time."""

    def __init__(
        self, arrivals: Sequence[Arrival], engines: Sequence[Engine], cost: CostModel, balancer: Balancer | None
    ) -> None:
        self._engines = engines
        self._cost = cost
        self._balancer = balancer
        self._served = [Served(arrival) for arrival in arrivals]
        self._coming = deque(range(len(arrivals)))
        self._held: deque[int] = deque()
        self._ends: list[tuple[int, int]] = []
        self._now_ns = 0
        self._progress: list[tuple[int, int]] = []

    def run(self) -> SimulationResult:
        """Serve everything."""
        while self._coming or self._held or self._ends or self._num_unfinished():
            self._now_ns = self._next_event_ns()
            self._finish_steps()
            self._take_arrivals()
            self._start_steps()
        return self._result()

    def _num_unfinished(self) -> int:
        return sum(engine.scheduler.num_unfinished for engine in self._engines)

    def _next_event_ns(self) -> int:
        times = [self._served[self._coming[0]].arrival.at_us * 1000] if self._coming else []
        if self._ends:
            times.append(self._ends[0][0])
        if any(engine.plan is None and engine.scheduler.num_unfinished for engine in self._engines):
            times.append(self._now_ns + self._cost.base_ns)  # a batching window may end at any time: look again
        return max(self._now_ns, min(times))

    def _finish_steps(self) -> None:
        while self._ends and self._ends[0][0] <= self._now_ns:
            engine = self._engines[heapq.heappop(self._ends)[1]]
            plan, engine.plan = engine.plan, None
            assert plan is not None
            outputs = engine.scheduler.commit(plan, self._sample(plan))
            self._progress.append((self._now_ns // 1000, sum(len(output.token_ids) for output in outputs)))
            for output in outputs:
                self._record(output)

    def _sample(self, plan: StepPlan) -> StepResult:
        """One token per request that samples: its stop token once its answer is long enough."""
        sampled = {}
        for item in plan.scheduled:
            if item.samples:
                arrival = self._served[item.request_id].arrival
                is_last = item.start + item.num_tokens >= arrival.prompt_tokens + arrival.output_tokens - 1
                sampled[item.request_id] = (STOP_TOKEN if is_last else OTHER_TOKEN,)
        return StepResult(sampled)

    def _record(self, output: RequestOutput) -> None:
        served = self._served[output.request_id]
        if served.first_token_us is None:
            served.first_token_us = self._now_ns // 1000
        if output.finish_reason is not None:
            served.finished_us = self._now_ns // 1000
        if self._balancer is not None:
            self._balancer.advance(output.request_id, len(output.token_ids))
            if output.finish_reason is not None:
                self._balancer.finish(output.request_id)

    def _take_arrivals(self) -> None:
        while self._coming and self._served[self._coming[0]].arrival.at_us * 1000 <= self._now_ns:
            self._held.append(self._coming.popleft())
        while self._held:
            request = _request(self._held[0], self._served[self._held[0]].arrival)
            index = request.request_id % len(self._engines)
            if self._balancer is not None:
                assigned = self._balancer.assign(request)
                if assigned is None:
                    return
                index = assigned
            self._engines[index].scheduler.add(request)
            self._held.popleft()

    def _start_steps(self) -> None:
        for index, engine in enumerate(self._engines):
            if engine.plan is None:
                engine.plan = engine.scheduler.schedule(self._now_ns / 1_000_000_000)
                if engine.plan is not None:
                    heapq.heappush(self._ends, (self._now_ns + self._cost.step_ns(engine.plan), index))

    def _result(self) -> SimulationResult:
        counters = [engine.scheduler.counters for engine in self._engines]
        return SimulationResult(
            served=tuple(self._served),
            progress=tuple(self._progress),
            preemptions=sum(counter.preemptions for counter in counters),
            prefix_hit_tokens=sum(counter.prefix_hit_tokens for counter in counters),
            scheduled_tokens=sum(counter.scheduled_tokens for counter in counters),
            steps=sum(counter.steps for counter in counters),
            peak_blocks=tuple(engine.scheduler.tables.device.peak_used for engine in self._engines),
        )


def _request(request_id: int, arrival: Arrival) -> Request:
    prefix_start = FIRST_PROMPT_TOKEN + arrival.prefix_id * TOKENS_PER_PREFIX
    own_start = -request_id * TOKENS_PER_PREFIX - 1
    own_tokens = arrival.prompt_tokens - arrival.prefix_tokens
    prompt = (*range(prefix_start, prefix_start + arrival.prefix_tokens), *range(own_start - own_tokens, own_start))
    deadline_s = None if arrival.deadline_us is None else arrival.deadline_us / 1_000_000
    return Request(
        request_id, prompt, arrival.max_new_tokens, frozenset({STOP_TOKEN}), arrival.at_us / 1_000_000, deadline_s
    )
