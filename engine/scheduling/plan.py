"""What the scheduler hands to the runner for one step, and what comes back.

Only integers cross this seam: a plan can be pickled, sent to another rank, or replayed by the simulation. What exists
once per request and step is a named tuple: it is made three times as fast as a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.scheduling.request import FinishReason


class ScheduledRequest(NamedTuple):
    """The share of one request in a step: feed tokens [start, start + num_tokens) and write their KV.

    `token_ids` are the fed tokens known to the host, drafts included. It is one shorter than `num_tokens` exactly when
    the last fed token is still being sampled by an earlier step in flight; the runner then takes it from its
    device-side buffer of last tokens. `block_ids` covers tokens [0, start + num_tokens). Where `samples` is true the
    logits of the last 1 + len(draft_token_ids) fed tokens are used; otherwise it is a prompt chunk without output.
    """

    request_id: int
    start: int
    num_tokens: int
    block_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    draft_token_ids: tuple[int, ...]
    samples: bool

    @property
    def takes_last_token(self) -> bool:
        """True where the last fed token must be read from the device-side buffer of last tokens."""
        return len(self.token_ids) < self.num_tokens


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step: block copies first, then one forward pass over everything in `scheduled`.

    `swap_out` holds (device block, host block) pairs: their copies may run beside the forward pass (no block of them is
    reused before the plan is committed), but must be complete at commit. `swap_in` holds (host block, device block)
    pairs that must be complete before the forward pass. `scheduled` may be empty when only copies are due.
    """

    step_id: int
    scheduled: tuple[ScheduledRequest, ...]
    swap_out: tuple[tuple[int, int], ...] = ()
    swap_in: tuple[tuple[int, int], ...] = ()

    @property
    def num_tokens(self) -> int:
        """Tokens fed by the step."""
        return sum(item.num_tokens for item in self.scheduled)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step sampled: for each scheduled request with `samples`, its accepted drafts and then one new token.

    A request without drafts gets one token. Without accepted drafts it gets one as well: the one sampled instead.
    """

    token_ids: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


class RequestOutput(NamedTuple):
    """New tokens of one request; the last output carries the finish reason and, where a step failed, what it said."""

    request_id: int
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    error: str | None = None
