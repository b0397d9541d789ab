"""Everything that one redraw of the time-line needs, in one call to the worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from doctor.case.timeline.drawing import Drawing, Item, draw
from doctor.case.timeline.places import ItemFacts, facts_of, item_at, silence_at
from doctor.case.timeline.tracks import track_cells
from doctor.case.timeline.view import View

_LEAST_REACH_NS = 10**8
"""Of the look for what ends a silence, which is told in words where it is out of sight too."""


@dataclass(frozen=True)
class Picture:
    """A screen of the time-line.

    Attributes:
        drawing: cells and wide items of the shown lanes.
        tracks: the largest value in each cell, by track.
        selected: the longest item under the cursor, None where there is none.
        silence_ns: where there is none, when the work before ended and the work after begins; None where that is far
            out of sight.
    """

    drawing: Drawing
    tracks: dict[int, tuple[float | None, ...]]
    selected: ItemFacts | None
    silence_ns: tuple[int | None, int | None] = (None, None)


@dataclass(frozen=True)
class Cursor:
    """Where one looks closely: a lane and a time in it, or an item that was gone to."""

    lane_id: int
    time_ns: int
    item: Item | None = None


def picture(connection: duckdb.DuckDBPyConnection, view: View, lanes: Sequence[int], cursor: Cursor | None) -> Picture:
    """What a view shows of some lanes, and what lies in the cell that begins at the cursor."""
    drawing = draw(connection, view, lanes)
    tracks = track_cells(connection, view)
    if cursor is None:
        return Picture(drawing, tracks, None)
    until_ns = cursor.time_ns + max(round(view.cell_ns), 1)
    item = cursor.item or item_at(connection, cursor.lane_id, cursor.time_ns, until_ns)
    if item is not None:
        return Picture(drawing, tracks, facts_of(connection, item))
    reach_ns = max(view.length_ns, _LEAST_REACH_NS)
    return Picture(drawing, tracks, None, silence_at(connection, cursor.lane_id, cursor.time_ns, reach_ns))
