"""One diagnosis against what was expected of it."""

from __future__ import annotations

from doctor.diagnosis.outcome import Diagnosis, Gain, RankedFinding
from doctor.rule import Severity
from doctor.scoring.expected import Expected, MeasuredSpeedup
from doctor.scoring.outcome import GRAVE, Alarm, Judged, Promise
from doctor.scoring.samples import Sample


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
        unread=tuple(f"{file.path}: {'; '.join(file.notes)}" for file in diagnosis.evidence if not file.is_read),
    )


def _recorder(diagnosis: Diagnosis) -> str:
    kinds = {file.kind for file in diagnosis.evidence if file.is_read}
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
