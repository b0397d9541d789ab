"""Earliest deadline first, for requests whose callers were promised an answer by some moment (an SLA)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from math import inf

from engine.scheduling.request import Request
from engine.scheduling.waiting_queue import Urgency


class DeadlineQueue:
    """Waiting requests by deadline.

    Under overload, earliest-deadline-first spends its time on requests that are late already and makes the next ones
    late as well. A request that cannot meet its deadline any more, because less than `service_s` (the least time that
    an answer takes) is left, therefore stands behind those that still can, and before those that have none.
    """

    def __init__(self, service_s: float = 0.0) -> None:
        self._service_s = service_s
        self._requests: list[Request] = []

    def urgency(self, request: Request) -> Urgency:
        """The deadline, then the arrival."""
        return inf if request.deadline_s is None else request.deadline_s, request.arrival_s, request.request_id

    def add(self, request: Request) -> None:
        """Take in a request at the place its deadline gives it."""
        insort(self._requests, request, key=self.urgency)

    def remove(self, request: Request) -> None:
        """Take out a request that is in the queue."""
        del self._requests[bisect_left(self._requests, self.urgency(request), key=self.urgency)]

    def peek(self, now_s: float) -> Request:
        """The most urgent of those that can still be in time; where none can, the most urgent of all."""
        first_in_time = (now_s + self._service_s, -inf, 0)
        index = bisect_left(self._requests, first_in_time, key=self.urgency)
        if index < len(self._requests) and self._requests[index].deadline_s is not None:
            return self._requests[index]
        return self._requests[0]

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)
