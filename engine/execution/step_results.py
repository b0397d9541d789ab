"""Tokens on their way from the device: one asynchronous copy a step, and one wait for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import torch

from engine.scheduling.plan import ScheduledRequest, StepPlan, StepResult

if TYPE_CHECKING:
    from torch import Tensor

    from engine.execution.token_choice import Choice, Submission


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log probability of one generated token, and the most probable tokens at its place, best first."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a step brought.

    Attributes:
        result: tokens by request, for the scheduler.
        logprobs: for requests that want them, one entry a token.
        num_drafted: drafts that were verified.
        num_accepted: drafts that were kept.
        num_verified: requests that had drafts.
    """

    result: StepResult
    logprobs: Mapping[int, tuple[TokenLogprobs, ...]] = field(default_factory=dict)
    num_drafted: int = 0
    num_accepted: int = 0
    num_verified: int = 0


class TokenCopy:
    """Copies the choices of a step to the host, behind everything that was launched before."""

    def __init__(self, choices: Sequence[Choice | None], waits_for_device: bool) -> None:
        """Start the copies; pinned and asynchronous on a GPU.

        Args:
            choices: one for each piece, None where nothing was sampled.
            waits_for_device: wait for everything on the device and not for these copies alone.
        """
        self._waits_for_device = waits_for_device
        self._event: torch.cuda.Event | None = None
        self._pieces = [_to_host(choice) for choice in choices if choice is not None]
        if any(choice is not None and choice.tokens_R.is_cuda for choice in choices):
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    @property
    def is_ready(self) -> bool:
        """Whether `wait` would return at once."""
        return self._event is None or self._event.query()  # type: ignore[no-untyped-call]

    def wait(self) -> _HostRows:
        """Rows of all pieces, on the host."""
        if self._event is not None:
            if self._waits_for_device:
                torch.cuda.synchronize()
            else:
                self._event.synchronize()
        rows = _HostRows([], [], [])
        for piece in self._pieces:
            tokens = piece[0].tolist()
            rows.tokens += tokens
            rows.accepted += [None] * len(tokens) if piece[1] is None else piece[1].tolist()
            rows.logprobs += (
                [None] * len(tokens) if piece[2] is None else zip(*(x.tolist() for x in piece[2]), strict=True)
            )
        return rows


@dataclass(slots=True)
class _HostRows:
    """Rows of a step in order: token, whether the draft behind it is kept (None: where equal), log probabilities."""

    tokens: list[int]
    accepted: list[bool | None]
    logprobs: list[tuple[float, list[float], list[int]] | None]


def _to_host(choice: Choice) -> tuple[Tensor, Tensor | None, tuple[Tensor, ...] | None]:
    accepted = None if choice.accepted_R is None else _copy(choice.accepted_R)
    logprobs = None if choice.logprobs is None else tuple(map(_copy, choice.logprobs))
    return _copy(choice.tokens_R), accepted, logprobs


def _copy(tensor: Tensor) -> Tensor:
    if not tensor.is_cuda:
        return tensor.clone()  # what a pass gives is valid until the next one, which may start before these are read
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)


class CopyKeeper(Protocol):
    """Finishes and counts what a step leaves running beside it."""

    def finish_copies(self, plan: StepPlan) -> None:
        """Wait for blocks on their way to the host."""
        ...

    def count_wait(self) -> None:
        """The host has waited for the device."""
        ...


class StepInFlight:
    """A step that was launched; `wait` ends it."""

    def __init__(
        self, plan: StepPlan, submissions: Mapping[int, Submission], copy: TokenCopy, keeper: CopyKeeper
    ) -> None:
        self.plan = plan
        self._submissions = submissions
        self._copy = copy
        self._keeper = keeper

    def wait(self) -> StepOutcome:
        """Wait for the tokens of the step.

        Raises:
            RuntimeError: the device failed; nothing of the step may be kept.
        """
        rows = self._copy.wait()
        self._keeper.count_wait()
        self._keeper.finish_copies(self.plan)
        return _outcome(self.plan, rows, self._submissions)


def _outcome(plan: StepPlan, rows: _HostRows, submissions: Mapping[int, Submission]) -> StepOutcome:
    if len(rows.tokens) == len(plan.scheduled) == plan.num_tokens and not any(rows.logprobs):
        ids = (item.request_id for item in plan.scheduled)
        return StepOutcome(StepResult({key: (token,) for key, token in zip(ids, rows.tokens, strict=True)}))
    tokens, logprobs = {}, {}
    num_drafted = num_accepted = num_verified = 0
    for item, first in _sampling_rows(plan):
        kept = _num_kept(item, rows, first)
        tokens[item.request_id] = (*item.draft_token_ids[:kept], rows.tokens[first + kept])
        num_drafted += len(item.draft_token_ids)
        num_accepted += kept
        num_verified += bool(item.draft_token_ids)
        num_top = submissions[item.request_id].params.logprobs
        if num_top is not None:
            logprobs[item.request_id] = tuple(
                _logprobs(rows.logprobs[first + index], token, num_top)
                for index, token in enumerate(tokens[item.request_id])
            )
    return StepOutcome(StepResult(tokens), logprobs, num_drafted, num_accepted, num_verified)


def _sampling_rows(plan: StepPlan) -> Iterator[tuple[ScheduledRequest, int]]:
    """Requests that sample, each with its first row."""
    row = 0
    for item in plan.scheduled:
        if item.samples:
            yield item, row
            row += 1 + len(item.draft_token_ids)


def _num_kept(item: ScheduledRequest, rows: _HostRows, first: int) -> int:
    """Drafts of a request up to the first that is rejected."""
    for index, draft in enumerate(item.draft_token_ids):
        accepted = rows.accepted[first + index]
        if not (rows.tokens[first + index] == draft if accepted is None else accepted):
            return index
    return len(item.draft_token_ids)


def _logprobs(row: tuple[float, list[float], list[int]] | None, token: int, num_top: int) -> TokenLogprobs:
    assert row is not None, "a request that wants log probabilities makes its piece report them"
    chosen, best, ids = row
    return TokenLogprobs(token, chosen, tuple(zip(ids[:num_top], best[:num_top], strict=True)))
