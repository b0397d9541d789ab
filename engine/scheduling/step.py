"""A step while it is put together, and while it is in flight."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.scheduling.cold_blocks import ColdCopy
from engine.scheduling.plan import ScheduledRequest, StepPlan
from engine.scheduling.request import Request


@dataclass(slots=True)
class Step:
    """Which requests take part in a step and how.

    `tokens_left` is the rest of the step's token budget. `sitting_out` are requests that are left out so that their
    blocks can be taken as soon as the step that reads them is committed. `is_short` says that some request found too
    few free blocks, `is_retry` that the step repeats part of one that failed. `host_reads` are host blocks of the
    prefix cache that the step copies from, and holds.
    """

    step_id: int
    tokens_left: int
    is_retry: bool = False
    is_short: bool = False
    fed: dict[int, tuple[Request, ScheduledRequest]] = field(default_factory=dict)
    sitting_out: set[int] = field(default_factory=set)
    swapped_out: list[Request] = field(default_factory=list)
    swapped_in: list[Request] = field(default_factory=list)
    copies_out: list[tuple[int, int]] = field(default_factory=list)
    copies_in: list[tuple[int, int]] = field(default_factory=list)
    cold_copies: list[ColdCopy] = field(default_factory=list)
    host_reads: list[int] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """True where there is nothing for the runner to do."""
        return not (self.fed or self.swapped_out or self.swapped_in)

    def feed(self, request: Request, num_tokens: int, drafts: tuple[int, ...]) -> None:
        """Take in the share of one request and move its counts to where the step will leave them."""
        start = request.num_computed
        end = start + num_tokens
        samples = end >= request.num_wanted
        token_ids = tuple(request.token_ids[start:end]) + drafts
        item = ScheduledRequest(
            request.request_id, start, num_tokens, tuple(request.block_ids), token_ids, drafts, samples
        )
        self.fed[request.request_id] = (request, item)
        self.tokens_left -= num_tokens
        request.num_computed = end
        request.num_pending += samples
        request.num_steps_in_flight += 1
        request.draft_token_ids = ()

    def swap_out(self, request: Request, copies: tuple[tuple[int, int], ...]) -> None:
        """Take in the copies that move a request to the host."""
        self.swapped_out.append(request)
        self.copies_out += copies
        request.num_steps_in_flight += 1

    def swap_in(self, request: Request, copies: tuple[tuple[int, int], ...]) -> None:
        """Take in the copies that bring a request back to the device."""
        self.swapped_in.append(request)
        self.copies_in += copies
        request.num_steps_in_flight += 1

    @property
    def cold_device_blocks(self) -> list[int]:
        """Device blocks that the step holds because it copies them to the host."""
        return [copy.source.block_id for copy in self.cold_copies]

    @property
    def cold_host_blocks(self) -> list[int]:
        """Host blocks that the step holds because it copies cold blocks there, or prefixes from there."""
        return [*(copy.host_block_id for copy in self.cold_copies), *self.host_reads]

    def plan(self) -> StepPlan:
        """The step as the runner sees it."""
        items = tuple(item for _, item in self.fed.values())
        cold = ((copy.source.block_id, copy.host_block_id) for copy in self.cold_copies)
        return StepPlan(self.step_id, items, (*self.copies_out, *cold), tuple(self.copies_in))


@dataclass(frozen=True, slots=True)
class StepInFlight:
    """A step that was handed to the runner and is neither committed nor rolled back."""

    plan: StepPlan
    step: Step


def share_of(request: Request, budget: int) -> tuple[int, tuple[int, ...]]:
    """How many tokens a request is fed within `budget` tokens, and the drafts among them.

    Computed tokens catch up with wanted tokens; drafts ride along where they fit and where the request may still
    generate them and one more. After a failure of the request on its own, smaller chunks are tried.
    """
    missing = request.num_wanted - request.num_computed
    drafts = request.draft_token_ids
    if drafts:
        drafts = drafts[: min(request.max_tokens - request.num_known - 1, max(0, budget - missing))]
    if missing > 1 and request.num_failures > 0:
        return max(1, missing >> request.num_failures), ()
    return min(missing + len(drafts), budget), drafts
