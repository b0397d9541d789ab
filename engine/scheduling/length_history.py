"""How long answers turn out to be: a forecast from those that have ended.

Callers set a limit that few answers reach. Requests with the same limit tend to come from the same kind of caller, so
the lengths of ended answers are kept per limit. Source: the use of the history in the Past-Future scheduler, Gong et
al. 2025.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque

from engine.scheduling.request import Request


class LengthHistory:
    """The last `window` answer lengths per limit, and the `percentile` of those that a request may still reach.

    Until `min_answers` have ended, the limit itself is the forecast.
    """

    def __init__(self, percentile: int = 50, window: int = 500, min_answers: int = 20) -> None:
        self._percentile = percentile
        self._window = window
        self._min_answers = min_answers
        self._latest: dict[int, deque[int]] = {}
        self._sorted: dict[int, list[int]] = {}

    def add(self, limit: int, length: int) -> None:
        """Remember the length of an answer, asked for with `limit`, that has come to its own end."""
        latest = self._latest.setdefault(limit, deque())
        ordered = self._sorted.setdefault(limit, [])
        latest.append(length)
        insort(ordered, length)
        if len(latest) > self._window:
            ordered.remove(latest.popleft())

    def num_left(self, request: Request) -> int:
        """Tokens that a request will probably add; at least 1, at most what its limit leaves."""
        ordered = self._sorted.get(request.max_new_tokens, [])
        longer = bisect_right(ordered, request.num_generated)
        if len(ordered) < self._min_answers or longer == len(ordered):
            return request.num_left
        expected = ordered[longer + (len(ordered) - longer - 1) * self._percentile // 100]
        return max(1, min(request.num_left, expected - request.num_generated - request.num_pending))
