"""Earliest deadline first, for requests whose callers were promised an answer by some moment (an SLA)."""

from __future__ import annotations

from engine.scheduling.request import Request
from engine.scheduling.waiting_queue import Urgency, WaitingQueue


class DeadlineQueue(WaitingQueue):
    """Waiting requests by deadline.

    A request without one is treated as due `patience_s` after its arrival: it gives way to the urgent ones, but not for
    ever. A request that is late already keeps its place. Passing it over would save the promise to others, yet under
    lasting overload it would never be served, and the slowest answers are what a P99 shows. Too many requests are a
    matter for the limit of the load balancer and for back pressure.
    """

    def __init__(self, patience_s: float = 60.0) -> None:
        super().__init__()
        self._patience_s = patience_s

    def urgency(self, request: Request) -> Urgency:
        """The moment at which the answer is due, then the arrival."""
        due_s = request.arrival_s + self._patience_s if request.deadline_s is None else request.deadline_s
        return due_s, request.arrival_s, request.request_id
