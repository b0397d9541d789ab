"""Two sides against each other."""

from __future__ import annotations

from doctor.comparison.alignment import Pair, align
from doctor.comparison.kernels import kernel_changes
from doctor.comparison.outcome import Comparison, FigureChange, KernelChange
from doctor.comparison.sides import Side
from doctor.comparison.speed import speeds
from doctor.errors import UsageError


def compare(before: Side, after: Side) -> Comparison:
    """Compare two runs of one kind, like steps with like.

    Raises:
        UsageError: one is a benchmark and the other a recording.
    """
    if before.kind != after.kind:
        raise UsageError(f"a {before.kind} and a {after.kind} cannot be compared: give two of one kind")
    aligned = align(before.steps, after.steps)
    hidden_in = tuple(name for name, side in (("before", before), ("after", after)) if side.hides_kernels)
    return Comparison(
        (*_figures(before, after), *_step(aligned.pairs)),
        tuple(rule for rule in before.findings if rule not in after.findings),
        tuple(rule for rule in after.findings if rule not in before.findings),
        tuple(rule for rule in before.findings if rule in after.findings),
        () if hidden_in else _kernels(before, after, aligned.pairs),
        speeds(aligned.pairs),
        aligned.left_out,
        hidden_in,
    )


def _kernels(before: Side, after: Side, pairs: tuple[Pair, ...]) -> tuple[KernelChange, ...]:
    """Of the kind of step with most time; of the whole windows where no kind is in both."""
    for pair in pairs[:1]:
        steps = (
            len(pair.before.seconds) / before.steps_side_by_side,
            len(pair.after.seconds) / after.steps_side_by_side,
        )
        return kernel_changes(pair.before.kernels, pair.after.kernels, steps)
    return kernel_changes(before.kernels, after.kernels, (None, None))


def _step(pairs: tuple[Pair, ...]) -> tuple[FigureChange, ...]:
    """Mean length of the kind of step with most time."""
    means = [tuple(sum(side.seconds) / len(side.seconds) for side in (pair.before, pair.after)) for pair in pairs[:1]]
    return tuple(_figure("step_seconds", before, after) for before, after in means)


def _figures(before: Side, after: Side) -> tuple[FigureChange, ...]:
    names = dict.fromkeys((*before.figures, *after.figures))
    return tuple(_figure(name, before.figures.get(name), after.figures.get(name)) for name in names)


def _figure(name: str, before: float | None, after: float | None) -> FigureChange:
    ratio = after / before if before and after is not None else None
    return FigureChange(name, before, after, ratio)
