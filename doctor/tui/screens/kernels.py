"""Kernels by name or by family: time, count, median, share; sorted, filtered, and found on the time-line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.types import CSSPathType
from textual.widgets import DataTable, Input, Static

from doctor.case.kernel_queries import KernelGroup, kernels_by_family, kernels_by_name
from doctor.case.timeline.places import longest_named
from doctor.errors import DoctorError
from doctor.reports.wording import clean
from doctor.tui.case_desk import CaseDesk
from doctor.tui.looks import colour
from doctor.tui.messages import Place, ShowPlace
from doctor.tui.names import short_name
from doctor.tui.screens.base import DoctorScreen
from doctor.tui.snapshot import Snapshot
from doctor.units import format_count, format_ns, format_share

_BAR_CELLS = 4
_OTHER_CELLS = 74
_LEAST_NAME_CELLS = 22
_BLOCKS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True)
class _Column:
    """A column of the table: its heading, and what it is sorted by, largest first but for texts."""

    heading: str
    key: Callable[[KernelGroup], float | str]
    is_text: bool = False


_COLUMNS = (
    _Column("share", lambda group: group.share),
    _Column("time", lambda group: group.total_ns),
    _Column("count", lambda group: group.count),
    _Column("median", lambda group: group.median_ns),
    _Column("longest", lambda group: group.longest_ns),
    _Column("kernel", lambda group: group.name, is_text=True),
    _Column("family", lambda group: group.family, is_text=True),
)


class KernelsScreen(DoctorScreen):
    """A table of all kernels; Enter leads to the longest of its name."""

    MODE = "kernels"
    CSS_PATH: ClassVar[CSSPathType | None] = ["base.tcss", "kernels.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "Sort by"),
        Binding("g", "group", "Family or name"),
        Binding("z", "window", "Window or all"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "leave_filter", "Clear", show=False),
    ]

    def __init__(self) -> None:
        self._groups: tuple[KernelGroup, ...] = ()
        self._shown: list[KernelGroup] = []
        self._sorted_by = 0
        self._is_by_name = True
        self._window: tuple[int, int] | None = None
        self._is_in_window = True
        super().__init__()

    def compose_body(self) -> ComposeResult:
        """Filter, caption, table."""
        yield Input(placeholder="part of a kernel's name or family", id="filter")
        yield Static(id="caption", classes="caption")
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Static(id="name", classes="caption", markup=False)

    def case_opened(self, case: CaseDesk) -> None:
        """Ask for the kernels."""
        self._ask(case)

    def snapshot_changed(self, snapshot: Snapshot) -> None:
        """The window is known with the diagnosis."""
        window = None if snapshot.diagnosis is None else snapshot.diagnosis.window
        span = None if window is None else (window.start_ns, window.end_ns)
        if span != self._window:
            self._window = span
            if self.case is not None:
                self._ask(self.case)

    def _ask(self, case: CaseDesk) -> None:
        self.start(partial(self._load, case), "kernels")

    async def _load(self, case: CaseDesk) -> None:
        query = kernels_by_name if self._is_by_name else kernels_by_family
        try:
            self._groups = await case.ask(query, self._window if self._is_in_window else None)
        except DoctorError as error:
            self.notify(error.message, severity="error", markup=False)
            return
        self._fill()
        self.query_one(DataTable).focus()

    def repaint(self) -> None:
        """The bars are painted in the theme's colour."""
        self._fill()

    def _fill(self) -> None:
        column = _COLUMNS[self._sorted_by]
        word = self.query_one(Input).value.strip().lower()
        found = [group for group in self._groups if word in group.name.lower() or word in group.family]
        self._shown = sorted(found, key=column.key, reverse=not column.is_text)
        table: DataTable[Text | str] = self.query_one(DataTable)
        table.clear(columns=True)
        for place, entry in enumerate(_COLUMNS):
            arrow = " ▼" if place == self._sorted_by else ""
            table.add_column(f"{entry.heading}{arrow}", key=entry.heading)
        blue = colour(self.app, "primary")
        name_cells = max(self.size.width - _OTHER_CELLS, _LEAST_NAME_CELLS)
        for group in self._shown:
            table.add_row(*_cells(group, blue, name_cells))
        self.query_one("#caption", Static).update(self._caption(column))

    def _caption(self, column: _Column) -> str:
        if not self._groups:
            return "There are no kernels here."
        where = "the window" if self._is_in_window and self._window is not None else "the whole recording"
        what = "kernel names" if self._is_by_name else "families"
        total = format_ns(sum(group.total_ns for group in self._shown))
        return f"{len(self._shown)} of {len(self._groups)} {what}, {total} in {where}, by {column.heading}"

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._sorted_by = (self._sorted_by + 1) % len(_COLUMNS)
        self._fill()

    def action_group(self) -> None:
        """Change between names and families."""
        self._is_by_name = not self._is_by_name
        if self.case is not None:
            self._ask(self.case)

    def action_window(self) -> None:
        """Change between the window and the whole recording."""
        self._is_in_window = not self._is_in_window
        if self.case is not None:
            self._ask(self.case)

    def action_filter(self) -> None:
        """Type what to look for."""
        self.add_class("-filtering")
        self.query_one(Input).focus()

    def action_leave_filter(self) -> None:
        """Show all again."""
        self.query_one(Input).value = ""
        self.remove_class("-filtering")
        self.query_one(DataTable).focus()

    @on(Input.Changed)
    def _filter_changed(self) -> None:
        self._fill()

    @on(Input.Submitted)
    def _filter_done(self) -> None:
        self.query_one(DataTable).focus()

    @on(DataTable.HeaderSelected)
    def _heading_chosen(self, event: DataTable.HeaderSelected) -> None:
        self._sorted_by = event.column_index
        self._fill()

    @on(DataTable.RowHighlighted)
    def _row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        if event.cursor_row < len(self._shown):
            self.query_one("#name", Static).update(clean(self._shown[event.cursor_row].name))

    @on(DataTable.RowSelected)
    async def _row_chosen(self, event: DataTable.RowSelected) -> None:
        group = self._shown[event.cursor_row]
        if not self._is_by_name:
            self.query_one(Input).value = group.family
            self.add_class("-filtering")
            self.action_group()
            return
        if self.case is None:
            return
        try:
            item = await self.case.ask(longest_named, group.name)
        except DoctorError as error:
            self.notify(error.message, severity="error", markup=False)
            return
        if item is not None:
            self.post_message(ShowPlace(Place(item.start_ns, item.end_ns, group.name)))


def _cells(group: KernelGroup, bar_colour: str, name_cells: int) -> tuple[Text | str, ...]:
    bar = Text.assemble((_bar(group.share), bar_colour), f"{format_share(group.share):>7}")
    name = Text(short_name(group.name))
    name.truncate(name_cells, overflow="ellipsis")
    numbers = (
        format_ns(group.total_ns),
        format_count(group.count),
        format_ns(group.median_ns),
        format_ns(group.longest_ns),
    )
    return (bar, *(f"{number:>9}" for number in numbers), name, group.family)


def _bar(share: float) -> str:
    eighths = round(share * _BAR_CELLS * 8)
    full, rest = divmod(eighths, 8)
    return f"{'█' * full}{_BLOCKS[rest] if rest else ''}".ljust(_BAR_CELLS)
