"""A comparison: frozen data that every face shows and none computes."""

from __future__ import annotations

from dataclasses import dataclass

CONFIDENCE = 0.95
"""Of the intervals of speed-ups."""
LEAST_TOLD = 0.01
"""A smaller change is none: clocks and hosts vary by as much from run to run."""
LEAST_OF_FEW = 0.2
"""Of one or two steps a smaller change may be chance: single steps of one run differ by as much."""


@dataclass(frozen=True)
class FigureChange:
    """One number before and after; `ratio` is after over before, None where it cannot be told."""

    name: str
    before: float | None
    after: float | None
    ratio: float | None


@dataclass(frozen=True)
class KernelChange:
    """One kernel before and after; 0 where it did not run.

    Attributes:
        name: as recorded, without what recorders spell in their own way.
        grid_blocks: blocks of the grid.
        block_threads: threads of a block.
        before_ns: in all, before.
        after_ns: in all, after.
        before_count: how often, before.
        after_count: how often, after.
        before_step_ns: a step, before; None where steps are unknown on either side.
        after_step_ns: a step, after.
    """

    name: str
    grid_blocks: int | None
    block_threads: int | None
    before_ns: int
    after_ns: int
    before_count: int
    after_count: int
    before_step_ns: float | None
    after_step_ns: float | None

    @property
    def difference_ns(self) -> float:
        """Time won (negative) or lost, a step where steps are known."""
        if self.before_step_ns is None or self.after_step_ns is None:
            return float(self.after_ns - self.before_ns)
        return self.after_step_ns - self.before_step_ns


@dataclass(frozen=True)
class Speed:
    """One kind of step, or the repeats of a benchmark, against each other.

    Attributes:
        subject: `decode`, `prefill`, `usual`, ... of the steps, or `benchmark`.
        before_count: steps or repeats before.
        after_count: after.
        before_seconds: mean length before.
        after_seconds: after.
        speedup: before over after; over 1 is faster.
        low: lower end of the 95 % interval; None with fewer than three on either side, or without device work where
            two tools recorded.
        high: upper end.
        is_paired: step for step, since both runs have as many.
    """

    subject: str
    before_count: int
    after_count: int
    before_seconds: float
    after_seconds: float
    speedup: float
    low: float | None
    high: float | None
    is_paired: bool

    @property
    def is_beyond_chance(self) -> bool:
        """False where the two cannot be told apart: no difference is within the interval, or in the third digit."""
        if self.low is None or self.high is None:
            return max(self.speedup, 1.0 / self.speedup) >= 1.0 + LEAST_OF_FEW
        return not self.low <= 1.0 <= self.high and abs(self.speedup - 1.0) >= LEAST_TOLD

    @property
    def has_interval(self) -> bool:
        """False where there are too few lengths to tell chance from change."""
        return self.high is not None

    def is_slower_by(self, share: float) -> bool:
        """True where it takes longer by more than `share`, and chance does not explain it."""
        return (self.high is None or self.high < 1.0) and 1.0 / self.speedup > 1.0 + share


@dataclass(frozen=True)
class LeftOut:
    """Steps that have no like in the other run.

    Attributes:
        side: `before` or `after`.
        kind: `prefill`, `decode`, `usual`, or `unusual` for steps like no other.
        count: how many.
        seconds: how long in all.
    """

    side: str
    kind: str
    count: int
    seconds: float


@dataclass(frozen=True)
class Unseen:
    """A finding of one run that the other could not have shown, whether it is there or not.

    Attributes:
        side: `before` or `after`: where it could not be seen.
        rule: id.
        because: what that side lacks, in a few words.
        needs: kinds of evidence that would show it, where it holds none of them.
    """

    side: str
    rule: str
    because: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """What changed.

    Attributes:
        figures: in the order of the first side.
        gone: rules that found something before and not after, where they could have.
        new: rules that find something only now, where they could have found it before.
        stayed: rules that find something in both.
        kernels: largest change first, matched by name and shape; of the first kind of `speeds` where there is one.
        speeds: how much faster each kind of step became, with its interval; the kind with most time first.
        left_out: steps that nothing was held against.
        hidden_in: `before`, `after`: runs that hide kernels inside CUDA graphs, so that no kernels are compared.
        unseen: findings of one run that the other could not have shown.
        unlike: why the runs are not the same work on the same machine; empty where nothing speaks against it.
        doubts: what differs as it would with other work, and may be what the cure did.
        recorder_shares: of each window that the recorder itself took, None where it could not be told.
        recorders: kinds of evidence, where one tool recorded before and another after: each slows the host in its own
            way, and the intervals of `speeds` allow for that.
    """

    figures: tuple[FigureChange, ...]
    gone: tuple[str, ...]
    new: tuple[str, ...]
    stayed: tuple[str, ...]
    kernels: tuple[KernelChange, ...]
    speeds: tuple[Speed, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    hidden_in: tuple[str, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    unlike: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    recorder_shares: tuple[float | None, float | None] = (None, None)
    recorders: tuple[str, str] | None = None

    @property
    def is_identical(self) -> bool:
        """True where every figure is the same to the last digit, as of one file given twice."""
        figures = all(figure.before == figure.after for figure in self.figures)
        return bool(self.figures) and figures and not (self.kernels or self.gone or self.new or self.unseen)

    def regressions(self, share: float) -> tuple[Speed, ...]:
        """Kinds of step that take longer by more than `share`; those without an interval count where none has one."""
        told = [speed for speed in self.speeds if speed.has_interval] or self.speeds
        return tuple(speed for speed in told if speed.is_slower_by(share))
