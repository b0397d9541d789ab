"""The diagnosis as workflow commands of GitHub Actions: an annotation a finding."""

from __future__ import annotations

from doctor.diagnosis.outcome import Diagnosis, RankedFinding
from doctor.reports import wording
from doctor.reports.presentation import Presentation

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def render(diagnosis: Diagnosis, presentation: Presentation) -> str:
    """One line a finding, or one that says that nothing was found."""
    if not diagnosis.findings:
        return f"::notice title=doctor::{_data(wording.verdict(diagnosis))}\n"
    return "".join(_line(finding) for finding in diagnosis.findings)


def _line(finding: RankedFinding) -> str:
    command = _COMMANDS[wording.level_of(finding.severity)]
    title = f"{finding.severity.label}: {wording.clean(finding.title)}"
    return f"::{command} title={_property(title)}::{_data(wording.message(finding))}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
