"""What came of one diagnosis: right, missed, alarmed, and what its promises were worth."""

from __future__ import annotations

import math
from dataclasses import dataclass

from doctor.rule import Severity
from doctor.scoring.expected import Half, MeasuredSpeedup

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
        unread: a line for each file of which nothing could be read, where others could.
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
    unread: tuple[str, ...] = ()

    @property
    def is_first_right(self) -> bool:
        """Whether the right finding came first."""
        return not self.error and self.found == self.expected

    @property
    def is_right(self) -> bool:
        """First finding right, nothing missed, no grave false alarm."""
        return self.is_first_right and not self.missed and not any(alarm.severity >= GRAVE for alarm in self.alarms)
