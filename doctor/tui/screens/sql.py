"""A query on the case, read-only; the answer as a table, or exported whole."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.types import CSSPathType
from textual.widgets import DataTable, OptionList, Static, TextArea
from textual.widgets.option_list import Option

from doctor.case.free_query import (
    EXAMPLE_QUERY,
    QueryResult,
    TableNote,
    export_query,
    first_rows_of,
    run_query,
    table_notes,
)
from doctor.errors import DoctorError
from doctor.reports.wording import clean
from doctor.tui.case_desk import CaseDesk
from doctor.tui.screens.ask_file import AskFileScreen
from doctor.tui.screens.base import DoctorScreen
from doctor.units import format_count

_MOST_ROWS = 500
_LONGEST_CELL = 80


class SqlScreen(DoctorScreen):
    """The query above its answer; the tables of the case beside them where there is room."""

    MODE = "sql"
    CSS_PATH: ClassVar[CSSPathType | None] = ["base.tcss", "sql.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f5,ctrl+r", "run", "Run", key_display="^r", priority=True),
        Binding("ctrl+s", "export", "Export", key_display="^s", priority=True),
        Binding("f6,ctrl+g", "tables", "Tables", key_display="^g", priority=True),
        Binding("escape", "stop", "Leave query", key_display="esc"),
    ]

    def compose_body(self) -> ComposeResult:
        """Tables at the left, query and answer at the right."""
        with Horizontal():
            yield OptionList(id="tables")
            with Vertical():
                yield TextArea(EXAMPLE_QUERY, id="query", tab_behavior="focus")
                yield Static("Ctrl+R runs the query, Ctrl+S exports its whole answer", id="caption", classes="caption")
                yield DataTable(cursor_type="cell", zebra_stripes=True)

    def on_resize(self) -> None:
        """Tables stay in sight where there is room."""
        self.set_class(self.size.width >= 120, "-wide")

    def case_opened(self, case: CaseDesk) -> None:
        """List the tables."""
        self.start(partial(self._list_tables, case), "tables")

    async def _list_tables(self, case: CaseDesk) -> None:
        try:
            notes = await case.ask(table_notes)
        except DoctorError as error:
            self._say(error.message, is_error=True)
            return
        self.query_one("#tables", OptionList).set_options(_option(note) for note in notes)
        self.query_one("#query", TextArea).focus()

    @work(exclusive=True, group="query")
    async def action_run(self) -> None:
        """Run the query."""
        if self.case is None:
            return
        self._say("running ... Esc stops it")
        try:
            result = await self.case.ask(run_query, self._query, _MOST_ROWS)
        except DoctorError as error:
            self._say(error.message, is_error=True)
            return
        self._show(result)

    @work(exclusive=True, group="export")
    async def action_export(self) -> None:
        """Ask for a file and write the whole answer to it."""
        if self.case is None:
            return
        target = await self.app.push_screen_wait(AskFileScreen("Export the whole answer to", "answer.parquet"))
        if target is None:
            return
        self._say(f"writing {target} ...")
        try:
            count = await self.case.ask(export_query, self._query, Path(target).expanduser())
        except DoctorError as error:
            self._say(error.message, is_error=True)
            return
        self._say(f"{format_count(count)} rows in {target}")

    def action_stop(self) -> None:
        """Stop a query that is running; otherwise leave the editor, so that the number keys change screens."""
        if self.case is not None:
            self.case.interrupt()
        self.query_one(DataTable).focus()

    def action_tables(self) -> None:
        """Go to the list of tables."""
        self.add_class("-tables")
        self.query_one("#tables", OptionList).focus()

    @on(OptionList.OptionSelected)
    def _table_chosen(self, event: OptionList.OptionSelected) -> None:
        self.remove_class("-tables")
        query = self.query_one("#query", TextArea)
        query.text = first_rows_of(event.option.id or "")
        query.focus()
        self.action_run()

    @property
    def _query(self) -> str:
        return self.query_one("#query", TextArea).text

    def _say(self, text: str, *, is_error: bool = False) -> None:
        self.query_one("#caption", Static).update(Content.styled(text, "$error" if is_error else ""))

    def _show(self, result: QueryResult) -> None:
        table: DataTable[str] = self.query_one(DataTable)
        table.clear(columns=True)
        for place, column in enumerate(result.columns):
            table.add_column(column, key=f"{place}")
        for row in result.rows:
            table.add_row(*(_cell(value) for value in row))
        more = "the first " if result.has_more else ""
        self._say(f"{more}{format_count(len(result.rows))} rows; Ctrl+S exports all")


def _option(note: TableNote) -> Option:
    rows = "" if note.row_count is None else format_count(note.row_count)
    return Option(Content.assemble(f"{note.name:<18}", (f"{rows:>10}", "$foreground-muted")), id=note.name)


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = clean(f"{value:,.6g}" if isinstance(value, float) else str(value))
    return text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 1]}…"
