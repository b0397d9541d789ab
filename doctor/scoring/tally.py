"""Diagnoses of many samples added up: confusion tables, and promised against measured wins."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from doctor.rule import Severity
from doctor.scoring.expected import Half
from doctor.scoring.outcome import Judged, Promise

RECORDERS = ("nsys", "kineto", "other")
BOUND_TOLERANCE = 1.1
"""Host noise: a bound is broken where the measured win is above it by more than this factor."""


@dataclass(frozen=True)
class Accuracy:
    """How good the promises of some diagnoses are; None where nothing was promised.

    Attributes:
        measured_count: measured wins.
        promised_count: of these, with an expected win.
        median_abs_log_error: of promised over measured, natural logarithm.
        worst: the promise that is furthest off.
        share_inside: measured wins inside their promised range.
        median_width: upper end of the range over its lower end.
        median_bound_ratio: bound over measured win.
        broken_bounds: promises whose bound lies below the measured win by more than host noise.
    """

    measured_count: int
    promised_count: int
    median_abs_log_error: float | None
    worst: tuple[str, Promise] | None
    share_inside: float | None
    median_width: float | None
    median_bound_ratio: float | None
    broken_bounds: tuple[tuple[str, Promise], ...]


@dataclass(frozen=True)
class Tally:
    """One recorder's or one half's diagnoses.

    Attributes:
        name: of the recorder or half.
        count: diagnoses.
        first_right: of these, with the right first finding.
        missed: rules not found or not cleared, all together.
        alarms: false alarms by severity.
        accuracy: of the promises.
    """

    name: str
    count: int
    first_right: int
    missed: int
    alarms: dict[Severity, int]
    accuracy: Accuracy


@dataclass(frozen=True)
class Score:
    """Every diagnosis of every sample, in the order of the samples."""

    results: tuple[Judged, ...]

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong with any of them."""
        return all(result.is_right for result in self.results)

    def by_recorder(self) -> tuple[Tally, ...]:
        """Nsight Systems, the PyTorch profiler and other evidence apart; recorders without samples are left out."""
        groups = ((name, [one for one in self.results if one.recorder == name]) for name in RECORDERS)
        return tuple(tally(name, results) for name, results in groups if results)

    def by_half(self) -> tuple[Tally, ...]:
        """Samples that constants may be fitted on, and the others."""
        groups = ((half, [one for one in self.results if one.half is half]) for half in Half)
        return tuple(tally(half.value, results) for half, results in groups if results)

    def confusion(self, recorder: str) -> Counter[tuple[str | None, str | None]]:
        """How often a rule that had to come first gave way to which; None is healthy."""
        return Counter((one.expected, one.found) for one in self.results if one.recorder == recorder)


def tally(name: str, results: Sequence[Judged]) -> Tally:
    """Add up some diagnoses."""
    alarms = Counter(alarm.severity for one in results for alarm in one.alarms)
    return Tally(
        name,
        count=len(results),
        first_right=sum(one.is_first_right for one in results),
        missed=sum(len(one.missed) for one in results),
        alarms={severity: alarms[severity] for severity in sorted(alarms, reverse=True)},
        accuracy=accuracy([(one.sample, promise) for one in results for promise in one.promises]),
    )


def accuracy(promises: Sequence[tuple[str, Promise]]) -> Accuracy:
    """Hold promised wins against measured ones; each comes with the name of its sample."""
    errors = [(abs(error), pair) for pair in promises if (error := pair[1].log_error) is not None]
    inside = [verdict for _, promise in promises if (verdict := promise.is_inside) is not None]
    bounds = [
        (promise.bound / promise.measured.median, (name, promise))
        for name, promise in promises
        if promise.bound is not None
    ]
    return Accuracy(
        measured_count=len(promises),
        promised_count=len(errors),
        median_abs_log_error=_median(error for error, _ in errors),
        worst=max(errors, key=lambda entry: entry[0])[1] if errors else None,
        share_inside=sum(inside) / len(inside) if inside else None,
        median_width=_median(
            promise.high / promise.low for _, promise in promises if promise.high is not None and promise.low
        ),
        median_bound_ratio=_median(ratio for ratio, _ in bounds),
        broken_bounds=tuple(pair for ratio, pair in bounds if ratio * BOUND_TOLERANCE < 1),
    )


def _median(values: Iterable[float]) -> float | None:
    known = [value for value in values if math.isfinite(value)]
    return statistics.median(known) if known else None
