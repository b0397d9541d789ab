"""The whole time-line as strips: axis, places of the findings, lanes and tracks, with the cursor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.style import Style
from textual.strip import Strip

from doctor.case.timeline.drawing import Lane
from doctor.case.timeline.picture import Picture
from doctor.tui.widgets.timeline.naming import lane_name
from doctor.tui.widgets.timeline.painting import (
    Line,
    Mark,
    axis,
    figure,
    lane_rows,
    marks_row,
    strip_of,
    track_rows,
)
from doctor.tui.widgets.timeline.rows import Row

HEAD_LINES = 2
"""Axis and places."""
_FAINT = {True: "#8A97A3", False: "#66727D"}
_MARK = {True: "#F0713A", False: "#A83A00"}


@dataclass(frozen=True)
class Look:
    """How it is painted: colours of ground and text, width of the labels, the time that the axis counts from."""

    base: Style
    is_dark: bool
    label_width: int
    origin_ns: int


@dataclass(frozen=True)
class Spot:
    """Where the cursor is."""

    lane: Lane | None
    time_ns: int


def scene(picture: Picture, rows: Sequence[Row], marks: Sequence[Mark], spot: Spot, look: Look) -> list[Strip]:
    """Every line of the time-line from top to bottom."""
    view = picture.drawing.view
    faint = look.base + Style(color=_FAINT[look.is_dark])
    red = look.base + Style(color=_MARK[look.is_dark], bold=True)
    strips = [
        strip_of("time", look.label_width, axis(view, look.origin_ns, faint), faint),
        strip_of("findings", look.label_width, marks_row(marks, view, red), red),
    ]
    for row in rows:
        strips += _track(picture, row, look) if row.lane is None else _lane(picture, row, row.lane, spot, look)
    return strips


def _track(picture: Picture, row: Row, look: Look) -> list[Strip]:
    assert row.track is not None
    values = picture.tracks.get(row.track.track_id, (None,) * picture.drawing.view.cells)
    lines = track_rows(values, row.track.top, row.height, look.base + Style(color=_FAINT[look.is_dark]))
    names = [row.track.label, figure(row.track.top, row.track.unit)]
    return _labelled(names, lines, look, is_chosen=False)


def _lane(picture: Picture, row: Row, lane: Lane, spot: Spot, look: Look) -> list[Strip]:
    drawing = picture.drawing
    cells = drawing.cells.get(lane.lane_id, ())
    items = [item for item in drawing.items if item.lane_id == lane.lane_id]
    lines = lane_rows(cells, items, drawing.view, row.height, base=look.base, is_dark=look.is_dark)
    if lane is spot.lane:
        for line in lines:
            line.mark_cell(drawing.view.cell_of(spot.time_ns))
    return _labelled([lane_name(lane)], lines, look, is_chosen=lane is spot.lane)


def _labelled(names: Sequence[str], lines: Sequence[Line], look: Look, *, is_chosen: bool) -> list[Strip]:
    strips = []
    for number, line in enumerate(lines):
        name = names[number] if number < len(names) else ""
        pointer = "▸" if is_chosen and number == 0 else " "
        style = look.base + Style(bold=is_chosen, reverse=is_chosen and number == 0)
        strips.append(strip_of(f"{pointer}{name}", look.label_width, line, style))
    return strips
