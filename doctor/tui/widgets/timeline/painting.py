"""Paints rows of the time-line: cells, boxes, tracks and the axis, as styled strips. No state, no queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from doctor.case.timeline.drawing import Cell, Item
from doctor.case.timeline.view import View
from doctor.tui.widgets.timeline.glyphs import LEVELS, box_style, cell_style, cell_text
from doctor.tui.widgets.timeline.naming import item_name, moment, tick_step
from doctor.units import format_bytes, format_ns, format_share

_BLOCKS = " ▁▂▃▄▅▆▇█"
_TICK_CELLS = 16
_NAMED_CELLS = 3
_REVERSE = Style(reverse=True)


@dataclass(frozen=True)
class Mark:
    """A place that a finding names, on the row above the lanes."""

    start_ns: int
    end_ns: int
    label: str


class Line:
    """A row of cells that is painted over and over, then made into a strip."""

    def __init__(self, width: int, style: Style) -> None:
        self._characters = [" "] * width
        self._styles = [style] * width

    def put(self, at: int, text: Iterable[str], style: Style) -> None:
        """Paint characters from a cell on; what falls outside is left out."""
        for place, character in enumerate(text, start=at):
            if 0 <= place < len(self._characters):
                self._characters[place] = character
                self._styles[place] = style

    def mark_cell(self, at: int) -> None:
        """Turn the colours of one cell around, and give it a mark where it is empty."""
        if 0 <= at < len(self._characters):
            self._styles[at] = self._styles[at] + _REVERSE

    def segments(self) -> list[Segment]:
        """Neighbouring cells of one style together."""
        painted = zip(self._characters, self._styles, strict=True)
        return [
            Segment("".join(character for character, _ in run), style)
            for style, run in groupby(painted, key=lambda entry: entry[1])
        ]


def lane_rows(
    cells: Sequence[Cell], items: Sequence[Item], view: View, height: int, *, base: Style, is_dark: bool
) -> list[Line]:
    """The rows of one lane from top to bottom."""
    rows = [Line(view.cells, base) for _ in range(height)]
    for cell in cells:
        style = base + cell_style(cell.work, is_dark=is_dark)
        for row, character in zip(reversed(rows), cell_text(cell.work, cell.share, height), strict=True):
            if character != " ":
                row.put(cell.cell, character, style)
    for item in items:
        _box(rows, item, view, is_dark=is_dark)
    return rows


def _box(rows: Sequence[Line], item: Item, view: View, *, is_dark: bool) -> None:
    first = max(view.cell_of(item.start_ns), 0)
    last = min(view.cell_of(item.end_ns - 1), view.cells - 1)
    width = last - first + 1
    if width < 1:
        return
    style = box_style(item.work, is_odd=bool(item.item_id % 2), is_dark=is_dark)
    edge = "◂" if item.start_ns < view.start_ns else "▏"
    name, length = item_name(item), format_ns(item.end_ns - item.start_ns)
    lines = [f"{name}  {length}"] if len(rows) == 1 else [name, length]
    for number, row in enumerate(rows):
        label = lines[number] if number < len(lines) and width >= _NAMED_CELLS else ""
        row.put(first, f"{edge}{_fitting(label, width - 1)}", style)


def _fitting(label: str, width: int) -> str:
    return f"{label[: width - 1]}…" if len(label) > width > 1 else f"{label:<{width}}"[:width]


def track_rows(values: Sequence[float | None], top: float, height: int, style: Style) -> list[Line]:
    """The rows of a figure over time from top to bottom."""
    rows = [Line(len(values), style) for _ in range(height)]
    for cell, value in enumerate(values):
        filled = 0 if not value or top <= 0 else max(1, round(value / top * height * LEVELS))
        for number, row in enumerate(reversed(rows)):
            row.put(cell, _BLOCKS[min(max(filled - number * LEVELS, 0), LEVELS)], style)
    return rows


def figure(value: float, unit: str) -> str:
    """The largest value of a track with its unit."""
    if unit == "bytes":
        return format_bytes(value)
    return format_share(value) if unit == "share" else f"{value:.0f} {unit}"


def axis(view: View, origin_ns: int, style: Style) -> Line:
    """Times since the origin at round distances."""
    row = Line(view.cells, style)
    step = tick_step(view.cell_ns, _TICK_CELLS)
    tick = -((origin_ns - view.start_ns) // step) * step  # the first that is not before the view
    while tick + origin_ns < view.end_ns:
        row.put(view.cell_of(tick + origin_ns), f"│{moment(tick, step)}", style)
        tick += step
    return row


def marks_row(marks: Sequence[Mark], view: View, style: Style) -> Line:
    """The places of the findings; a long one as a bracket, a short one as an arrow head."""
    row = Line(view.cells, style)
    for mark in reversed(marks):  # the principal finding is painted last, over the others
        first, last = view.cell_of(mark.start_ns), view.cell_of(max(mark.end_ns - 1, mark.start_ns))
        if last < 0 or first >= view.cells:
            continue
        if last - first > 1:
            line = f"├{'─' * (last - first - 1)}┤"
            row.put(first, line, style)
        else:
            row.put(first, "▼", style)
        place = max(first + 1, 0)
        row.put(place, mark.label if last - first <= 1 else f" {mark.label} "[: max(last - place, 0)], style)
    return row


def strip_of(label: str, width: int, row: Line, label_style: Style) -> Strip:
    """A label and a row of cells."""
    return Strip([Segment(f"{label[: width - 1]:<{width}}", label_style), *row.segments()])
