"""What a test leaves behind for the terminal's summary and for JUnit: properties of its report.

Reports travel from the workers of pytest-xdist to the terminal, and their properties with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from doctor.checks.check import Breach
    from doctor.diagnosis.outcome import Diagnosis

PREFIX = "doctor."
VERDICT = "doctor.verdict"
BREACHES = "doctor.breaches"
FINDINGS = "doctor.findings"


def properties(diagnosis: Diagnosis) -> list[tuple[str, object]]:
    """Verdict, findings and the figures that are known, as pairs of name and value."""
    from doctor.reports import wording  # noqa: PLC0415 - only tests that use doctor pay for it

    rules = ",".join(finding.rule for finding in wording.own_findings(diagnosis))
    figures = [(f"{PREFIX}{name}", f"{value:.6g}") for name, value in diagnosis.vitals.items() if value is not None]
    return [(VERDICT, wording.verdict(diagnosis)), (FINDINGS, rules), *figures]


def summary(left: Mapping[str, object]) -> str:
    """What a report's properties say in a line: what is out of bounds, which no finding tells, then the verdict."""
    findings = str(left.get(FINDINGS, "")).split(",")
    outside = [name for name in str(left.get(BREACHES, "")).split(",") if name and name not in findings]
    return f"{', '.join(outside)} out of bounds. {left[VERDICT]}" if outside else str(left[VERDICT])


def failure(breaches: Iterable[Breach], diagnosis: Diagnosis, subject: str) -> str:
    """The message of a failed test: what is ill, each breach with its evidence."""
    from doctor.reports.check_pages import breach_lines  # noqa: PLC0415 - only tests that fail pay for it

    lines = [line for breach in breaches for line in breach_lines(breach, diagnosis)]
    return "\n".join([f"{subject} is not healthy:", *(f"  {line}" for line in lines)])
