"""Which requests to try again together after a failed step.

One bad request, or too large a batch, fails everybody in its step. The requests of a failed step are therefore tried
again in halves, and halves of halves, until the bad one fails alone: only then does the failure count against it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


class RetryGroups:
    """Groups of request ids, each to be run in a step of its own before normal work goes on."""

    def __init__(self) -> None:
        self._groups: deque[tuple[int, ...]] = deque()

    def __bool__(self) -> bool:
        return bool(self._groups)

    def take(self) -> tuple[int, ...]:
        """The next group."""
        return self._groups.popleft()

    def put_back(self, request_ids: Sequence[int]) -> None:
        """Run a group next that could not finish for the failure of another."""
        self._groups.appendleft(tuple(request_ids))

    def split(self, request_ids: Sequence[int]) -> None:
        """Run the two halves of a failed group next."""
        middle = (len(request_ids) + 1) // 2
        for half in (request_ids[middle:], request_ids[:middle]):
            if half:
                self.put_back(half)
