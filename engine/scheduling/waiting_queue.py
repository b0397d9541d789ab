"""The order in which waiting requests get their turn: the interface, and first come, first served.

The same key orders the running requests: the most urgent is fed first and gives up its blocks last.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Protocol

from engine.scheduling.request import Request

Urgency = tuple[float, float, int]


class WaitingQueue(Protocol):
    """Requests without a place, whoever's turn it is first."""

    def urgency(self, request: Request) -> Urgency:
        """Sort key of a request, fixed for its life; smaller is more urgent."""

    def add(self, request: Request) -> None:
        """Take in a request; one that was preempted returns to the place its urgency gives it."""

    def remove(self, request: Request) -> None:
        """Take out a request that is in the queue."""

    def peek(self, now_s: float) -> Request:
        """The request whose turn it is; the queue is not empty."""

    def __len__(self) -> int:
        """Number of waiting requests."""

    def __iter__(self) -> Iterator[Request]:
        """All waiting requests."""


class ArrivalQueue:
    """First come, first served."""

    def __init__(self) -> None:
        self._requests: list[Request] = []

    def urgency(self, request: Request) -> Urgency:
        """Order of arrival."""
        return request.arrival_s, 0.0, request.request_id

    def add(self, request: Request) -> None:
        """Take in a request at the place its arrival gives it."""
        insort(self._requests, request, key=self.urgency)

    def remove(self, request: Request) -> None:
        """Take out a request that is in the queue."""
        del self._requests[bisect_left(self._requests, self.urgency(request), key=self.urgency)]

    def peek(self, now_s: float) -> Request:
        """The request that waits longest, whatever the time."""
        return self._requests[0]

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)
