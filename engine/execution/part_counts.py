"""Counts that parts of the engine keep themselves, carried over into the counters after every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.execution.counters import Counters


class PartCounts:
    """Adds what has happened in each part since the last step to a counter of the engine."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._parts: list[tuple[str, Callable[[], int]]] = []
        self._seen: list[int] = []

    def watch(self, counter: str, read: Callable[[], int]) -> None:
        """Carry over a count that only grows.

        Args:
            counter: name of a field of `Counters`.
            read: gives the count of the part.
        """
        self._parts.append((counter, read))
        self._seen.append(read())

    def collect(self) -> None:
        """A step was launched."""
        for index, (counter, read) in enumerate(self._parts):
            now = read()
            setattr(self._counters, counter, getattr(self._counters, counter) + now - self._seen[index])
            self._seen[index] = now
