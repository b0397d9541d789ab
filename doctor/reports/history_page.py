"""Diagnoses over time for people: one line each, and a trend a figure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from doctor.history.entries import STEP_FIGURE, HistoryEntry
from doctor.reports import wording
from doctor.reports.presentation import Presentation
from doctor.reports.text_console import as_text
from doctor.units import format_count, format_ns, format_share, format_speedup

_WIDEST = 120
_TREND_WIDTH = 40
_BLOCKS, _ASCII = "▁▂▃▄▅▆▇█", "_.-=+*#@"
_SHARES = {"gpu_busy", "exposed_communication", "exposed_copy"}
_STYLES = {"critical": "bold red", "high": "red", "medium": "yellow", "low": "cyan"}


def history_page(entries: Sequence[HistoryEntry], presentation: Presentation) -> str:
    """The list, oldest first, and the trends of all figures that were seen twice and are not nothing."""
    if not entries:
        return "No diagnosis is kept in this history.\n"
    parts: list[RenderableType] = [_list(entries)]
    trends = _trends(entries, is_unicode=presentation.is_unicode)
    if trends is not None:
        parts += [Text(), trends]
    return as_text(Group(*parts), min(presentation.width, _WIDEST), is_coloured=presentation.is_coloured)


def _list(entries: Sequence[HistoryEntry]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(ratio=2, no_wrap=True, overflow="ellipsis")
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_row("when (UTC)", "worst", "a step", "first finding", "evidence", style="bold")
    for entry in entries:
        step = entry.figures.get(STEP_FIGURE)
        worst = entry.worst_severity or "healthy"
        table.add_row(
            datetime.fromtimestamp(entry.recorded_ms / 1e3, UTC).strftime("%Y-%m-%d %H:%M"),
            Text(worst, _STYLES.get(worst, "")),
            "-" if step is None else format_ns(step * 1e9),
            _first_finding(entry),
            wording.clean(", ".join(file.name for file in entry.files)),
        )
    return table


def _first_finding(entry: HistoryEntry) -> str:
    if not entry.findings:
        return "-"
    first = entry.findings[0]
    factor = first.speedup_expected or first.speedup_bound
    promise = "" if first.speedup_expected else "at most "
    return wording.clean(first.rule) + (f" ({promise}{format_speedup(factor)})" if factor else "")


def _trends(entries: Sequence[HistoryEntry], *, is_unicode: bool) -> Table | None:
    names = sorted({name for entry in entries for name in entry.figures})
    table = Table.grid(padding=(0, 2, 0, 0))
    for place in range(5):
        table.add_column(justify="right" if place in {1, 3} else "left", no_wrap=True)
    table.add_row("figure", "first", "trend", "last", "lowest to highest", style="bold")
    for name in names:
        values = [entry.figures[name] for entry in entries if name in entry.figures]
        if len(values) > 1 and any(values):
            low, high = min(values), max(values)
            table.add_row(
                name.removesuffix("_seconds").removesuffix("_us").replace("_", " "),
                _worded(name, values[0]),
                trend_line(values, is_unicode=is_unicode),
                _worded(name, values[-1]),
                f"{_worded(name, low)} to {_worded(name, high)}",
            )
    return table if table.row_count > 1 else None


def trend_line(values: Sequence[float], *, is_unicode: bool) -> str:
    """One character a value, its height between the lowest and the highest; the newest that fit."""
    marks = _BLOCKS if is_unicode else _ASCII
    shown = values[-_TREND_WIDTH:]
    low, high = min(shown), max(shown)
    if high == low:
        return marks[len(marks) // 2] * len(shown)
    return "".join(marks[round((value - low) / (high - low) * (len(marks) - 1))] for value in shown)


def _worded(name: str, value: float) -> str:
    if name in _SHARES:
        return format_share(value)
    if name.endswith("_seconds"):
        return format_ns(value * 1e9)
    if name.endswith("_us"):
        return format_ns(value * 1e3)
    return format_count(round(value, 1))
