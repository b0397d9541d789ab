"""What was tried and what came of it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from enum import StrEnum

from doctor.rule import Severity
from doctor.tuning.command_line import Change


@dataclass(frozen=True)
class Speed:
    """Output tokens a second of every run without a profiler, in the order of the runs."""

    tokens_per_s: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median of the runs."""
        return statistics.median(self.tokens_per_s)

    @property
    def lowest(self) -> float:
        """Slowest run."""
        return min(self.tokens_per_s)

    @property
    def highest(self) -> float:
        """Fastest run."""
        return max(self.tokens_per_s)

    def __add__(self, other: Speed) -> Speed:
        """The runs of both."""
        return Speed(self.tokens_per_s + other.tokens_per_s)


class Verdict(StrEnum):
    """What became of a setting."""

    KEPT = "kept"
    NO_WIN = "no win"
    REFUSED = "refused"
    """The program would not run with it."""
    FORBIDDEN = "forbidden"
    """Another option of the command fixes what it would change: it was not run."""


@dataclass(frozen=True)
class Promise:
    """What the diagnosis said that a cure would win, as factors of speed; None where it promised nothing."""

    expected: float | None
    low: float | None
    high: float | None
    bound: float | None


@dataclass(frozen=True)
class Trial:
    """One setting tried on one command.

    Attributes:
        rule: whose fix it is.
        setting: as the fix states it.
        changes: what it came to on this command.
        verdict: what became of it.
        before: runs of the command without it; None where it was refused or forbidden.
        after: runs with it.
        pairs: how often both were measured, one after the other.
        promise: of the finding.
        note: what the program said where it refused, or which option forbids it.
    """

    rule: str
    setting: str
    changes: tuple[Change, ...]
    verdict: Verdict
    before: Speed | None = None
    after: Speed | None = None
    pairs: int = 0
    promise: Promise | None = None
    note: str = ""

    @property
    def speedup(self) -> float | None:
        """Median with it over median without it."""
        if self.before is None or self.after is None:
            return None
        return self.after.median / self.before.median


@dataclass(frozen=True)
class Found:
    """A finding of a step's diagnosis, in its place."""

    rule: str
    severity: Severity
    summary: str


@dataclass(frozen=True)
class Step:
    """One command: how fast it was, what the diagnosis found in it, what was tried.

    Attributes:
        changes: from the command as it was given.
        speed: of its runs.
        findings: principal first.
        trials: in order; the last one may have been kept.
    """

    changes: tuple[Change, ...]
    speed: Speed
    findings: tuple[Found, ...]
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class Tuning:
    """A whole search.

    Attributes:
        steps: the first is the command as it was given, the last the one that nothing improved.
        ended: why it stopped.
        run_count: how often the program was started.
    """

    steps: tuple[Step, ...]
    ended: str
    run_count: int

    @property
    def speedup(self) -> float:
        """Speed of the last step over that of the first."""
        return self.steps[-1].speed.median / self.steps[0].speed.median

    @property
    def forbidden(self) -> tuple[Trial, ...]:
        """What the last diagnosis advises and the command does not allow."""
        return tuple(trial for trial in self.steps[-1].trials if trial.verdict is Verdict.FORBIDDEN)

    @property
    def changes(self) -> tuple[Change, ...]:
        """What to change on the command that was given."""
        return self.steps[-1].changes
