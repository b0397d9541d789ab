"""Whatever happens, in whatever order: no block leaks or is freed twice or read while free, and no answer changes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from engine.scheduling.admission import AdmissionRule, FullLength, PresentlyFree, ProjectedPeak
from engine.scheduling.batching import BatchingPolicy, ContinuousBatch, DynamicWindow, SingleRequest, StaticBatch
from engine.scheduling.deadline_queue import DeadlineQueue
from engine.scheduling.request import FinishReason, Request
from engine.scheduling.scheduler_config import Preemption, SchedulerConfig
from engine.scheduling.waiting_queue import ArrivalQueue
from tests.support.scheduler_world import STOP_TOKEN, World, make_config, next_token

MAX_IN_FLIGHT = 3
ADMISSIONS: list[AdmissionRule] = [PresentlyFree(), FullLength(), ProjectedPeak(), ProjectedPeak(reserve_blocks=2)]
BATCHINGS: list[BatchingPolicy] = [
    SingleRequest(),
    StaticBatch(size=3),
    DynamicWindow(size=3, window_s=2.0),
    ContinuousBatch(max_step_tokens=8),
]


@dataclass(frozen=True)
class Setting:
    """One way to configure the scheduler."""

    config: SchedulerConfig
    batching: BatchingPolicy
    admission: AdmissionRule
    by_deadline: bool


def settings_of_scheduler() -> st.SearchStrategy[Setting]:
    configs = st.builds(
        make_config,
        num_blocks=st.integers(5, 12),
        block_size=st.sampled_from([1, 2, 3]),
        max_len=st.sampled_from([20, 64]),
        max_running=st.integers(1, 6),
        max_step_tokens=st.integers(1, 16),
        num_host_blocks=st.sampled_from([0, 3, 20]),
        preemption=st.sampled_from(Preemption),
        prefix_caching=st.booleans(),
        max_draft_tokens=st.sampled_from([0, 3]),
        max_cold_copies=st.sampled_from([0, 1, 4]),
    )
    return st.builds(Setting, configs, st.sampled_from(BATCHINGS), st.sampled_from(ADMISSIONS), st.booleans())


def drafts_of(request: Request, are_right: list[bool]) -> list[int]:
    """Drafts after the known tokens of a request, each as the model would say it or off by one."""
    drafts: list[int] = []
    for is_right in are_right:
        drafts.append(next_token(request.token_ids + drafts) + (not is_right))
    return drafts


class AnythingHappens(RuleBasedStateMachine):
    """Requests arrive, leave and fail at random while up to three steps are in flight."""

    @initialize(setting=settings_of_scheduler())
    def make_any_world(self, setting: Setting) -> None:
        self.make_world(setting)

    def make_world(self, setting: Setting) -> None:
        queue = DeadlineQueue(patience_s=20.0) if setting.by_deadline else ArrivalQueue()
        self.world = World(setting.config, setting.batching, setting.admission, queue)
        self.next_id = 0

    @rule(
        # Few different tokens, so that prompts share prefixes often.
        prompt=st.lists(st.integers(1, 2), min_size=1, max_size=18),
        max_new_tokens=st.integers(1, 12),
        expected=st.none() | st.integers(1, 4),
        deadline_s=st.none() | st.integers(0, 40).map(float),
    )
    def arrive(self, prompt: list[int], max_new_tokens: int, expected: int | None, deadline_s: float | None) -> None:
        config = self.world.config
        if len(prompt) < min(config.max_len, config.num_blocks * config.block_size):
            stops = frozenset({STOP_TOKEN})
            request = Request(
                self.next_id, tuple(prompt), max_new_tokens, stops, self.world.now_s, deadline_s, expected
            )
            self.world.add(request)
            self.next_id += 1

    @precondition(lambda self: len(self.world.in_flight) < MAX_IN_FLIGHT)
    @rule()
    def launch(self) -> None:
        self.world.now_s += 1.0
        self.world.launch()

    @precondition(lambda self: self.world.in_flight)
    @rule(are_right=st.lists(st.booleans(), max_size=4))
    def land(self, are_right: list[bool]) -> None:
        self.world.land()
        for request in self.world.scheduler.running:
            self.world.scheduler.propose(request.request_id, drafts_of(request, are_right))

    @precondition(lambda self: self.world.requests)
    @rule(num_steps=st.integers(2, 8))
    def work(self, num_steps: int) -> None:
        """Let the requests grow for a while, so that they crowd each other out."""
        for _ in range(num_steps):
            self.launch()
            self.world.check()
            if len(self.world.in_flight) > 1:
                self.world.land()

    @precondition(lambda self: self.world.in_flight)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        self.world.fail(data.draw(st.integers(0, len(self.world.in_flight) - 1), label="step in flight"))

    @precondition(lambda self: self.world.config.num_host_blocks > 0 and len(self.world.in_flight) < MAX_IN_FLIGHT)
    @rule()
    def fail_a_step_with_copies(self) -> None:
        """Work until a step copies blocks to the host or back, and fail that one."""
        for _ in range(10):
            self.world.now_s += 1.0
            plan = self.world.launch()
            if plan is not None and (plan.swap_in or plan.swap_out):
                self.world.fail(len(self.world.in_flight) - 1)
                return
            if len(self.world.in_flight) > 1:
                self.world.land()

    @rule()
    def forget_prefixes(self) -> None:
        self.world.scheduler.forget_prefixes()

    @precondition(lambda self: self.world.requests)
    @rule(data=st.data(), reason=st.sampled_from([FinishReason.ABORT, FinishReason.STOP]))
    def end_from_outside(self, data: st.DataObject, reason: FinishReason) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.world.requests)), label="request")
        if self.world.answers[request_id].finish_reason is None:
            self.world.finish(request_id, reason)

    @invariant()
    def blocks_are_accounted_for(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        while self.world.in_flight:
            self.world.land()
        for _ in range(2000):
            self.world.now_s += 1.0
            if not self.world.scheduler.num_unfinished:
                break
            self.world.step()
            self.world.check()
        assert all(answer.finish_reason is not None for answer in self.world.answers.values()), "a request was lost"
        self.world.check_answers()
        assert self.world.scheduler.tables.device.num_used == 0, "a device block leaked"
        assert self.world.scheduler.tables.host.num_used == 0, "a host block leaked"


class CrowdedPool(AnythingHappens):
    """The same where requests crowd each other out all the time, to the host and back."""

    @initialize(num_blocks=st.integers(6, 9), max_cold_copies=st.sampled_from([0, 2]), by_deadline=st.booleans())
    def make_any_world(self, num_blocks: int, max_cold_copies: int, by_deadline: bool) -> None:
        config = make_config(
            num_blocks=num_blocks,
            block_size=2,
            max_step_tokens=12,
            num_host_blocks=20,
            max_running=4,
            preemption=Preemption.SWAP,
            max_cold_copies=max_cold_copies,
        )
        self.make_world(Setting(config, ContinuousBatch(max_step_tokens=12), PresentlyFree(), by_deadline))


@pytest.mark.parametrize("machine", [AnythingHappens, CrowdedPool])
def test_no_order_of_events_breaks_the_accounting_of_blocks_or_an_answer(machine: type[AnythingHappens]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=150,
            stateful_step_count=50,
            deadline=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


@pytest.mark.parametrize("num_ahead", [0, 1, 2])
@pytest.mark.parametrize("preemption", list(Preemption))
def test_planning_ahead_and_preemption_do_not_change_an_answer(preemption: Preemption, num_ahead: int) -> None:
    config = make_config(num_blocks=9, num_host_blocks=9, preemption=preemption)
    world = World(config, admission=PresentlyFree())
    for request_id in range(6):
        world.add(Request(request_id, tuple(range(1, 6 + request_id)), 14))
    world.run_to_end(num_ahead, after_commit=World.check)
    world.check_answers()
    assert world.scheduler.counters.preemptions > 0
    assert (world.scheduler.counters.swaps_out > 0) == (preemption is Preemption.SWAP)
