"""The head of the diagnosis: the fault, what its cure wins, the setting to change. Legible without any key press."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from doctor.diagnosis.outcome import Diagnosis, RankedFinding
from doctor.reports import wording
from doctor.tui.looks import SEVERITY_COLOURS

_LABEL = 9
_LABEL_STYLE = "$foreground-muted"


class Verdict(Static):
    """Up to five lines about the principal finding, or that there is none."""

    DEFAULT_CSS = """
    Verdict { height: auto; max-height: 8; padding: 0 1; background: $surface; }
    """

    def show(self, diagnosis: Diagnosis) -> None:
        """Show what the diagnosis says first."""
        lines = _guilty(diagnosis.findings[0]) if wording.is_guilty(diagnosis) else [_innocent(diagnosis)]
        lines += [
            _labelled("Caution", Content.styled(line, "$warning")) for line in wording.incomplete_lines(diagnosis)
        ]
        measured = " · ".join(wording.vitals_parts(diagnosis))
        if measured:
            lines.append(_labelled("Measured", Content(measured)))
        self.update(Content("\n").join(lines))


def _guilty(finding: RankedFinding) -> list[Content]:
    badge = f"bold $background on {SEVERITY_COLOURS[finding.severity]}"
    head = Content.assemble(
        (f" {finding.severity.label.upper()} ", badge), "  ", (wording.clean(finding.title), "bold")
    )
    lines = [head]
    win = wording.gain_sentence(finding.gain)
    if win:
        lines.append(_labelled("To win", Content.styled(win, "bold $success")))
    if finding.fixes:
        fix = finding.fixes[0]
        setting = Content.styled(wording.clean(fix.setting), "bold")
        lines.append(_labelled("Change", Content.assemble(f"{wording.framework(fix.target)}: ", setting)))
    return lines


def _innocent(diagnosis: Diagnosis) -> Content:
    style = "bold $success" if diagnosis.window is not None else "bold $warning"
    return Content.styled(wording.verdict(diagnosis), style)


def _labelled(label: str, text: Content) -> Content:
    return Content.assemble((f"{label:<{_LABEL}}", _LABEL_STYLE), text)
