"""Engine steps: length by step, prefill and decode, outliers."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.types import CSSPathType
from textual.widgets import DataTable, Static

from doctor.case.step_queries import PhaseRow, StepRow, phases, step_columns, steps
from doctor.errors import DoctorError
from doctor.tui.case_desk import CaseDesk
from doctor.tui.looks import colour
from doctor.tui.messages import Place, ShowPlace
from doctor.tui.screens.base import DoctorScreen
from doctor.tui.widgets.steps.chart import StepChart
from doctor.units import format_count, format_counted, format_ns

_MOST_ROWS = 1_000
_ENOUGH_FOR_P99 = 100
_COLUMNS = ("step", "phase", "length", "x median", "starts", "device ops", "device time")


class StepsScreen(DoctorScreen):
    """A chart of all steps above the table; Enter leads to the step on the time-line."""

    MODE = "steps"
    CSS_PATH: ClassVar[CSSPathType | None] = ["base.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = [Binding("s", "sort", "By time or length")]

    def __init__(self) -> None:
        self._rows: tuple[StepRow, ...] = ()
        self._shown: list[StepRow] = []
        self._is_by_length = False
        super().__init__()

    def compose_body(self) -> ComposeResult:
        """Chart, phases, table."""
        yield StepChart()
        yield Static(id="phases", classes="caption")
        yield DataTable(cursor_type="row", zebra_stripes=True)

    def case_opened(self, case: CaseDesk) -> None:
        """Ask for the steps once the chart has a width."""
        self.call_after_refresh(self._ask, case)

    def on_resize(self) -> None:
        """As many columns as there is room for."""
        if self._rows and self.case is not None:
            self.call_after_refresh(self._ask, self.case)

    def _ask(self, case: CaseDesk) -> None:
        self.start(partial(self._load, case), "steps")

    async def _load(self, case: CaseDesk) -> None:
        chart = self.query_one(StepChart)
        try:
            columns = await case.ask(step_columns, chart.columns)
            found = await case.ask(phases)
            self._rows = await case.ask(steps, _MOST_ROWS)
        except DoctorError as error:
            self.notify(error.message, severity="error", markup=False)
            return
        chart.show(columns)
        self.query_one("#phases", Static).update(_phases(found, len(self._rows)))
        self._fill()

    def _fill(self) -> None:
        table: DataTable[Text | str] = self.query_one(DataTable)
        table.clear(columns=True)
        table.add_columns(*_COLUMNS)
        self._shown = sorted(
            self._rows, key=lambda row: row.start_ns - row.end_ns if self._is_by_length else row.start_ns
        )
        red = colour(self.app, "error")
        origin_ns = min((row.start_ns for row in self._rows), default=0)
        for row in self._shown:
            table.add_row(*_cells(row, origin_ns, red))
        table.focus()

    def action_sort(self) -> None:
        """Change between order of time and longest first."""
        self._is_by_length = not self._is_by_length
        self._fill()

    @on(DataTable.RowSelected)
    def _row_chosen(self, event: DataTable.RowSelected) -> None:
        row = self._shown[event.cursor_row]
        self.post_message(ShowPlace(Place(row.start_ns, row.end_ns, _name(row))))


def _phases(found: tuple[PhaseRow, ...], row_count: int) -> Content:
    if not found:
        return Content("Neither annotations nor repeating work tell where a step begins.")
    lines = [
        Content.assemble(
            (f"{phase.phase:<8}", "bold"),
            f"{format_counted(phase.count, 'step'):>9}  mean {format_ns(phase.mean_ns)}  ",
            f"median {format_ns(phase.median_ns)}  {_tail(phase)}  ",
            (format_counted(phase.outlier_count, "outlier"), "$error" if phase.outlier_count else "$foreground-muted"),
        )
        for phase in found
    ]
    if row_count < sum(phase.count for phase in found):
        lines.append(Content(f"The table holds the {format_count(row_count)} longest."))
    return Content("\n").join(lines)


def _tail(phase: PhaseRow) -> str:
    """The longest of few steps; of many what all but the hundredth stay under."""
    if phase.count < _ENOUGH_FOR_P99:
        return f"longest {format_ns(phase.longest_ns)}"
    return f"p99 {format_ns(phase.p99_ns)}"


def _cells(row: StepRow, origin_ns: int, outlier_colour: str) -> tuple[Text | str, ...]:
    factor = f"{row.times_median:.2f}"
    return (
        _name(row),
        row.phase,
        f"{format_ns(row.end_ns - row.start_ns):>9}",
        Text(f"{factor} ▲", style=f"bold {outlier_colour}") if row.is_outlier else factor,
        f"+{format_ns(row.start_ns - origin_ns)}",
        format_count(row.op_count) if row.step_id is not None else "",
        format_ns(row.device_ns) if row.step_id is not None else "",
    )


def _name(row: StepRow) -> str:
    return f"step {row.step_id}" if row.step_id is not None else row.phase
