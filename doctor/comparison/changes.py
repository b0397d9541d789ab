"""Two sides against each other."""

from __future__ import annotations

from doctor.comparison.kernels import kernel_changes
from doctor.comparison.outcome import Comparison, FigureChange
from doctor.comparison.sides import Side
from doctor.comparison.speed import speeds
from doctor.errors import UsageError


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
        kernel_changes(before.kernels, after.kernels, (before.num_steps, after.num_steps)),
        speeds(before.step_seconds, after.step_seconds),
    )


def _figure(name: str, before: float | None, after: float | None) -> FigureChange:
    ratio = after / before if before and after is not None else None
    return FigureChange(name, before, after, ratio)
