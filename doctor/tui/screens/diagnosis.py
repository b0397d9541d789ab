"""Findings ranked, the highlighted one in full: evidence, what was ruled out, what to change, how to verify."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.types import CSSPathType
from textual.widgets import OptionList

from doctor.diagnosis.outcome import Diagnosis, RankedFinding
from doctor.rule import Evidence
from doctor.tui.messages import CopyText, Place, ShowPlace
from doctor.tui.screens.base import DoctorScreen
from doctor.tui.snapshot import Snapshot
from doctor.tui.widgets.diagnosis.finding_list import FindingList
from doctor.tui.widgets.diagnosis.finding_page import FindingPage, leads_to_a_place
from doctor.tui.widgets.diagnosis.verdict import Verdict


class DiagnosisScreen(DoctorScreen):
    """The first screen: the fault, what its cure wins, the setting to change."""

    MODE = "diagnosis"
    CSS_PATH: ClassVar[CSSPathType | None] = ["base.tcss", "diagnosis.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "show_place", "On the time-line"),
        Binding("c", "copy_fix", "Copy fix"),
        Binding("f", "next_framework", "Framework"),
    ]

    def __init__(self) -> None:
        self._diagnosis: Diagnosis | None = None
        super().__init__()

    def compose_body(self) -> ComposeResult:
        """Verdict above, list and page below or side by side."""
        yield Verdict()
        with Container(id="findings"):
            yield FindingList(id="list")
            yield FindingPage()

    def is_waiting(self, snapshot: Snapshot) -> bool:
        """Only the diagnosis itself is worth showing here."""
        return snapshot.diagnosis is None

    def snapshot_changed(self, snapshot: Snapshot) -> None:
        """Show a diagnosis once it is there."""
        if snapshot.diagnosis is self._diagnosis or snapshot.diagnosis is None:
            self._diagnosis = snapshot.diagnosis
            return
        self._diagnosis = snapshot.diagnosis
        self.query_one(Verdict).show(snapshot.diagnosis)
        findings = self.query_one(FindingList)
        findings.show(snapshot.diagnosis)
        self.query_one("#findings").display = bool(snapshot.diagnosis.findings)
        findings.focus()

    def repaint(self) -> None:
        """The verdict is painted in the theme's colours."""
        if self._diagnosis is not None:
            self.query_one(Verdict).show(self._diagnosis)

    def on_resize(self) -> None:
        """Side by side where there is room."""
        self.set_class(self.size.width >= 120, "-wide")

    @on(OptionList.OptionHighlighted, "#list")
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        finding = self._finding()
        if self._diagnosis is not None and finding is not None:
            self.query_one(FindingPage).show(self._diagnosis, finding)

    @on(OptionList.OptionSelected, "#list")
    def _selected(self, event: OptionList.OptionSelected) -> None:
        self.action_show_place()

    @on(FindingPage.PlaceChosen)
    def _place_chosen(self, event: FindingPage.PlaceChosen) -> None:
        self._go_to(event.evidence)

    def action_show_place(self) -> None:
        """Show the first place that the finding's evidence names."""
        finding = self._finding()
        if finding is None:
            return
        for evidence in finding.evidence:
            if leads_to_a_place(evidence):
                self._go_to(evidence)
                return
        self._go_to_window(finding)

    def action_copy_fix(self) -> None:
        """Put the settings of the chosen framework on the clipboard."""
        fix = self.query_one(FindingPage).fix_text()
        if fix is None:
            self.notify("This finding has no setting to change", severity="warning")
            return
        text, framework = fix
        self.post_message(CopyText(text, f"for {framework}"))

    def action_next_framework(self) -> None:
        """Turn to the next framework's fixes."""
        self.query_one(FindingPage).next_framework()

    def _finding(self) -> RankedFinding | None:
        option = self.query_one(FindingList).highlighted_option
        if option is None or option.id is None or self._diagnosis is None:
            return None
        return self._diagnosis.findings[int(option.id)]

    def _go_to(self, evidence: Evidence) -> None:
        where = evidence.where
        if where is None or not leads_to_a_place(evidence):
            self.notify("This figure is of the whole window: it has no place of its own")
            return
        place = Place(where.start_ns, where.end_ns, evidence.name, where.range, where.device_id, where.stream_id)
        self.post_message(ShowPlace(place))

    def _go_to_window(self, finding: RankedFinding) -> None:
        window = self._diagnosis.window if self._diagnosis is not None else None
        if window is None:
            self.notify("This evidence holds no time-line", severity="warning")
            return
        self.post_message(ShowPlace(Place(window.start_ns, window.end_ns, finding.title)))
