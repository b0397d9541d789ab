"""A comparison for people: figures side by side, findings gone and new, kernels slower and faster."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from doctor.comparison.changes import Comparison, FigureChange, KernelChange
from doctor.reports.presentation import Presentation
from doctor.reports.text_console import as_text
from doctor.units import format_ns

_WIDEST = 120
_LONGEST_NAME = 70
_UNKNOWN = "-"


def comparison_page(comparison: Comparison, presentation: Presentation) -> str:
    """The comparison as text that ends in a line break."""
    parts: list[RenderableType] = [_figures(comparison.figures), Text()]
    for title, rules in (("Gone", comparison.gone), ("New", comparison.new), ("Still there", comparison.stayed)):
        if rules:
            parts.append(Text(f"{title}: {', '.join(rules)}"))
    if comparison.kernels:
        parts += [Text(), _kernels(comparison.kernels)]
    return as_text(Group(*parts), min(presentation.width, _WIDEST), is_coloured=presentation.is_coloured)


def _figures(figures: tuple[FigureChange, ...]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    for _ in range(3):
        table.add_column(justify="right")
    table.add_row("figure", "before", "after", "after/before", style="bold")
    for change in figures:
        ratio = _UNKNOWN if change.ratio is None else f"{change.ratio:.2f}"
        table.add_row(change.name, _number(change.before), _number(change.after), ratio)
    return table


def _kernels(kernels: tuple[KernelChange, ...]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        table.add_column(justify="right")
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_row("before", "after", "kernel", style="bold")
    for change in kernels:
        name = "".join(letter if letter.isprintable() else " " for letter in change.name)[:_LONGEST_NAME]
        table.add_row(_time(change.before_ns), _time(change.after_ns), name)
    return table


def _number(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.4g}"


def _time(nanoseconds: int) -> str:
    return format_ns(nanoseconds) if nanoseconds else _UNKNOWN
