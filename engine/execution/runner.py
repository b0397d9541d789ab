"""Runs the steps that the scheduler plans. It does not decide who runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from engine.execution.forward import phase
from engine.execution.proposals import Proposal
from engine.execution.slots import SlotTable
from engine.execution.step_results import StepInFlight, TokenCopy
from engine.execution.token_choice import Choice, Submission, TokenChoice
from engine.tracing import span

if TYPE_CHECKING:
    from torch import Tensor

    from engine.execution.counters import Counters
    from engine.execution.forward import ForwardPass
    from engine.execution.host_blocks import HostBlocks
    from engine.scheduling.plan import ScheduledRequest, StepPlan


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """How steps are run.

    Attributes:
        micro_batch_size: sequences in one forward pass; None is the whole step.
        keeps_last_tokens: whether a step may be planned before the tokens of the one before it are known.
        waits_for_device: wait for the whole device at the end of a step, not for the copy of its tokens.
        after_step: called once a step is launched.
    """

    micro_batch_size: int | None
    keeps_last_tokens: bool
    waits_for_device: bool
    after_step: Callable[[], None]


class Runner:
    """Turns plans into forward passes and tokens."""

    def __init__(
        self,
        forward: ForwardPass,
        choice: TokenChoice,
        last_tokens: Tensor,
        host_blocks: HostBlocks | None,
        options: RunnerOptions,
        counters: Counters,
    ) -> None:
        """Keep the parts.

        Args:
            forward: the target model.
            choice: chooses tokens.
            last_tokens: int64, token sampled last by slot, and one more slot for padding; shared with `forward`.
            host_blocks: where swapped requests wait; None if they never are.
            options: how steps are run.
            counters: what is counted on the way.
        """
        self._forward = forward
        self._choice = choice
        self._last_tokens = last_tokens
        self._host_blocks = host_blocks
        self._options = options
        self._counters = counters
        self._slots = SlotTable(len(last_tokens) - 1)
        self._submissions: dict[int, Submission] = {}

    def add(self, submission: Submission) -> None:
        """A request may be scheduled from now on."""
        self._submissions[submission.request.request_id] = submission

    def forget(self, request_id: int) -> None:
        """The request has ended; a step in flight may still compute a token for it, which nobody reads."""
        self._submissions.pop(request_id, None)
        self._slots.release(request_id)

    def rewind(self, plan: StepPlan) -> None:
        """A step has failed: rebuild what the buffers hold about its requests when they run again."""
        for item in plan.scheduled:
            self._slots.release(item.request_id)

    @torch.inference_mode()
    def launch(self, plan: StepPlan, proposal: Proposal) -> StepInFlight:
        """Start a step; on a GPU it runs while this returns.

        Args:
            plan: what to run.
            proposal: where its drafts come from.

        Raises:
            RuntimeError: the device failed; nothing of the step may be kept.
        """
        if self._host_blocks is not None:
            self._copy_blocks(self._host_blocks, plan)
        slots, arrived = self._slots.assign([item.request_id for item in plan.scheduled])
        slot_of = dict(zip((item.request_id for item in plan.scheduled), slots, strict=True))
        for request_id in arrived:
            self._choice.take_slot(self._submissions[request_id], slot_of[request_id])
        choices = [
            self._run_piece(piece, [slot_of[item.request_id] for item in piece], proposal)
            for piece in pieces(plan.scheduled, self._options.micro_batch_size)
        ]
        self._count(plan)
        submissions = {item.request_id: self._submissions[item.request_id] for item in plan.scheduled}
        step = StepInFlight(plan, submissions, TokenCopy(choices, self._options.waits_for_device), self)
        self._options.after_step()
        return step

    def finish_copies(self, plan: StepPlan) -> None:
        """Wait for blocks on their way to the host."""
        if plan.swap_out and self._host_blocks is not None:
            self._counters.syncs += 1
            self._host_blocks.finish()

    def count_wait(self) -> None:
        """The host has waited for the device."""
        self._counters.syncs += 1

    def _run_piece(self, piece: Sequence[ScheduledRequest], slots: Sequence[int], proposal: Proposal) -> Choice | None:
        self._counters.pieces += 1
        with span(phase(piece), len(piece)):
            output = self._forward.run(piece, slots)
        sampling = [(item, self._submissions[item.request_id]) for item in piece if item.samples]
        if not sampling:
            return None
        choice = self._choice.choose(output, sampling, proposal)
        if self._options.keeps_last_tokens and choice.tokens_R is not output.best_R:
            self._last_tokens.index_copy_(0, output.row_slots_R, choice.tokens_R)
        if choice.tokens_R is output.best_R and self._options.micro_batch_size is not None:
            # What a pass gives is valid until the next pass, which may belong to this step.
            choice = replace(choice, tokens_R=choice.tokens_R.clone())
        return choice

    def _copy_blocks(self, host_blocks: HostBlocks, plan: StepPlan) -> None:
        if plan.swap_out:
            host_blocks.copy_out(plan.swap_out)
        if plan.swap_in:
            host_blocks.copy_in(plan.swap_in)

    def _count(self, plan: StepPlan) -> None:
        num_prompt_tokens = 0
        for item in plan.scheduled:
            left = len(self._submissions[item.request_id].request.prompt_token_ids) - item.start
            if left > 0:
                num_prompt_tokens += min(left, item.num_tokens)
        self._counters.steps += 1
        self._counters.prefill_tokens += num_prompt_tokens
        num_tokens = plan.num_tokens
        self._counters.decode_tokens += num_tokens - num_prompt_tokens
        self._counters.step_tokens_peak = max(self._counters.step_tokens_peak, num_tokens)


def pieces(scheduled: Sequence[ScheduledRequest], size: int | None) -> list[Sequence[ScheduledRequest]]:
    """Cut a step of B requests into ceil(B / size) pieces; None keeps it whole."""
    if not scheduled:
        return []
    size = size or len(scheduled)
    return [scheduled[first : first + size] for first in range(0, len(scheduled), size)]


def give_back_cached_memory() -> None:
    """Return the memory that torch keeps for reuse to the driver, which has to be asked for it again at once."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
