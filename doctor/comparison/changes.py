"""Two sides against each other."""

from __future__ import annotations

from doctor.comparison.alignment import Pair, align
from doctor.comparison.kernels import kernel_changes
from doctor.comparison.likeness import WorkPair, other_devices, other_processes, other_tokens, recorders_of
from doctor.comparison.outcome import Comparison, FigureChange, KernelChange, Speed, Unseen
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
    sides = {"before": before, "after": after}
    hidden_in = tuple(name for name, side in sides.items() if side.sight.hides_kernels)
    unseen = (*_unseen(before, after, "after"), *_unseen(after, before, "before"))
    told_apart = {one.rule for one in unseen} | (before.findings.keys() & after.findings.keys())
    unlike = other_devices(before.workload, after.workload) + other_tokens(before.figures, after.figures)
    doubts = other_processes(before.workload, after.workload)
    if not hidden_in:
        work = _work(before, after, aligned.pairs)
        unlike += work.other_model() + work.other_steps()
        doubts += work.other_products()
    recorders = recorders_of(before.workload, after.workload)
    told = speeds(aligned.pairs, is_one_recorder=recorders is None)
    return Comparison(
        (*_figures(before, after), *_step(told)),
        tuple(rule for rule in before.findings if rule not in told_apart),
        tuple(rule for rule in after.findings if rule not in told_apart),
        tuple(rule for rule in before.findings if rule in after.findings),
        () if hidden_in or not (before.kernels and after.kernels) else _kernels(before, after, aligned.pairs),
        told,
        aligned.left_out,
        hidden_in,
        unseen,
        tuple(unlike),
        tuple(doubts),
        (before.recorder_share, after.recorder_share),
        recorders,
    )


def _unseen(found: Side, other: Side, name: str) -> tuple[Unseen, ...]:
    """Findings of one side that the other does not have, and could not show."""
    alone = (rule for rule in found.findings if rule not in other.findings)
    blind = ((rule, other.sight.blindness(found.sight.shown_by.get(rule, ()))) for rule in alone)
    return tuple(Unseen(name, rule, why.because, why.needs) for rule, why in blind if why is not None)


def _work(before: Side, after: Side, pairs: tuple[Pair, ...]) -> WorkPair:
    for pair in pairs[:1]:
        return WorkPair.of_steps(pair, before.workload, after.workload)
    return WorkPair.of_windows((before.kernels, before.workload), (after.kernels, after.workload))


def _kernels(before: Side, after: Side, pairs: tuple[Pair, ...]) -> tuple[KernelChange, ...]:
    """Of the kind of step with most time; of the whole windows where no kind is in both."""
    for pair in pairs[:1]:
        steps = (
            len(pair.before.seconds) / before.workload.steps_side_by_side,
            len(pair.after.seconds) / after.workload.steps_side_by_side,
        )
        return kernel_changes(pair.before.kernels, pair.after.kernels, steps)
    return kernel_changes(before.kernels, after.kernels, (None, None))


def _step(told: tuple[Speed, ...]) -> tuple[FigureChange, ...]:
    """Mean length of the kind of step with most time."""
    return tuple(_figure("step_seconds", speed.before_seconds, speed.after_seconds) for speed in told[:1])


def _figures(before: Side, after: Side) -> tuple[FigureChange, ...]:
    names = dict.fromkeys((*before.figures, *after.figures))
    return tuple(_figure(name, before.figures.get(name), after.figures.get(name)) for name in names)


def _figure(name: str, before: float | None, after: float | None) -> FigureChange:
    ratio = after / before if before and after is not None else None
    return FigureChange(name, before, after, ratio)
