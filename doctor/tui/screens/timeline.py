"""GPU streams, host threads, annotation ranges and figures over time, at any zoom."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.types import CSSPathType
from textual.widgets import Input

from doctor.case.timeline.drawing import extent, lanes
from doctor.case.timeline.places import named_after, range_place
from doctor.case.timeline.tracks import tracks
from doctor.diagnosis.outcome import Diagnosis
from doctor.errors import DoctorError
from doctor.reports import wording
from doctor.tui.case_desk import CaseDesk
from doctor.tui.messages import Place
from doctor.tui.screens.base import DoctorScreen
from doctor.tui.snapshot import Snapshot
from doctor.tui.widgets.timeline.canvas import TimelineCanvas
from doctor.tui.widgets.timeline.details import Details, Legend
from doctor.tui.widgets.timeline.painting import Mark


class TimelineScreen(DoctorScreen):
    """The recording drawn in cells, with the item under the cursor in words."""

    MODE = "timeline"
    CSS_PATH: ClassVar[CSSPathType | None] = ["base.tcss", "timeline.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "Search", key_display="/"),
        Binding("z", "window", "Window", show=False),
        Binding("escape", "leave", "Back"),
    ]

    def __init__(self) -> None:
        self._is_open = False
        self._pending: Place | None = None
        self._diagnosis: Diagnosis | None = None
        self._shown: TimelineCanvas.Looked | None = None
        super().__init__()

    def compose_body(self) -> ComposeResult:
        """Search line, time-line, legend, details."""
        yield Input(placeholder="part of a kernel's, call's or range's name", id="search")
        yield TimelineCanvas()
        yield Legend()
        yield Details()

    def case_opened(self, case: CaseDesk) -> None:
        """Ask what there is to draw."""
        self._is_open = False
        self.start(partial(self._open, case), "open")

    def repaint(self) -> None:
        """The lanes are painted in colours for this background."""
        self.query_one(TimelineCanvas).paint()
        if self._shown is not None:
            self._show_legend(self._shown)

    async def _open(self, case: CaseDesk) -> None:
        canvas = self.query_one(TimelineCanvas)
        try:
            found = await case.ask_timeline(extent)
            if found is None:
                self.query_one(Details).update("This evidence holds no time-line.")
                return
            canvas.open(case, found, await case.ask_timeline(lanes), await case.ask_timeline(tracks))
        except DoctorError as error:
            self.notify(error.message, severity="error", markup=False)
            return
        self._is_open = True
        self._mark()
        if self._pending is not None:
            self.show_place(self._pending)
        canvas.focus()

    def snapshot_changed(self, snapshot: Snapshot) -> None:
        """Mark the places of the findings once they are known."""
        if snapshot.diagnosis is not self._diagnosis:
            self._diagnosis = snapshot.diagnosis
            if self._is_open:
                self._mark()

    def show_place(self, place: Place) -> None:
        """Bring a place into the middle, as soon as the case is open."""
        self._pending = place
        if self._is_open:
            self._pending = None
            self.start(partial(self._show_place, place), "place")

    async def _show_place(self, place: Place) -> None:
        start_ns, end_ns = place.start_ns, place.end_ns
        if start_ns is None and place.range_name is not None and self.case is not None:
            try:
                start_ns, end_ns = await self.case.ask_timeline(range_place, place.range_name) or (None, None)
            except DoctorError as error:
                self.notify(error.message, severity="error", markup=False)
        if start_ns is None:
            self.notify(f"The recording does not show where '{place.label}' is", markup=False)
            return
        canvas = self.query_one(TimelineCanvas)
        canvas.show(start_ns, end_ns if end_ns is not None else start_ns, place.device_id, place.stream_id)
        canvas.focus()

    def _mark(self) -> None:
        canvas = self.query_one(TimelineCanvas)
        if self._diagnosis is None:
            return
        window = self._diagnosis.window
        canvas.mark(_marks(self._diagnosis), None if window is None else (window.start_ns, window.end_ns))

    @on(TimelineCanvas.Looked)
    def _looked(self, looked: TimelineCanvas.Looked) -> None:
        self.query_one(Details).show(looked, self.query_one(TimelineCanvas).origin_ns)
        self._shown = looked
        self._show_legend(looked)

    def _show_legend(self, looked: TimelineCanvas.Looked) -> None:
        self.query_one(Legend).show(looked, is_dark=self.app.current_theme.dark)

    def action_search(self) -> None:
        """Type a part of a name."""
        self.add_class("-searching")
        self.query_one(Input).focus()

    @on(Input.Submitted)
    async def _search(self, event: Input.Submitted) -> None:
        """Go to the next item of that name; Enter again goes on."""
        canvas = self.query_one(TimelineCanvas)
        if self.case is None or not event.value.strip():
            return
        try:
            item = await self.case.ask_timeline(named_after, event.value.strip(), canvas.cursor_ns)
        except DoctorError as error:
            self.notify(error.message, severity="error", markup=False)
            return
        if item is None:
            self.notify(f"Nothing in the recording is called '{event.value}'", markup=False)
            return
        canvas.go_to(item)

    def action_window(self) -> None:
        """Show the window that the diagnosis speaks of."""
        window = None if self._diagnosis is None else self._diagnosis.window
        if window is not None:
            self.query_one(TimelineCanvas).show_span(window.start_ns, window.end_ns)

    async def action_leave(self) -> None:
        """Close the search line, or go back to where one came from."""
        if self.has_class("-searching"):
            self.remove_class("-searching")
            self.query_one(TimelineCanvas).focus()
            return
        await self.doctor.action_back()


def _marks(diagnosis: Diagnosis) -> list[Mark]:
    """The first place of each finding that has one, with its number in the list of findings."""
    marks = []
    for number, finding in enumerate(wording.own_findings(diagnosis), start=1):
        places = (entry.where for entry in finding.evidence if entry.where is not None)
        where = next((where for where in places if where.start_ns is not None), None)
        if where is not None and where.start_ns is not None:
            end_ns = where.end_ns if where.end_ns is not None else where.start_ns
            marks.append(Mark(where.start_ns, end_ns, f"{number} {finding.rule}"))
    return marks
