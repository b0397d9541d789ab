"""Two sides against each other."""

from __future__ import annotations

from dataclasses import dataclass

from doctor.comparison.sides import Side
from doctor.errors import UsageError

MOST_KERNELS = 8
LEAST_KERNEL_CHANGE = 0.05
"""Kernels whose time changed by less than this share are left out: recordings of one program differ by as much."""


@dataclass(frozen=True)
class FigureChange:
    """One number before and after; `ratio` is after over before, None where it cannot be told."""

    name: str
    before: float | None
    after: float | None
    ratio: float | None


@dataclass(frozen=True)
class KernelChange:
    """One kernel's total time before and after, in ns; 0 where it is not among the longest kernels."""

    name: str
    before_ns: int
    after_ns: int


@dataclass(frozen=True)
class Comparison:
    """What changed.

    Attributes:
        figures: in the order of the first side.
        gone: rules that found something before and not after.
        new: rules that find something only now.
        stayed: rules that find something in both.
        kernels: largest change first.
    """

    figures: tuple[FigureChange, ...]
    gone: tuple[str, ...]
    new: tuple[str, ...]
    stayed: tuple[str, ...]
    kernels: tuple[KernelChange, ...]


def compare(before: Side, after: Side) -> Comparison:
    """Compare two runs of one kind.

    Raises:
        UsageError: one is a benchmark and the other a recording.
    """
    if before.kind != after.kind:
        raise UsageError(f"a {before.kind} and a {after.kind} cannot be compared: give two of one kind")
    names = dict.fromkeys((*before.figures, *after.figures))
    return Comparison(
        tuple(_figure(name, before.figures.get(name), after.figures.get(name)) for name in names),
        tuple(rule for rule in before.findings if rule not in after.findings),
        tuple(rule for rule in after.findings if rule not in before.findings),
        tuple(rule for rule in before.findings if rule in after.findings),
        _kernels(before, after),
    )


def _figure(name: str, before: float | None, after: float | None) -> FigureChange:
    ratio = after / before if before and after is not None else None
    return FigureChange(name, before, after, ratio)


def _kernels(before: Side, after: Side) -> tuple[KernelChange, ...]:
    names = dict.fromkeys((*before.kernel_ns, *after.kernel_ns))
    changes = [KernelChange(name, before.kernel_ns.get(name, 0), after.kernel_ns.get(name, 0)) for name in names]
    told = [
        change
        for change in changes
        if abs(change.after_ns - change.before_ns) >= LEAST_KERNEL_CHANGE * max(change.before_ns, change.after_ns)
    ]
    told.sort(key=lambda change: (-abs(change.after_ns - change.before_ns), change.name))
    return tuple(told[:MOST_KERNELS])
