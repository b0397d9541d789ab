"""The loop of the engine: schedule, launch, wait for the tokens of the step before, commit."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from engine.errors import StepError
from engine.execution.proposals import Proposal, Speculating
from engine.execution.status_log import StatusLog
from engine.tracing import OpenRanges, Range, span

if TYPE_CHECKING:
    from engine.execution.counters import Counters
    from engine.execution.proposals import Proposer
    from engine.execution.runner import Runner
    from engine.execution.step_results import StepInFlight, StepOutcome, TokenLogprobs
    from engine.execution.token_choice import Submission
    from engine.scheduling.plan import RequestOutput, StepPlan
    from engine.scheduling.request import FinishReason
    from engine.scheduling.scheduler import Scheduler

_LOG = logging.getLogger("engine.loop")


class NewTokens(NamedTuple):
    """What a step brought for one request; a named tuple, since a step makes one for each request.

    Attributes:
        request_id: key.
        token_ids: new tokens, in order; may be empty at the end.
        logprobs: one entry a token where the request wants them.
        finish_reason: None while it goes on.
        error: what the device said, if it failed at every try.
    """

    request_id: int
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """How the loop turns.

    Attributes:
        overlaps: schedule and launch step n+1 before the tokens of step n are known.
        audits: check every block of the pool in every step.
        num_draft_tokens: drafts for each request and step.
        clock: seconds, monotonic.
    """

    overlaps: bool
    audits: bool
    num_draft_tokens: int
    clock: Callable[[], float] = time.monotonic


class EngineLoop:
    """Drives scheduler, runner and proposer; one call of `step` is one turn.

    With overlap a turn launches step n+1 and only then waits for step n: the scheduler works while the device does. A
    device that fails raises in the turn that launches a step or in the one that waits for it; either way the step is
    rolled back, with those after it, and its requests run again. `before_step` is called before each launch.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        proposer: Proposer | None,
        options: LoopOptions,
        counters: Counters,
    ) -> None:
        self.scheduler = scheduler
        self.counters = counters
        self._runner = runner
        self._proposer = proposer
        self._options = options
        self._submissions: dict[int, Submission] = {}
        self._in_flight: deque[StepInFlight] = deque()
        self._proposal = Proposal(probs={})
        self._ranges = OpenRanges()
        self._seen = _SchedulerCounts()
        self._status = StatusLog(counters, scheduler)
        self.before_step: Callable[[], None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no request is left and no step is in flight."""
        return not self._submissions and not self._in_flight

    def add(self, submission: Submission) -> None:
        """Take in a request.

        Raises:
            RequestRejectedError: it can never run.
        """
        self.scheduler.add(submission.request)
        request_id = submission.request.request_id
        self._submissions[request_id] = submission
        self._runner.add(submission)
        self._ranges.begin(Range.REQUEST, request_id)

    def finish(self, request_id: int, reason: FinishReason) -> NewTokens | None:
        """End a request from outside; None where it is not known or has ended."""
        output = self.scheduler.finish(request_id, reason)
        if output is None:
            return None
        self._forget(request_id)
        return NewTokens(request_id, (), finish_reason=output.finish_reason)

    def step(self) -> list[NewTokens]:
        """One turn.

        Returns:
            What became known about requests; empty where nothing could run yet, or a step is still in flight.
        """
        outputs: list[NewTokens] = []
        plan = self._schedule()
        if plan is not None:
            if self.before_step is not None:
                self.before_step()
            outputs += self._launch(plan)
        depth = 1 if self._options.overlaps and plan is not None else 0
        while len(self._in_flight) > depth:
            outputs += self._complete(self._in_flight.popleft())
        return outputs

    def _schedule(self) -> StepPlan | None:
        started_ns = time.perf_counter_ns()
        with span(Range.SCHEDULING):
            plan = self.scheduler.schedule(self._options.clock())
            if self._options.audits:
                self.counters.audits += 1
                self.scheduler.check_invariants()
        self.counters.schedule_ns += time.perf_counter_ns() - started_ns
        if plan is not None:
            self.counters.steps_overlapped += bool(self._in_flight)
            self._seen.add_to(self.counters, self.scheduler)
            self._status.tick(time.monotonic())
        return plan

    def _launch(self, plan: StepPlan) -> list[NewTokens]:
        try:
            with span(Range.STEP, plan.step_id):
                self._in_flight.append(self._runner.launch(plan, self._proposal))
        except (RuntimeError, StepError) as error:
            return self._roll_back(plan, error)
        return []

    def _complete(self, step: StepInFlight) -> list[NewTokens]:
        try:
            outcome = step.wait()
        except (RuntimeError, StepError) as error:
            return self._roll_back(step.plan, error)
        self.counters.drafted += outcome.num_drafted
        self.counters.accepted += outcome.num_accepted
        self.counters.verifications += outcome.num_verified
        with span(Range.SCHEDULING):
            outputs = self.scheduler.commit(step.plan, outcome.result)
        self._propose(outputs)
        return [self._new_tokens(output, outcome) for output in outputs]

    def _roll_back(self, plan: StepPlan, error: Exception) -> list[NewTokens]:
        _LOG.warning("event=step_failed step=%d error=%r", plan.step_id, str(error).splitlines()[:1])
        self.counters.step_failures += 1
        later = [step.plan for step in self._in_flight if step.plan.step_id > plan.step_id]
        self._in_flight = deque(step for step in self._in_flight if step.plan.step_id < plan.step_id)
        for failed in (plan, *later):
            self._runner.rewind(failed)
        return [self._new_tokens(output, None) for output in self.scheduler.rollback(plan, error)]

    def _new_tokens(self, output: RequestOutput, outcome: StepOutcome | None) -> NewTokens:
        request_id, token_ids, finish_reason = output.request_id, output.token_ids, output.finish_reason
        logprobs: tuple[TokenLogprobs, ...] = ()
        if outcome is not None and outcome.logprobs:
            logprobs = outcome.logprobs.get(request_id, ())[: len(token_ids)]
        self.counters.sampled_tokens += len(token_ids)
        if finish_reason is not None:
            self._forget(request_id)
        return NewTokens(request_id, token_ids, logprobs, finish_reason, output.error)

    def _propose(self, outputs: list[RequestOutput]) -> None:
        if self._proposer is None:
            return
        wanted = [self._submissions[output.request_id] for output in outputs if output.finish_reason is None]
        asked = [request for submission in wanted if (request := self._speculating(submission)).num_drafts > 0]
        proposal = self._proposer.propose(asked)
        for request_id, drafts in proposal.token_ids.items():
            self.scheduler.propose(request_id, drafts)
        self._proposal = Proposal({}, {**self._proposal.probs, **proposal.probs})

    def _speculating(self, submission: Submission) -> Speculating:
        request = submission.request
        # A draft would change what a penalty counts before it is known to stay: such requests go without.
        room = 0 if submission.params.has_penalties else request.max_tokens - len(request.token_ids) - 1
        num_drafts = max(0, min(self._options.num_draft_tokens, room))
        return Speculating(request.request_id, request.token_ids, submission.params, submission.seed, num_drafts)

    def _forget(self, request_id: int) -> None:
        self._submissions.pop(request_id, None)
        self._runner.forget(request_id)
        if self._proposer is not None:
            self._proposer.forget(request_id)
            kept = {key: probs for key, probs in self._proposal.probs.items() if key != request_id}
            self._proposal = Proposal({}, kept)
        self._ranges.end(Range.REQUEST, request_id)


@dataclass(slots=True)
class _SchedulerCounts:
    """The scheduler counts since it was made; the engine's counters may be reset."""

    preemptions: int = 0
    prefix_hit_tokens: int = 0

    def add_to(self, counters: Counters, scheduler: Scheduler) -> None:
        """Add what has happened since the last call, and the state of the pool."""
        counters.preemptions += scheduler.counters.preemptions - self.preemptions
        counters.prefix_hit_tokens += scheduler.counters.prefix_hit_tokens - self.prefix_hit_tokens
        self.preemptions = scheduler.counters.preemptions
        self.prefix_hit_tokens = scheduler.counters.prefix_hit_tokens
        num_filled = num_blocks = 0
        for request in scheduler.running:
            num_filled += request.num_computed
            num_blocks += len(request.block_ids)
        pool = scheduler.tables.device
        num_used = pool.num_used
        counters.kv_blocks_peak = max(counters.kv_blocks_peak, num_used)
        counters.kv_blocks_used_sum += num_used
        counters.kv_slots_allocated_sum += num_blocks * pool.block_size
        counters.kv_slots_filled_sum += num_filled
        counters.kv_tokens_peak = max(counters.kv_tokens_peak, num_filled)
