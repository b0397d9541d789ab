"""Which outputs there are, and how to get one."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from doctor.diagnosis.outcome import Diagnosis
from doctor.rule import Severity

_MODULES = {
    "terminal": "doctor.reports.terminal",
    "json": "doctor.reports.json_document",
    "markdown": "doctor.reports.markdown",
    "sarif": "doctor.reports.sarif",
    "junit": "doctor.reports.junit",
    "github": "doctor.reports.github_annotations",
    "html": "doctor.reports.html_page",
}

FORMATS = tuple(_MODULES)


@dataclass(frozen=True)
class Presentation:
    """Where the text goes and what counts as a failure there.

    Attributes:
        width: columns of the screen.
        is_coloured: the receiver understands ANSI colours.
        is_unicode: the receiver shows characters beyond ASCII.
        bar: findings at or above it are failures in outputs that know pass and fail.
    """

    width: int = 80
    is_coloured: bool = False
    is_unicode: bool = True
    bar: Severity = Severity.LOW


class _Report(Protocol):
    def render(self, diagnosis: Diagnosis, presentation: Presentation) -> str: ...


def render(diagnosis: Diagnosis, output: str, presentation: Presentation) -> str:
    """The diagnosis as text that ends in a line break.

    Args:
        diagnosis: what to show.
        output: one of `FORMATS`.
        presentation: used by the outputs that it concerns.

    Raises:
        KeyError: there is no such output.
    """
    report = cast("_Report", import_module(_MODULES[output]))
    return report.render(diagnosis, presentation)
