"""Everything about one finding: what to change by framework, evidence, what was ruled out, how to verify."""

from __future__ import annotations

from dataclasses import dataclass

from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from doctor.diagnosis.outcome import Diagnosis, RankedFinding
from doctor.reports import unchecked, wording
from doctor.rule import Evidence, Fix
from doctor.tui.widgets.diagnosis.framework_bar import FrameworkBar

_MUTED = "$foreground-muted"


@dataclass(frozen=True)
class _Framework:
    """The fixes of one framework."""

    target: str
    fixes: tuple[Fix, ...]

    @property
    def text(self) -> str:
        """What goes to the clipboard: the settings as they are typed."""
        return "\n".join(wording.clean(fix.setting) for fix in self.fixes)


class FindingPage(VerticalScroll):
    """The page of the highlighted finding; the framework chosen once stays chosen for the next finding."""

    DEFAULT_CSS = """
    FindingPage { height: 1fr; padding: 0 1; }
    FindingPage Static { height: auto; }
    FindingPage .title { text-style: bold; margin-top: 1; color: $primary; }
    FindingPage #summary { margin-bottom: 1; }
    FindingPage #fix { padding: 0 1; }
    FindingPage #evidence { height: auto; border: none; padding: 0; background: $background; }
    """

    class PlaceChosen(Message):
        """A piece of evidence with a place was chosen."""

        def __init__(self, evidence: Evidence) -> None:
            self.evidence = evidence
            super().__init__()

    def __init__(self) -> None:
        self._finding: RankedFinding | None = None
        self._frameworks: tuple[_Framework, ...] = ()
        super().__init__()

    def compose(self) -> ComposeResult:
        """The parts in order of use."""
        yield Static(id="summary")
        yield FrameworkBar()
        yield Static(id="fix")
        yield Static("Evidence  (Enter: see it on the time-line)", classes="title", id="evidence-title")
        yield OptionList(id="evidence")
        yield Static(id="rest")

    def show(self, diagnosis: Diagnosis, finding: RankedFinding) -> None:
        """Show one finding of a diagnosis."""
        self._finding = finding
        self._frameworks = _by_framework(finding)
        self.query_one("#summary", Static).update(Content(wording.sentence(finding.summary)))
        self.query_one(FrameworkBar).show(tuple(framework.target for framework in self._frameworks))
        self._show_fix()
        self._show_evidence(diagnosis, finding)
        self.query_one("#rest", Static).update(_rest(diagnosis, finding))
        self.scroll_home(animate=False)

    def next_framework(self) -> None:
        """Turn to the next tab."""
        self.query_one(FrameworkBar).action_turn(1)

    def fix_text(self) -> tuple[str, str] | None:
        """The settings of the chosen framework and its name; None where the finding has no fix."""
        framework = self._framework()
        return None if framework is None else (framework.text, wording.framework(framework.target))

    @on(FrameworkBar.Chosen)
    def _framework_chosen(self, event: FrameworkBar.Chosen) -> None:
        event.stop()
        self._show_fix()

    @on(OptionList.OptionSelected, "#evidence")
    def _evidence_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if self._finding is not None:
            self.post_message(self.PlaceChosen(self._finding.evidence[event.option_index]))

    def _framework(self) -> _Framework | None:
        chosen = self.query_one(FrameworkBar).chosen
        return next((entry for entry in self._frameworks if entry.target == chosen), None)

    def _show_fix(self) -> None:
        framework = self._framework()
        self.query_one("#fix", Static).update("" if framework is None else _fix(framework))

    def _show_evidence(self, diagnosis: Diagnosis, finding: RankedFinding) -> None:
        evidence = self.query_one("#evidence", OptionList)
        evidence.set_options(_evidence(diagnosis, finding))
        for widget in (evidence, self.query_one("#evidence-title")):
            widget.display = bool(finding.evidence)


def leads_to_a_place(evidence: Evidence) -> bool:
    """True where the evidence names a stretch of the recording."""
    where = evidence.where
    return where is not None and (where.start_ns is not None or bool(where.range))


def _by_framework(finding: RankedFinding) -> tuple[_Framework, ...]:
    shown = wording.shown_fixes(finding)
    targets = dict.fromkeys(fix.target for fix in shown)
    return tuple(_Framework(target, tuple(fix for fix in shown if fix.target == target)) for target in targets)


def _fix(framework: _Framework) -> Content:
    lines: list[Content] = []
    for fix in framework.fixes:
        lines.append(Content.styled(wording.clean(fix.setting), "bold"))
        if fix.why:
            lines.append(Content.styled(wording.clean(fix.why), _MUTED))
    return Content("\n").join(lines)


def _evidence(diagnosis: Diagnosis, finding: RankedFinding) -> list[Option]:
    width = max((len(wording.clean(entry.name)) for entry in finding.evidence), default=0)
    options = []
    for entry in finding.evidence:
        place = wording.place(entry.where, diagnosis.window)
        options.append(
            Option(
                Content.assemble(
                    "→ " if leads_to_a_place(entry) else "  ",
                    f"{wording.clean(entry.name):<{width}}  ",
                    (wording.evidence_value(entry), "bold"),
                    (f"  {place}" if place else "", _MUTED),
                )
            )
        )
    return options


def _rest(diagnosis: Diagnosis, finding: RankedFinding) -> Content:
    ruled_out = [f"{entry.rule}: {wording.clean(entry.because)}" for entry in diagnosis.ruled_out]
    not_run = [f"{missing}: {rules}" for missing, rules in unchecked.not_run_groups(diagnosis)]
    sections = (
        ("Looks guilty, is not", ruled_out),
        ("Verify", [wording.sentence(finding.verify)] if finding.verify else []),
        ("The manual page", [f"doctor explain {finding.rule}"]),
        ("Recording", list(wording.recording_lines(diagnosis))),
        ("Not checked", not_run),
    )
    parts = [
        Content.assemble((f"\n{title}\n", "bold $primary"), "\n".join(lines)) for title, lines in sections if lines
    ]
    return Content("\n").join(parts)
