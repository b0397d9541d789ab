"""A diagnosis against what is demanded of it. Pure: nothing is read here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from doctor.checks.check import VITALS, Bound, Breach, Demand, Direction
from doctor.diagnosis.outcome import Diagnosis, RankedFinding
from doctor.errors import UsageError
from doctor.rule import Severity

_RECORDINGS = {"nsys-report", "nsys-sqlite", "nsys-columnar", "kineto"}


def breaches(diagnosis: Diagnosis, demand: Demand) -> tuple[Breach, ...]:
    """All ways in which the diagnosis falls short of the demand: findings in their order, then vitals.

    A finding that follows another of the same cause is no breach of its own: the cause is counted once.
    """
    found = (*_blindness(diagnosis), *_findings(diagnosis, demand), *_vitals(diagnosis, demand))
    return found or tuple(_damage(diagnosis))


def severity_named(word: object) -> Severity:
    """The severity of a name such as `low`.

    Raises:
        UsageError: there is none of that name.
    """
    if isinstance(word, Severity):
        return word
    found = next((severity for severity in Severity if severity.label == word), None)
    if found is None:
        raise UsageError(f"at_most is {word!r}, but must be one of {', '.join(each.label for each in Severity)}")
    return found


def bounds_of(limits: Mapping[str, object]) -> tuple[Bound, ...]:
    """Bounds on vitals: a number bounds a vital as its nature asks, `{"at_least": x, "at_most": y}` as it says.

    Raises:
        UsageError: there is no such vital, or the limit is no number.
    """
    return tuple(bound for vital, limit in limits.items() for bound in _bounds(vital, limit))


def _bounds(vital: str, limit: object) -> Iterator[Bound]:
    if vital not in VITALS:
        raise UsageError(f"there is no vital '{vital}': known are {', '.join(VITALS)}")
    if not isinstance(limit, Mapping):
        yield Bound(vital, VITALS[vital], _number(vital, limit))
        return
    spelled = {direction.name.lower(): direction for direction in Direction}
    unknown = [str(key) for key in limit if key not in spelled]
    if unknown or not limit:
        raise UsageError(f"the bound of {vital} takes at_least and at_most, not {', '.join(unknown) or 'nothing'}")
    for key, value in limit.items():
        yield Bound(vital, spelled[key], _number(vital, value))


def _number(vital: str, limit: object) -> float:
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not math.isfinite(limit) or limit < 0:
        raise UsageError(f"the bound of {vital} is {limit!r}, but must be a number from 0")
    return float(limit)


def _blindness(diagnosis: Diagnosis) -> Iterator[Breach]:
    """A recording without device work must never pass for healthy; a silent log may."""
    is_silent = not diagnosis.findings and not diagnosis.ruled_out and diagnosis.window is None
    if is_silent and all(file.kind in _RECORDINGS for file in diagnosis.evidence if file.is_read and file.run == 1):
        yield Breach("evidence", "nothing could be diagnosed: this recording holds no device work")


def _damage(diagnosis: Diagnosis) -> Iterator[Breach]:
    """A recording of which a part is lost promises nothing and is grave in nothing: that is no health either."""
    if diagnosis.window is not None and not diagnosis.is_complete:
        yield Breach("evidence", "part of the recording could not be read, and what is lost may be what is wrong")


def _findings(diagnosis: Diagnosis, demand: Demand) -> Iterator[Breach]:
    for finding in diagnosis.findings:
        if finding.same_cause_as is None and finding.severity > demand.at_most and finding.rule not in demand.allow:
            yield Breach(finding.rule, _words(finding, _followers(diagnosis, finding)), finding.severity, finding)


def _followers(diagnosis: Diagnosis, principal: RankedFinding) -> list[str]:
    return [finding.rule for finding in diagnosis.findings if finding.same_cause_as == principal.rule]


def _words(finding: RankedFinding, followers: Iterable[str]) -> str:
    same = ", ".join(followers)
    return f"{finding.severity.label}: {finding.title}" + (f" (and of the same cause: {same})" if same else "")


def _vitals(diagnosis: Diagnosis, demand: Demand) -> Iterator[Breach]:
    figures = diagnosis.vitals
    for bound in demand.bounds:
        value = figures.get(bound.vital)
        wanted = f"must be {bound.direction} {bound.limit:g}"
        if value is None or not math.isfinite(value):
            yield Breach(bound.vital, f"{bound.vital} {wanted}, and this evidence does not tell it")
        elif not bound.direction.holds(value, bound.limit):
            yield Breach(bound.vital, f"{bound.vital} is {value:.4g} and {wanted}")
