"""What a cure would win, and how far to believe it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import duckdb
import numpy as np

from doctor.case.arrays.freed import give_back
from doctor.case.replay_queries import CallNames, read_recording
from doctor.replay.building import build_run
from doctor.replay.corrections import correct
from doctor.replay.cure import Change, Places, apply, moves_work, select
from doctor.replay.intervals import union_by_group
from doctor.replay.quality import judge, measure_errors
from doctor.replay.run import Real, Run, to_replay
from doctor.replay.schedule import plan, replay
from doctor.rule import Cure

HOST_SPREAD = 1.3
"""Spread of cures that need nothing but the host: what is left to doubt of a cure that takes all there is to take."""
RANGE_KEPT = 0.91
"""Of the logarithm of both errors of a promise. On the half of the samples that constants may be fitted on, every
measured win lies within 0.8 of what whole errors allow; a range that is to hold four fifths of all may be narrower."""


@dataclass(frozen=True)
class Win:
    """What a cure wins in the window.

    Attributes:
        seconds_recorded: removable time, in seconds of the recording.
        share_of_window: that time as a share of the window.
        speedup_bound: at most this, with every error at its worst and all that a better cure would take away too.
        speedup_expected: without the profiler's cost, between a quick and a slow host. Ranking uses this.
        speedup_low: lower end of the expected range.
        speedup_high: upper end of the expected range.
    """

    seconds_recorded: float
    share_of_window: float
    speedup_bound: float
    speedup_expected: float
    speedup_low: float
    speedup_high: float

    @property
    def share_expected(self) -> float:
        """Share of the window that the expected speed-up takes away, 0 to 1."""
        return 1.0 - 1.0 / self.speedup_expected


@dataclass(frozen=True)
class _Timeline:
    """A run, and how long it is without a cure."""

    run: Run
    length_ns: float


@dataclass(frozen=True)
class _Trial:
    """A cure to be tried, its rows found.

    Attributes:
        before: what the cures made that are in place already.
        changes: these, and what the cure makes.
        best: all that, and what a better cure makes as well.
        cure: as the rule states it.
    """

    before: Sequence[Change]
    changes: Sequence[Change]
    best: Sequence[Change]
    cure: Cure


@dataclass(frozen=True)
class _Cured:
    """Length of a window in ns, with a cure.

    Attributes:
        length: of the window.
        least: time that the device is busy whatever the host does; 0 where the cure changes that too.
    """

    length: float
    least: float


@dataclass(frozen=True)
class _Lengths:
    """Length of a window in ns.

    Attributes:
        uncured: without the cure.
        cured: with it.
        best: with all that a better cure would take away as well.
        seen_share: of the time that the cure takes away, what lies in the window.
    """

    uncured: float
    cured: _Cured
    best: _Cured
    seen_share: float

    @property
    def seen_ns(self) -> float:
        """Time of the window that the cure takes away."""
        return self.uncured - self.cured.length

    @property
    def speedup(self) -> float:
        """What the cure wins."""
        return _ratio(self._repeated, self.cured.length)

    @property
    def best_speedup(self) -> float:
        """What a better cure would win."""
        return _ratio(self._repeated, self.best.length)

    @property
    def limit(self) -> float:
        """Amdahl's: no cure of the host wins more than all the time in which the device does not work."""
        return _limit(self._repeated, self.cured)

    @property
    def best_limit(self) -> float:
        """The same for a better cure."""
        return _limit(self._repeated, self.best)

    def beyond(self, slow: _Lengths, share: float) -> _Lengths:
        """Lengths on a host quicker than this one by a share of the way that `slow` is behind.

        A length is a convex function of the host's times, so the line through two of them is never above it.
        """
        return _Lengths(
            _further(self.uncured, slow.uncured, share),
            replace(self.cured, length=max(_further(self.cured.length, slow.cured.length, share), self.cured.least)),
            replace(self.best, length=max(_further(self.best.length, slow.best.length, share), self.best.least)),
            self.seen_share,
        )

    @property
    def _repeated(self) -> float:
        """The window as a part of a loop: with what is outside it and comes back with each round."""
        return self.cured.length + self.seen_ns / self.seen_share


class Replay:
    """Replays one window of a case with cures applied. Reads the case once; holds the run as arrays."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        window_start_ns: int,
        window_end_ns: int,
        unprofiled_seconds: float | None = None,
    ) -> None:
        self._connection = connection
        self._recorded, names = _read_run(connection, window_start_ns, window_end_ns)
        give_back()
        self._plan = plan(self._recorded)
        self._places = Places.of(self._recorded)
        self._busy_ns = _busy(self._recorded)
        errors = measure_errors(self._recorded, self._plan)  # before there are corrected runs beside it
        corrected = correct(self._recorded, self._plan, names, unprofiled_seconds)
        self._spread_left, self._beyond = corrected.spread_left, corrected.beyond
        self.quality = judge(self._recorded, errors, corrected)
        self._recorded = to_replay(self._recorded)
        self._timelines = tuple(
            _Timeline(run, replay(run, self._plan).makespan_ns)
            for run in (self._recorded, to_replay(corrected.quick), to_replay(corrected.slow))
        )
        give_back()

    def win(self, cure: Cure, on_top_of: Sequence[Cure] = ()) -> Win:
        """What `cure` wins once the cures `on_top_of` are in place.

        Raises:
            CatalogueError: a SELECT of a cure fails or an act does not fit its target.
        """
        before = self._select(*on_top_of)
        changes = [*before, *self._select(cure)]
        best = [*changes, *self._select(replace(cure, steps=cure.at_most))]
        trial = _Trial(before, changes, best, cure)
        recorded, quick, slow = (self._lengths(timeline, trial) for timeline in self._timelines)
        return _summarise(recorded, quick, slow, _Doubt(cure.spread**self._spread_left, self._beyond))

    def _select(self, *cures: Cure) -> list[Change]:
        return [change for cure in cures for change in select(self._connection, cure, self._places)]

    def _lengths(self, timeline: _Timeline, trial: _Trial) -> _Lengths:
        uncured = apply(timeline.run, trial.before)
        length = self._length(uncured, trial.before) if trial.before else timeline.length_ns
        cured = self._cured(timeline.run, uncured, trial.changes, trial.cure)
        cured = replace(cured, length=min(length, cured.length))
        best = self._cured(timeline.run, uncured, trial.best, trial.cure) if trial.cure.at_most else cured
        best = replace(best, length=min(cured.length, best.length))
        return _Lengths(length, cured, best, trial.cure.seen_share)

    def _cured(self, run: Run, uncured: Run, changes: Sequence[Change], cure: Cure) -> _Cured:
        cured = apply(run, changes)
        least = self._least(uncured, cured, cure)
        return _Cured(max(self._length(cured, changes), least), least)

    def _length(self, run: Run, changes: Sequence[Change]) -> float:
        return replay(run, plan(run) if moves_work(changes) else self._plan).makespan_ns

    def _least(self, uncured: Run, cured: Run, cure: Cure) -> float:
        """Time that the device is busy whatever the host does; 0 for cures that change the work itself."""
        if cure.device_divisor > 1.0:
            return self._busy_longest(uncured) / cure.device_divisor
        return self._busy_longest(cured) if cure.is_host_work else 0.0

    def _busy_longest(self, run: Run) -> float:
        """Busy time of the busiest device, without work on side streams."""
        recorded, now = self._work(self._recorded), self._work(run)
        share = np.divide(now, recorded, out=np.ones_like(now), where=recorded > 0)
        return float((self._busy_ns * share).max(initial=0.0))

    def _work(self, run: Run) -> Real:
        in_place = slice(0, len(self._recorded.ops.op_id))  # moved operations follow behind
        device = run.stream_device[run.ops.stream[in_place]] + 1  # 0 where ranks meet
        work = np.bincount(device, run.ops.duration[in_place], minlength=len(self._busy_ns) + 1)
        return np.asarray(work[1:], dtype=np.float64)


def _read_run(connection: duckdb.DuckDBPyConnection, start_ns: int, end_ns: int) -> tuple[Run, CallNames]:
    """The run and the names of its functions; what was read for it is let go."""
    recording = read_recording(connection, start_ns, end_ns)
    return build_run(recording), recording.names


def _busy(run: Run) -> Real:
    """Time that each device worked, in ns."""
    device = run.stream_device[run.ops.stream]  # -1 where ranks meet
    return union_by_group(device, run.ops.start, run.ops.end, int(device.max(initial=-1)) + 1)


@dataclass(frozen=True)
class _Doubt:
    """What is not known of a cure and of the host.

    Attributes:
        spread: factor of uncertainty of the cure.
        beyond: how much quicker than the quick host a host may be, of the way from the slow one to it.
    """

    spread: float
    beyond: float


def _summarise(recorded: _Lengths, quick: _Lengths, slow: _Lengths, doubt: _Doubt) -> Win:
    """Expected: the geometric mean of the two hosts.

    Range: the cure's own spread and the hosts' difference, taken as independent errors of the logarithm; a small win
    may be nothing, or half as much again. A slower host than the recorded one, profiler and all, is not in evidence,
    so nothing is above what the recorded idle time allows.
    """
    middle = math.log(min(math.sqrt(quick.speedup * slow.speedup), recorded.limit))
    of_hosts = RANGE_KEPT * abs(math.log(quick.speedup / slow.speedup)) / 2
    of_cure = RANGE_KEPT * math.log(max(doubt.spread, 1.0))
    below = math.hypot(min(of_cure, middle), of_hosts)
    above = math.hypot(min(of_cure, middle / 2), of_hosts)
    high = min(math.exp(middle + above), recorded.best_limit)
    most = max(_most(lengths, of_cure) for lengths in (quick.beyond(slow, doubt.beyond), quick, slow))
    return Win(
        recorded.seen_ns / 1e9,
        recorded.seen_ns / recorded.uncured if recorded.uncured > 0 else 0.0,
        max(recorded.best_speedup, high, min(most, recorded.best_limit)),
        math.exp(middle),
        math.exp(max(middle - below, 0.0)),
        high,
    )


def _most(lengths: _Lengths, of_cure: float) -> float:
    """The most on one host: the cure with its whole spread in its favour, or a better cure with the host's alone."""
    cured, best = math.log(lengths.speedup), math.log(lengths.best_speedup)
    of_host = min(of_cure, RANGE_KEPT * math.log(HOST_SPREAD))
    return math.exp(max(cured + min(of_cure, cured / 2), best + min(of_host, best / 2)))


def _further(quick: float, slow: float, share: float) -> float:
    return max(quick - share * (slow - quick), 0.0)


def _limit(length: float, cured: _Cured) -> float:
    return max(length / cured.least, 1.0) if cured.least > 0 else math.inf


def _ratio(before: float, after: float) -> float:
    return max(before / after, 1.0) if after > 0 else 1.0
