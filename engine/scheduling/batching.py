"""When a waiting request may join the running ones: the batching modes are policies of one scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The scheduler at the moment at which one more request might join.

    `num_running` counts the requests that were running before this step, `num_joined` those let in since.
    `num_wanted_tokens` is what all of them want to have computed; `waited_s` how long the request has been waiting.
    """

    num_running: int
    num_joined: int
    num_waiting: int
    num_wanted_tokens: int
    waited_s: float


class BatchingPolicy(Protocol):
    """Decides, one request at a time, whether the next one may join."""

    def may_join(self, occupancy: Occupancy) -> bool:
        """True where one more request may start in this step."""


@dataclass(frozen=True, slots=True)
class SingleRequest:
    """Plain autoregressive generation: one request after the other."""

    def may_join(self, occupancy: Occupancy) -> bool:
        """Only while nothing else runs."""
        return occupancy.num_running + occupancy.num_joined == 0


@dataclass(frozen=True, slots=True)
class StaticBatch:
    """Whoever waits forms a batch of at most `size`; nobody joins until the last of them has finished."""

    size: int

    def may_join(self, occupancy: Occupancy) -> bool:
        """Only while the batch is being formed."""
        return occupancy.num_running == 0 and occupancy.num_joined < self.size


@dataclass(frozen=True, slots=True)
class DynamicWindow:
    """A static batch that waits to become full, but at most `window_s` after the arrival of its first request."""

    size: int
    window_s: float

    def may_join(self, occupancy: Occupancy) -> bool:
        """Once `size` requests wait or the first has waited long enough, until the batch is full."""
        is_due = occupancy.num_waiting >= self.size or occupancy.waited_s >= self.window_s or occupancy.num_joined > 0
        return is_due and occupancy.num_running == 0 and occupancy.num_joined < self.size


@dataclass(frozen=True, slots=True)
class ContinuousBatch:
    """Requests join and leave at every step, as long as the step has tokens left for them."""

    max_step_tokens: int

    def may_join(self, occupancy: Occupancy) -> bool:
        """While those let in do not already fill the step."""
        return occupancy.num_wanted_tokens < self.max_step_tokens
