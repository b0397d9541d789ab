"""Lengths of steps as columns; outliers carry a mark as well as a colour."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from doctor.case.step_queries import StepColumn
from doctor.units import format_ns

_BLOCKS = " ▁▂▃▄▅▆▇█"
_LABEL = 10
_WIDEST_COLUMN = 6


class StepChart(Static):
    """One column a step, or a few neighbouring steps where there are more than columns."""

    DEFAULT_CSS = """
    StepChart { height: 8; padding: 0 1; background: $surface; }
    """

    @property
    def columns(self) -> int:
        """How many columns there is room for."""
        return max(self.size.width - _LABEL - 2, 1)

    def show(self, columns: Sequence[StepColumn]) -> None:
        """Draw the columns; the highest fills the height."""
        if not columns:
            self.update("No steps could be told in this recording.")
            return
        height = max(self.size.height - 1, 1)
        top = max(1, *(column.longest_ns for column in columns))
        width = max(1, min(_WIDEST_COLUMN, self.columns // len(columns)))
        lines = [_line(columns, top, height, row, width) for row in reversed(range(height))]
        marks = "".join(("▲" if column.is_outlier else " ").center(width) for column in columns)
        lines.append(Content.assemble(" " * _LABEL, (marks, "$error"), ("▲ outlier" if "▲" in marks else "", "$error")))
        self.update(Content("\n").join(lines))


def _line(columns: Sequence[StepColumn], top: int, height: int, row: int, width: int) -> Content:
    label = {height - 1: format_ns(top), 0: "0"}.get(row, "")
    parts = [Content(f"{label:>{_LABEL - 1}} ")]
    for column in columns:
        filled = max(1, round(column.longest_ns / top * height * 8))
        block = _BLOCKS[min(max(filled - row * 8, 0), 8)]
        text = block * max(width - 1, 1) + (" " if width > 1 else "")
        parts.append(Content.styled(text, "$error" if column.is_outlier else "$primary"))
    return Content("").join(parts)
