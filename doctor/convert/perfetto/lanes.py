"""Slices that overlap without nesting go to lanes: on one track of Perfetto, slices nest or follow each other."""

from __future__ import annotations


class Lanes:
    """The lanes of one row; slices come in order of start, longer ones first."""

    def __init__(self) -> None:
        self._open: list[list[int]] = []

    def lane_for(self, start_ns: int, end_ns: int) -> int:
        """The first lane in which the slice follows, or lies inside, what is there."""
        for place, ends in enumerate(self._open):
            while ends and ends[-1] <= start_ns:
                ends.pop()
            if not ends or end_ns <= ends[-1]:
                ends.append(end_ns)
                return place
        self._open.append([end_ns])
        return len(self._open) - 1
