"""A scheduler together with a stand-in for the device that remembers what each block holds.

The device "writes" the token and its position into the slot of a block and, before it samples, reads back every slot of
the request. Whatever the scheduler gets wrong about blocks shows up as a slot that holds the wrong thing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.errors import StepError
from engine.scheduling.admission import AdmissionRule, ProjectedPeak
from engine.scheduling.batching import BatchingPolicy, ContinuousBatch
from engine.scheduling.plan import RequestOutput, ScheduledRequest, StepPlan, StepResult
from engine.scheduling.request import FinishReason, Request, RequestState
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.scheduler_config import SchedulerConfig
from engine.scheduling.waiting_queue import ArrivalQueue, WaitingQueue

STOP_TOKEN = 0


def make_config(**changes: object) -> SchedulerConfig:
    """A small pool: 16 blocks of 4 tokens."""
    sizes: dict[str, object] = {
        "num_blocks": 16, "block_size": 4, "max_len": 64, "max_running": 8, "max_step_tokens": 32,
    }  # fmt: skip
    return SchedulerConfig(**(sizes | changes))  # type: ignore[arg-type]


def next_token(prefix: list[int]) -> int:
    """The token that this world's model continues a prefix with: any change of the prefix changes what follows."""
    state = 17
    for token_id in prefix:
        state = (state * 31 + token_id + 7) % 1009
    return state % 23


def full_answer(request: Request) -> list[int]:
    """What the model answers when nothing disturbs it."""
    tokens = list(request.prompt_token_ids)
    for _ in range(request.max_tokens - len(tokens)):
        tokens.append(next_token(tokens))
        if tokens[-1] in request.stop_token_ids:
            break
    return tokens[len(request.prompt_token_ids) :]


class Device:
    """KV memory as lists of (token, position), and the buffer of last sampled tokens."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._block_size = config.block_size
        self._device = [[(-1, -1)] * config.block_size for _ in range(config.num_blocks)]
        self._host = [[(-1, -1)] * config.block_size for _ in range(config.num_host_blocks)]
        self._last_token: dict[int, int] = {}

    def run(self, plan: StepPlan) -> StepResult:
        """Copy, write and sample in the order the plan promises."""
        for host_block, device_block in plan.swap_in:
            self._device[device_block] = list(self._host[host_block])
        sampled = {}
        for item in plan.scheduled:
            tokens = self._forward(item)
            if item.samples:
                sampled[item.request_id] = self._verify(item, tokens)
                self._last_token[item.request_id] = sampled[item.request_id][-1]
        # Last on purpose: copies to the host may be as late as the commit, so their source must still be intact.
        for device_block, host_block in plan.swap_out:
            self._host[host_block] = list(self._device[device_block])
        return StepResult(sampled)

    def spoil(self, plan: StepPlan) -> None:
        """Make garbage of everything that a step wrote."""
        garbage = (-2, -2)
        for item in plan.scheduled:
            self._last_token.pop(item.request_id, None)
            for position in range(item.start, item.start + item.num_tokens):
                self._device[item.block_ids[position // self._block_size]][position % self._block_size] = garbage
        for _, device_block in plan.swap_in:
            self._device[device_block] = [garbage] * self._block_size
        for _, host_block in plan.swap_out:
            self._host[host_block] = [garbage] * self._block_size

    def _forward(self, item: ScheduledRequest) -> list[int]:
        fed = list(item.token_ids)
        if item.takes_last_token:
            fed.append(self._last_token[item.request_id])
        assert len(fed) == item.num_tokens >= 1
        for position, token_id in enumerate(fed, start=item.start):
            self._device[item.block_ids[position // self._block_size]][position % self._block_size] = (
                token_id,
                position,
            )
        return self._read(item)

    def _read(self, item: ScheduledRequest) -> list[int]:
        tokens = []
        for position in range(item.start + item.num_tokens):
            block = self._device[item.block_ids[position // self._block_size]]
            token_id, written_as = block[position % self._block_size]
            assert written_as == position, f"request {item.request_id} reads a foreign slot at {position}"
            tokens.append(token_id)
        return tokens

    def _verify(self, item: ScheduledRequest, tokens: list[int]) -> tuple[int, ...]:
        """Accepted drafts, then the model's own token."""
        accepted: list[int] = []
        known = tokens[: len(tokens) - len(item.draft_token_ids)]
        for draft in item.draft_token_ids:
            if draft != next_token(known + accepted):
                break
            accepted.append(draft)
        return (*accepted, next_token(known + accepted))


@dataclass
class Answer:
    """What came out for one request."""

    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    is_cut_short: bool = False


class World:
    """Runs a scheduler against the device, with any number of steps in flight."""

    def __init__(
        self,
        config: SchedulerConfig,
        batching: BatchingPolicy | None = None,
        admission: AdmissionRule | None = None,
        queue: WaitingQueue | None = None,
    ) -> None:
        self.config = config
        self.scheduler = Scheduler(
            config,
            batching or ContinuousBatch(config.max_step_tokens),
            admission or ProjectedPeak(),
            ArrivalQueue() if queue is None else queue,  # an empty queue is false
        )
        self.device = Device(config)
        self.requests: dict[int, Request] = {}
        self.answers: dict[int, Answer] = {}
        self.in_flight: deque[tuple[StepPlan, StepResult]] = deque()
        self.plans: list[StepPlan] = []
        self.now_s = 0.0

    def add(self, request: Request) -> Request:
        """Take in a request."""
        self.scheduler.add(request)
        self.requests[request.request_id] = request
        self.answers[request.request_id] = Answer()
        return request

    def launch(self) -> StepPlan | None:
        """Schedule a step and run it at once; its result stays in flight until `land`."""
        plan = self.scheduler.schedule(self.now_s)
        if plan is not None:
            self.plans.append(plan)
            self.in_flight.append((plan, self.device.run(plan)))
        return plan

    def land(self) -> list[RequestOutput]:
        """Commit the oldest step in flight."""
        plan, result = self.in_flight.popleft()
        return self._record(self.scheduler.commit(plan, result))

    def fail(self, index: int = 0) -> list[RequestOutput]:
        """Roll back the `index`-th step in flight and those after it; what they wrote is garbage."""
        undone = [plan for plan, _ in self.in_flight][index:]
        for plan in undone:
            self.device.spoil(plan)
            self.in_flight.pop()
        return self._record(self.scheduler.rollback(undone[0], StepError("injected failure")))

    def finish(self, request_id: int, reason: FinishReason = FinishReason.ABORT) -> None:
        """End a request from outside."""
        output = self.scheduler.finish(request_id, reason)
        if output is not None:
            self._record([output])
            self.answers[request_id].is_cut_short = True

    def step(self) -> StepPlan | None:
        """One step without overlap."""
        plan = self.launch()
        if plan is not None:
            self.land()
        return plan

    def run_to_end(self, num_ahead: int = 0, after_commit: Callable[[World], None] | None = None) -> None:
        """Work until nothing is left, planning `num_ahead` steps ahead."""
        while self.scheduler.num_unfinished or self.in_flight:
            plan = self.launch()
            if plan is None and not self.in_flight:
                raise AssertionError(f"{self.scheduler.num_unfinished} requests are stuck")
            if plan is None or len(self.in_flight) > num_ahead:
                self.land()
                if after_commit is not None:
                    after_commit(self)

    def check(self) -> None:
        """Every block is owned exactly by those who list it, and nothing in flight lies in a free block."""
        self.scheduler.check_invariants()
        for request in self.requests.values():
            if request.num_steps_in_flight == 0:
                assert not request.block_ids or request.state is RequestState.RUNNING
                assert not request.host_block_ids or request.state is RequestState.SWAPPED
        tables = self.scheduler.tables
        for plan, _ in self.in_flight:
            for item in plan.scheduled:
                assert all(tables.device.num_owners(block_id) > 0 for block_id in item.block_ids)
            for device_block, host_block in (*plan.swap_out, *((d, h) for h, d in plan.swap_in)):
                assert tables.device.num_owners(device_block) > 0
                assert tables.host.num_owners(host_block) > 0

    def check_answers(self) -> None:
        """Each request has its undisturbed answer, or the beginning of it where it was cut short or given up."""
        for request_id, answer in self.answers.items():
            expected = full_answer(self.requests[request_id])
            if answer.is_cut_short or answer.finish_reason is FinishReason.ERROR:
                expected = expected[: len(answer.token_ids)]
            assert answer.token_ids == expected

    def _record(self, outputs: list[RequestOutput]) -> list[RequestOutput]:
        for output in outputs:
            answer = self.answers[output.request_id]
            assert answer.finish_reason is None, f"request {output.request_id} speaks after its end"
            answer.token_ids += output.token_ids
            answer.finish_reason = output.finish_reason
        return outputs
