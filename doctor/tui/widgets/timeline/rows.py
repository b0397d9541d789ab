"""Which lanes and tracks a screen shows, and how high each is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from doctor.case.timeline.drawing import Lane
from doctor.case.timeline.tracks import Track

_HIGHEST = 9
_FLAT = frozenset({"step", "range"})


@dataclass(frozen=True)
class Row:
    """A lane or a track in its place on the screen.

    Attributes:
        lane: None for a track.
        track: None for a lane.
        top: first line, below the axis.
        height: lines.
    """

    lane: Lane | None
    track: Track | None
    top: int
    height: int


def placed(lanes: Sequence[Lane], tracks: Sequence[Track], first: int, lines: int) -> tuple[Row, ...]:
    """The rows that fit in so many lines, from the row `first` on; high ones where there is room."""
    entries: list[tuple[Lane | None, Track | None]] = [*((lane, None) for lane in lanes), *((None, t) for t in tracks)]
    growing = [entry for entry in entries if entry[0] is None or entry[0].kind not in _FLAT]
    spare = max(lines - len(entries), 0) // max(len(growing), 1)
    rows: list[Row] = []
    top = 0
    for lane, track in entries[first:]:
        is_flat = lane is not None and lane.kind in _FLAT
        height = 1 if is_flat else min(1 + spare, _HIGHEST)
        if top + height > lines:
            break
        rows.append(Row(lane, track, top, height))
        top += height
    return tuple(rows)
