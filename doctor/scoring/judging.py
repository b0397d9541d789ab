"""One diagnosis against what was expected of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from doctor.diagnosis.outcome import Diagnosis, Gain, RankedFinding
from doctor.rule import Severity
from doctor.scoring.expected import Expected, Half, MeasuredSpeedup
from doctor.scoring.samples import Sample

GRAVE = Severity.MEDIUM
"""Nothing this severe may be found that is neither expected nor allowed; what is low is told, and fails nothing."""


@dataclass(frozen=True)
class Alarm:
    """A finding that is neither expected nor allowed."""

    rule: str
    severity: Severity


@dataclass(frozen=True)
class Promise:
    """A measured win, and what the diagnosis promised for it.

    Attributes:
        rule: whose cure it is.
        measured: without a profiler.
        expected: promised; None, as the others, where no promise was made.
        low: lower end of the promised range.
        high: upper end.
        bound: at most this.
    """

    rule: str
    measured: MeasuredSpeedup
    expected: float | None = None
    low: float | None = None
    high: float | None = None
    bound: float | None = None

    @property
    def log_error(self) -> float | None:
        """Natural logarithm of promised over measured; None where nothing was promised."""
        return None if self.expected is None else math.log(self.expected / self.measured.median)

    @property
    def is_inside(self) -> bool | None:
        """Whether the measured median lies in the promised range; None where there is none."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.measured.median <= self.high


@dataclass(frozen=True)
class Judged:
    """What came of one diagnosis.

    Attributes:
        sample: name of the sample.
        files: names of its evidence.
        recorder: `nsys`, `kineto`, or `other` for texts, logs, samples and snapshots.
        half: what the sample may be used for.
        expected: rule that had to come first; None where nothing above low may be found.
        found: rule that came first; None where nothing above low was found.
        missed: rules that had to be found or cleared and were not.
        alarms: findings above info that are neither expected nor allowed.
        promises: measured wins and their promises.
        error: why the evidence could not be diagnosed; empty where it was.
    """

    sample: str
    files: tuple[str, ...]
    recorder: str
    half: Half
    expected: str | None
    found: str | None
    missed: tuple[str, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    promises: tuple[Promise, ...] = ()
    error: str = ""

    @property
    def is_first_right(self) -> bool:
        """Whether the right finding came first."""
        return not self.error and self.found == self.expected

    @property
    def is_right(self) -> bool:
        """First finding right, nothing missed, no grave false alarm."""
        return self.is_first_right and not self.missed and not any(alarm.severity >= GRAVE for alarm in self.alarms)


def judge(sample: Sample, files: tuple[str, ...], diagnosis: Diagnosis) -> Judged:
    """Hold a diagnosis against what is expected of its sample."""
    expected = sample.expected
    return Judged(
        sample=sample.name,
        files=files,
        recorder=_recorder(diagnosis),
        half=expected.half,
        expected=expected.first,
        found=_first(diagnosis, expected),
        missed=tuple(_missed(diagnosis, expected)),
        alarms=tuple(_alarms(diagnosis, expected)),
        promises=tuple(
            _promise(rule, measured, diagnosis)
            for rule, measured in expected.measured_speedup.items()
            if rule not in expected.ruled_out
        ),
    )


def _recorder(diagnosis: Diagnosis) -> str:
    kinds = {file.kind for file in diagnosis.evidence}
    return "nsys" if any(kind.startswith("nsys") for kind in kinds) else "kineto" if "kineto" in kinds else "other"


def _first(diagnosis: Diagnosis, expected: Expected) -> str | None:
    """The first finding; for a run that should be healthy the first one above low."""
    least = Severity.INFO if expected.first is not None else Severity.MEDIUM
    return next((finding.rule for finding in diagnosis.findings if finding.severity >= least), None)


def _missed(diagnosis: Diagnosis, expected: Expected) -> list[str]:
    found = {finding.rule for finding in diagnosis.findings}
    cleared = {entry.rule for entry in diagnosis.ruled_out}
    lost = [] if expected.first is None or expected.first in found else [expected.first]
    return lost + sorted(expected.ruled_out - cleared)


def _alarms(diagnosis: Diagnosis, expected: Expected) -> list[Alarm]:
    """Above info and not allowed; on a run that should be healthy whatever is grave as well."""
    return [
        Alarm(finding.rule, finding.severity)
        for finding in diagnosis.findings
        if finding.severity > Severity.INFO
        and finding.rule != expected.first
        and (finding.rule not in expected.allowed or (expected.first is None and finding.severity >= GRAVE))
    ]


def _promise(rule: str, measured: MeasuredSpeedup, diagnosis: Diagnosis) -> Promise:
    gain = _gain(rule, {finding.rule: finding for finding in diagnosis.findings})
    if gain is None:
        return Promise(rule, measured)
    return Promise(rule, measured, gain.speedup_expected, gain.speedup_low, gain.speedup_high, gain.speedup_bound)


def _gain(rule: str, found: dict[str, RankedFinding]) -> Gain | None:
    """The finding's own gain, or that of the finding whose cause it shares."""
    finding = found.get(rule)
    if finding is None:
        return None
    principal = found.get(finding.same_cause_as) if finding.same_cause_as else None
    return finding.gain if principal is None else principal.gain
