"""What is kept of a diagnosis: plain values, bounded, without SQL."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import PurePath

from doctor.diagnosis.outcome import Diagnosis, EvidenceFile, Gain, RankedFinding
from doctor.rule import Severity

MOST_LETTERS = 200
MOST_FILES = 100
MOST_FINDINGS = 200
STEP_FIGURE = "step_seconds"


@dataclass(frozen=True)
class HistoryFile:
    """One file of evidence: its base name, and a digest that tells whether it was the same bytes."""

    name: str
    kind: str
    tool: str | None
    sha256: str | None


@dataclass(frozen=True)
class HistoryFinding:
    """One finding; gains as in `doctor.diagnosis.outcome.Gain`, None where it carries none."""

    rule: str
    severity: str
    confidence: float
    same_cause_as: str | None
    gain_seconds: float | None = None
    gain_bytes: int | None = None
    speedup_bound: float | None = None
    speedup_expected: float | None = None


@dataclass(frozen=True)
class HistoryEntry:
    """One diagnosis.

    Attributes:
        diagnosis_id: unique, made by whoever diagnosed.
        recorded_ms: when it was diagnosed, milliseconds since 1970, UTC.
        doctor_version: version that judged.
        is_complete: every file was read whole.
        window_ns: length of the window; None without a time-line.
        step_count: engine steps in the window; None where they could not be told.
        worst_severity: of the worst finding; None where nothing was found.
        files: the evidence.
        figures: vitals by their name; unknown ones are missing.
        findings: in order, the principal one first.
    """

    diagnosis_id: str
    recorded_ms: int
    doctor_version: str
    is_complete: bool
    window_ns: int | None
    step_count: int | None
    worst_severity: str | None
    files: tuple[HistoryFile, ...]
    figures: dict[str, float]
    findings: tuple[HistoryFinding, ...]


def entry_of(diagnosis: Diagnosis, diagnosis_id: str, recorded_ms: int, doctor_version: str) -> HistoryEntry:
    """What is kept of a diagnosis that was made just now."""
    window, worst = diagnosis.window, diagnosis.worst
    return HistoryEntry(
        diagnosis_id=diagnosis_id,
        recorded_ms=recorded_ms,
        doctor_version=doctor_version,
        is_complete=diagnosis.is_complete,
        window_ns=None if window is None else window.end_ns - window.start_ns,
        step_count=None if window is None else window.steps,
        worst_severity=None if worst is None else Severity(worst).label,
        files=tuple(_file(file) for file in diagnosis.evidence[:MOST_FILES]),
        figures=_figures(diagnosis),
        findings=tuple(_finding(finding) for finding in diagnosis.findings[:MOST_FINDINGS]),
    )


def _file(file: EvidenceFile) -> HistoryFile:
    name = PurePath(file.path).name or "standard input"
    return HistoryFile(_short(name), _short(file.kind), None if file.tool is None else _short(file.tool), file.sha256)


def _figures(diagnosis: Diagnosis) -> dict[str, float]:
    known = ((name, value) for name, value in diagnosis.vitals.items() if value is not None)
    return {name: float(value) for name, value in known if math.isfinite(value)}


def _finding(finding: RankedFinding) -> HistoryFinding:
    gain = finding.gain or Gain()
    return HistoryFinding(
        rule=_short(finding.rule),
        severity=finding.severity.label,
        confidence=finding.confidence,
        same_cause_as=finding.same_cause_as,
        gain_seconds=_finite(gain.seconds),
        gain_bytes=gain.bytes,
        speedup_bound=_finite(gain.speedup_bound),
        speedup_expected=_finite(gain.speedup_expected),
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _short(text: str) -> str:
    """Bounded, and without the zero byte and the lone surrogates that PostgreSQL refuses."""
    return text[:MOST_LETTERS].replace("\x00", "?").encode("utf-8", "replace").decode("utf-8")
