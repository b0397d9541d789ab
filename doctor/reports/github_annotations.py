"""The diagnosis as workflow commands of GitHub Actions: an annotation a cause."""

from __future__ import annotations

from doctor.diagnosis.outcome import Diagnosis, RankedFinding
from doctor.reports import wording
from doctor.reports.presentation import Presentation
from doctor.reports.runs import other_runs_line

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def render(diagnosis: Diagnosis, presentation: Presentation) -> str:
    """One line a cause, or one that says that nothing was found; findings of one cause are named in one line.

    A warning for each file that was not read whole comes first, then one where evidence of other runs was left out.
    """
    lost = "".join(annotation("warning", "incomplete evidence", line) for line in wording.incomplete_lines(diagnosis))
    if line := other_runs_line(diagnosis):
        lost += annotation("warning", "other runs", line)
    if not diagnosis.findings:
        return lost + annotation("note", "doctor", wording.verdict(diagnosis))
    return lost + "".join(_line(diagnosis, finding) for finding in wording.own_findings(diagnosis))


def annotation(level: str, title: str, text: str) -> str:
    """One workflow command; `level` is error, warning or note."""
    return f"::{_COMMANDS[level]} title={_property(title)}::{_data(text)}\n"


def _line(diagnosis: Diagnosis, finding: RankedFinding) -> str:
    title = f"{finding.severity.label}: {wording.clean(finding.title)}"
    text = wording.message(finding, wording.followers(diagnosis, finding))
    return annotation(wording.level_of(finding.severity), title, text)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
