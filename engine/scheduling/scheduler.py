"""The scheduler: decides which tokens of which requests run in the next step, and on which KV blocks.

There is one rule: *a request's computed tokens catch up with its wanted tokens.* A long prompt is fed in chunks, a
prefix hit starts further on, a draft is wanted until it is rejected, a preempted request has nothing computed any more,
and a failed step leaves its requests where they were: no case needs a path of its own.

The caller drives three verbs. `schedule` makes a plan; `commit` takes the sampled tokens of the oldest plan in flight;
`rollback` undoes it instead where it failed, with all plans made after it. The next plan may be made while one is in
flight: the token still being sampled is then counted as pending. Until a step is committed or rolled back, no block
that it reads or writes is free.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence

from engine.errors import RequestRejectedError
from engine.scheduling.admission import AdmissionRule
from engine.scheduling.batching import BatchingPolicy, Occupancy
from engine.scheduling.block_tables import BlockTables
from engine.scheduling.counters import Counters
from engine.scheduling.plan import RequestOutput, ScheduledRequest, StepPlan, StepResult
from engine.scheduling.request import FinishReason, Request, RequestState
from engine.scheduling.retry import RetryGroups
from engine.scheduling.scheduler_config import Preemption, SchedulerConfig
from engine.scheduling.step import Step, StepInFlight, share_of
from engine.scheduling.waiting_queue import WaitingQueue


class Scheduler:
    """Runs requests in steps over one pool of KV blocks."""

    def __init__(
        self, config: SchedulerConfig, batching: BatchingPolicy, admission: AdmissionRule, queue: WaitingQueue
    ) -> None:
        self.config = config
        self.batching = batching
        self.admission = admission
        self.waiting = queue
        self.running: list[Request] = []
        self.counters = Counters()
        self.tables = BlockTables.of(config)
        self._requests: dict[int, Request] = {}
        self._in_flight: deque[StepInFlight] = deque()
        self._retries = RetryGroups()
        self._refused: tuple[int, int] | None = None
        self._is_landing = False

    @property
    def num_unfinished(self) -> int:
        """Requests that wait or run."""
        return len(self.waiting) + len(self.running)

    @property
    def num_in_flight(self) -> int:
        """Plans that are neither committed nor rolled back."""
        return len(self._in_flight)

    def add(self, request: Request) -> None:
        """Take in a request.

        An answer that would outgrow the model's context or the whole pool is cut there with the reason `length`.

        Raises:
            RequestRejectedError: the prompt alone fills the context or the pool, or its id is in use.
        """
        capacity = min(self.config.max_len, self.config.num_blocks * self.config.block_size)
        num_prompt = len(request.prompt_token_ids)
        if num_prompt >= capacity:
            raise RequestRejectedError(
                f"request {request.request_id}: a prompt of {num_prompt} tokens leaves no room to answer in {capacity}"
            )
        if request.request_id in self._requests:
            raise RequestRejectedError(f"request id {request.request_id} is in use")
        request.max_tokens = min(request.max_tokens, capacity)
        self._requests[request.request_id] = request
        self.waiting.add(request)

    def abort(self, request_id: int) -> RequestOutput | None:
        """End a request because nobody waits for it any more; None where it is not known or has ended."""
        return self.finish(request_id, FinishReason.ABORT)

    def finish(self, request_id: int, reason: FinishReason) -> RequestOutput | None:
        """End a request from outside, for a stop string or an abort; None where it is not known or has ended.

        What a step in flight still samples for it is dropped, and its blocks are free once that step is committed.
        """
        request = self._requests.get(request_id)
        if request is None or request.is_finished:
            return None
        self._finish(request, reason)
        return RequestOutput(request_id, (), reason)

    def propose(self, request_id: int, draft_token_ids: Sequence[int]) -> None:
        """Offer drafts for the tokens after the last known one, to be verified when the request runs next.

        Ignored while a step in flight samples for the request: its last known token is then about to change.
        """
        request = self._requests.get(request_id)
        if request is not None and request.num_pending == 0:
            request.draft_token_ids = tuple(draft_token_ids[: self.config.max_draft_tokens])

    def schedule(self, now_s: float) -> StepPlan | None:
        """Plan the next step; None where nothing can run before a request arrives or a step is committed."""
        self._is_landing = self._is_landing and bool(self._in_flight)
        if self._is_landing:
            return None
        step = Step(self.counters.steps, self.config.max_step_tokens)
        while self._retries and step.is_empty:
            step.is_retry = True
            self._feed(step, self._running_of(self._retries.take()))
        if step.is_empty:
            step.is_retry = False
            self._feed(step, [request for request in self.running if request.is_decoding])
            self._admit(step, now_s)
            self._feed(step, [request for request in self.running if request.request_id not in step.fed])
        return None if step.is_empty else self._launch(step)

    def commit(self, plan: StepPlan, result: StepResult) -> list[RequestOutput]:
        """Take in what the oldest plan in flight has sampled.

        Raises:
            ValueError: another plan is older, or this one is not in flight.
        """
        if not self._in_flight or self._in_flight[0].plan is not plan:
            raise ValueError(f"step {plan.step_id} is not the oldest step in flight")
        step = self._in_flight.popleft().step
        if self.tables.cold_blocks is not None:
            self.tables.cold_blocks.land(step.cold_copies)
        outputs = [self._advance(request, item, result) for request, item in step.fed.values()]
        for request in step.swapped_out:
            self.tables.release_device(request)
            self._leave(request)
        for request in step.swapped_in:
            self.tables.release_host(request)
            self._leave(request)
        self.tables.host.release(step.host_reads)
        return [output for output in outputs if output is not None]

    def rollback(self, plan: StepPlan, error: Exception) -> list[RequestOutput]:
        """Undo a plan that failed and all plans made after it; their results must not be used.

        Their requests are tried again, in halves; one that has failed alone too often ends with the reason `error`.
        While steps before the failed one are in flight nothing is planned: the failed ones may have spoiled the
        device-side last tokens, so the next plan must know every token.

        Raises:
            ValueError: the plan is not in flight.
        """
        if all(flying.plan is not plan for flying in self._in_flight):
            raise ValueError(f"step {plan.step_id} is not in flight")
        while (flying := self._in_flight.pop()).plan is not plan:
            self._undo(flying.step)
            if flying.step.is_retry:
                self._retries.put_back(tuple(flying.step.fed))
        self._undo(flying.step)
        self._is_landing = bool(self._in_flight)
        self.counters.failed_steps += 1
        return self._retry(flying.step, error)

    def forget_prefixes(self) -> None:
        """Empty the prefix cache; requests that share blocks keep them."""
        self.tables.forget_prefixes()

    def check_invariants(self) -> None:
        """Recount the owners of every block, of both pools, from the tables of all requests.

        Raises:
            RuntimeError: a block leaked, or has other owners than those that list it. Cost: linear in blocks.
        """
        self.tables.check(self._requests.values(), (flying.step for flying in self._in_flight))

    # Planning

    def _running_of(self, request_ids: Iterable[int]) -> list[Request]:
        found = (self._requests.get(request_id) for request_id in request_ids)
        return [request for request in found if request is not None and request.state is RequestState.RUNNING]

    def _admit(self, step: Step, now_s: float) -> None:
        if not self.waiting:
            return
        num_running = len(self.running)
        num_wanted = sum(request.num_wanted - request.num_computed for request in self.running)
        num_wanted += self.config.max_step_tokens - step.tokens_left
        while self.waiting and not step.is_short and len(self.running) < self.config.max_running:
            request = self.waiting.peek()
            num_joined = len(self.running) - num_running
            waited_s = now_s - request.arrival_s
            occupancy = Occupancy(num_running, num_joined, len(self.waiting), num_wanted, waited_s)
            if not (self.batching.may_join(occupancy) and self._fits(request) and self._start(step, request)):
                return
            num_wanted += request.num_wanted - request.num_computed

    def _fits(self, request: Request) -> bool:
        question = (request.request_id, self.tables.num_departures)
        if question == self._refused:  # nobody has left since: the answer would be the same, at every step
            return False
        prefix = self.tables.find_prefix(request)
        fits = self.admission.admits(request, prefix, self.running, self.tables.device)
        self._refused = None if fits else question
        return fits

    def _start(self, step: Step, request: Request) -> bool:
        if request.num_steps_in_flight > 0 or len(request.host_block_ids) > self.tables.device.num_free:
            return False
        if request.host_block_ids:
            step.swap_in(request, self.tables.copy_to_device(request))
        else:
            self._adopt_prefix(step, request)
        self.waiting.remove(request)
        request.state = RequestState.RUNNING
        insort(self.running, request, key=self.waiting.urgency)
        return True

    def _adopt_prefix(self, step: Step, request: Request) -> None:
        copies = self.tables.adopt_prefix(request)
        self.counters.prefix_hit_tokens += request.num_computed
        if copies:
            step.swap_in(request, copies)
            step.host_reads += [host_block for host_block, _ in copies]
            self.counters.host_hit_tokens += len(copies) * self.config.block_size

    def _feed(self, step: Step, requests: Iterable[Request]) -> None:
        for request in tuple(requests):
            if step.tokens_left == 0:
                return
            if self._may_run(step, request):
                self._place(step, request)

    def _may_run(self, step: Step, request: Request) -> bool:
        if request.state is not RequestState.RUNNING:  # it was preempted for one before it
            return False
        if request.num_pending > 0 and self.config.max_draft_tokens > 0:
            return False
        return request.num_wanted < request.max_tokens and request.request_id not in step.sitting_out

    def _place(self, step: Step, request: Request) -> None:
        num_tokens, drafts = share_of(request, step.tokens_left)
        if drafts and not self.tables.grow(request, request.num_computed + num_tokens):
            num_tokens, drafts = num_tokens - len(drafts), ()
        if self._make_room(step, request, request.num_computed + num_tokens):
            step.feed(request, num_tokens, drafts)

    def _make_room(self, step: Step, request: Request, num_tokens: int) -> bool:
        while not self.tables.grow(request, num_tokens):
            step.is_short = True
            victim = self._victim(step)
            if victim is None:
                return False
            self._preempt(step, victim)
            if victim is request:
                return False
        return True

    def _victim(self, step: Step) -> Request | None:
        """The least urgent request outside the step; None where blocks are about to come free without one."""
        copies_in_flight = any(flying.step.swapped_out or flying.step.cold_copies for flying in self._in_flight)
        if step.sitting_out or step.swapped_out or copies_in_flight:
            return None
        victim = next((request for request in reversed(self.running) if request.request_id not in step.fed), None)
        if victim is not None and victim.num_steps_in_flight > 0:
            step.sitting_out.add(victim.request_id)
            return None
        return victim

    def _preempt(self, step: Step, request: Request) -> None:
        self.counters.preemptions += 1
        request.num_preemptions += 1
        request.draft_token_ids = ()
        self.running.remove(request)
        if self.config.preemption is Preemption.SWAP and len(request.block_ids) <= self.tables.host.num_free:
            self.counters.swaps_out += 1
            request.state = RequestState.SWAPPED
            step.swap_out(request, self.tables.copy_to_host(request))
        else:
            request.state = RequestState.WAITING
            self.tables.forget(request)
        self.waiting.add(request)

    def _launch(self, step: Step) -> StepPlan:
        # A step that is short of blocks must not hold more of them.
        if self.tables.cold_blocks is not None and not step.is_short:
            step.cold_copies = self.tables.cold_blocks.take()
            self.counters.cold_copies += len(step.cold_copies)
        plan = step.plan()
        self.counters.steps += 1
        self.counters.scheduled_tokens += plan.num_tokens
        self._in_flight.append(StepInFlight(plan, step))
        return plan

    # Taking in results

    def _advance(self, request: Request, item: ScheduledRequest, result: StepResult) -> RequestOutput | None:
        output = None
        if request.state is not RequestState.FINISHED:
            request.num_failures = 0
            if item.draft_token_ids:
                self._reject(request, item, len(result.token_ids[request.request_id]) - 1)
            output = self._accept(request, item, result)
        self._leave(request)
        return output

    def _reject(self, request: Request, item: ScheduledRequest, num_accepted: int) -> None:
        """Step back behind the last accepted draft."""
        self.counters.drafted_tokens += len(item.draft_token_ids)
        self.counters.accepted_tokens += num_accepted
        request.num_computed -= len(item.draft_token_ids) - num_accepted
        self.tables.trim(request)

    def _accept(self, request: Request, item: ScheduledRequest, result: StepResult) -> RequestOutput | None:
        if not item.samples:
            self.tables.publish(request, item.start + item.num_tokens)
            return None
        request.num_pending -= 1
        sampled = result.token_ids[request.request_id]
        kept, reason = _keep(request, sampled)
        # Of the sampled tokens the last has no KV yet, the others were fed as drafts.
        num_written = item.start + item.num_tokens - len(item.draft_token_ids) + len(sampled) - 1
        self.tables.publish(request, min(num_written, len(request.token_ids)))
        if reason is not None:
            self._finish(request, reason)
        return RequestOutput(request.request_id, kept, reason)

    def _finish(self, request: Request, reason: FinishReason) -> None:
        if request.state is RequestState.RUNNING:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        request.state = RequestState.FINISHED
        request.finish_reason = reason
        if reason in {FinishReason.STOP, FinishReason.LENGTH}:
            self.admission.learn(request)
        self._settle(request)

    def _leave(self, request: Request) -> None:
        request.num_steps_in_flight -= 1
        self._settle(request)

    def _settle(self, request: Request) -> None:
        """Free what a finished request holds, once no step in flight uses it."""
        if request.state is RequestState.FINISHED and request.num_steps_in_flight == 0:
            self.tables.forget(request)
            self._requests.pop(request.request_id, None)

    # Undoing

    def _undo(self, step: Step) -> None:
        for request, item in step.fed.values():
            if not request.is_finished:
                request.num_computed = item.start
                request.num_pending -= item.samples
                self.tables.trim(request)
            self._leave(request)
        for request in (*step.swapped_in, *step.swapped_out):
            self._leave(request)
            if not request.is_finished:
                self._recompute(request)
        self.tables.host.release(step.host_reads)
        if self.tables.cold_blocks is not None:
            self.tables.cold_blocks.drop(step.cold_copies)

    def _recompute(self, request: Request) -> None:
        """Give up the KV of a request whose copies failed: what is not known to be whole is computed again."""
        self.tables.forget(request)
        if request.state is RequestState.RUNNING:
            self.running.remove(request)
            self.waiting.add(request)
        request.state = RequestState.WAITING

    def _retry(self, step: Step, error: Exception) -> list[RequestOutput]:
        requests = [request for request, _ in step.fed.values() if request.state is RequestState.RUNNING]
        if len(step.fed) > 1:
            self._retries.split([request.request_id for request in requests])
            return []
        outputs = []
        for request in requests:
            request.num_failures += 1
            if request.num_failures < self.config.max_failures:
                self._retries.put_back([request.request_id])
            else:
                self._finish(request, FinishReason.ERROR)
                outputs.append(RequestOutput(request.request_id, (), FinishReason.ERROR, str(error)))
        return outputs


def _keep(request: Request, sampled: tuple[int, ...]) -> tuple[tuple[int, ...], FinishReason | None]:
    """Add sampled tokens to a request up to its stop token or length limit; returns those added and the reason."""
    for count, token_id in enumerate(sampled, start=1):
        request.token_ids.append(token_id)
        if token_id in request.stop_token_ids:
            return sampled[:count], FinishReason.STOP
        if len(request.token_ids) >= request.max_tokens:
            return sampled[:count], FinishReason.LENGTH
    return sampled, None
