"""What is asked of evidence, and what came of it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from doctor.diagnosis.options import DiagnosisOptions
from doctor.diagnosis.outcome import Diagnosis, RankedFinding
from doctor.rule import Severity

DEFAULT_AT_MOST = Severity.LOW


class Direction(StrEnum):
    """Which way a vital may go."""

    AT_LEAST = "at least"
    AT_MOST = "at most"

    @property
    def holds(self) -> Callable[[float, float], bool]:
        """Tells for a value and a limit whether the bound holds."""
        return operator.ge if self is Direction.AT_LEAST else operator.le


VITALS = {
    "gpu_busy": Direction.AT_LEAST,
    "exposed_communication": Direction.AT_MOST,
    "exposed_copy": Direction.AT_MOST,
    "launches_per_step": Direction.AT_MOST,
    "kernel_median_us": Direction.AT_LEAST,
    "syncs_per_step": Direction.AT_MOST,
    "step_seconds": Direction.AT_MOST,
}
"""Figures that can be bounded, and which way a plain number bounds them."""


@dataclass(frozen=True)
class Bound:
    """A limit on one vital, in the unit of the vital's name."""

    vital: str
    direction: Direction
    limit: float


@dataclass(frozen=True)
class Demand:
    """How healthy evidence must be.

    Attributes:
        at_most: worst severity that is let pass.
        allow: rules whose findings are let pass, whatever their severity; what has the same cause passes with them.
        bounds: limits on vitals.
    """

    at_most: Severity = DEFAULT_AT_MOST
    allow: tuple[str, ...] = ()
    bounds: tuple[Bound, ...] = ()


@dataclass(frozen=True)
class Check:
    """One named health check.

    Attributes:
        name: unique in its file.
        evidence: files, folders or patterns.
        demand: how healthy it must be.
        options: window and the like.
        origin: the file that states it, None where it was stated otherwise.
    """

    name: str
    evidence: tuple[str, ...]
    demand: Demand = field(default_factory=Demand)
    options: DiagnosisOptions = field(default_factory=DiagnosisOptions)
    origin: Path | None = None


@dataclass(frozen=True)
class Breach:
    """One way in which evidence is less healthy than demanded.

    Attributes:
        subject: id of the rule, name of the vital, or `evidence` where nothing could be told.
        words: one sentence.
        severity: of the finding; high for a vital.
        finding: the finding, None for a vital.
    """

    subject: str
    words: str
    severity: Severity = Severity.HIGH
    finding: RankedFinding | None = None


@dataclass(frozen=True)
class CheckResult:
    """What came of one check.

    Attributes:
        check: what was asked.
        diagnosis: None where the evidence is unusable.
        breaches: none where it is healthy.
        error: why the evidence is unusable, None where it was read.
    """

    check: Check
    diagnosis: Diagnosis | None
    breaches: tuple[Breach, ...] = ()
    error: str | None = None

    @property
    def is_healthy(self) -> bool:
        """True where the evidence was read and nothing is amiss."""
        return self.error is None and not self.breaches
