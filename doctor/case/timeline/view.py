"""What part of the time-line a screen shows."""

from __future__ import annotations

from dataclasses import dataclass, replace

SHORTEST_NS = 512


@dataclass(frozen=True)
class View:
    """A stretch of time divided into the cells of a screen.

    Attributes:
        start_ns: on the case's clock.
        length_ns: at least `SHORTEST_NS`.
        cells: columns of the screen.
    """

    start_ns: int
    length_ns: int
    cells: int

    @property
    def end_ns(self) -> int:
        """The first nanosecond that is not shown."""
        return self.start_ns + self.length_ns

    @property
    def cell_ns(self) -> float:
        """Length of one cell."""
        return self.length_ns / self.cells

    def time_of(self, cell: float) -> int:
        """The time at a place between the left edge (0) and the right one (`cells`)."""
        return self.start_ns + int(cell * self.length_ns / self.cells)

    def cell_of(self, time_ns: int) -> int:
        """The cell that holds a time; below 0 or at least `cells` where the view does not show it."""
        return (time_ns - self.start_ns) * self.cells // self.length_ns

    def zoomed(self, factor: float, at_ns: int) -> View:
        """The view enlarged by `factor`, with the time `at_ns` where it was on the screen."""
        length = max(SHORTEST_NS, round(self.length_ns / factor))
        share = (at_ns - self.start_ns) / self.length_ns
        return replace(self, start_ns=at_ns - round(length * share), length_ns=length)

    def panned(self, share: float) -> View:
        """The view moved by a share of its length."""
        return replace(self, start_ns=self.start_ns + round(self.length_ns * share))

    def around(self, start_ns: int, end_ns: int, share: float) -> View:
        """A view in whose middle the given stretch takes `share` of the width."""
        length = max(SHORTEST_NS, round(max(end_ns - start_ns, 1) / share))
        return replace(self, start_ns=(start_ns + end_ns - length) // 2, length_ns=length)

    def inside(self, start_ns: int, end_ns: int) -> View:
        """The view moved and cut so that it shows nothing beside the given stretch."""
        length = min(self.length_ns, max(end_ns - start_ns, SHORTEST_NS))
        start = min(max(self.start_ns, start_ns), max(end_ns - length, start_ns))
        return replace(self, start_ns=start, length_ns=length)
