"""The order in which waiting requests get their turn: the queue, and first come, first served.

The same order holds among the running requests: the most urgent is fed first and gives up its blocks last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterator

from engine.scheduling.request import Request

Urgency = tuple[float, float, int]


class WaitingQueue(ABC):
    """Requests without a place, the most urgent first; a kind of queue says what makes a request urgent."""

    def __init__(self) -> None:
        self._requests: list[Request] = []

    @abstractmethod
    def urgency(self, request: Request) -> Urgency:
        """Sort key of a request, its own and fixed for its life; smaller is more urgent."""

    def add(self, request: Request) -> None:
        """Take in a request; one that was preempted returns to the place its urgency gives it."""
        insort(self._requests, request, key=self.urgency)

    def remove(self, request: Request) -> None:
        """Take out a request that is in the queue."""
        del self._requests[bisect_left(self._requests, self.urgency(request), key=self.urgency)]

    def peek(self) -> Request:
        """The request whose turn it is; the queue is not empty."""
        return self._requests[0]

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)


class ArrivalQueue(WaitingQueue):
    """First come, first served."""

    def urgency(self, request: Request) -> Urgency:
        """Order of arrival."""
        return request.arrival_s, 0.0, request.request_id
