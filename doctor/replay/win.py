"""Replays a window with cures applied, on the recorded time-line and on those of a quick and a slow host."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

import duckdb
import numpy as np

from doctor.case.arrays.columns import bounds_of, gather
from doctor.case.arrays.freed import give_back
from doctor.case.replay_queries import CallNames, read_recording
from doctor.case.tasks import SIDE_BY_SIDE, each
from doctor.replay.building import build_run
from doctor.replay.corrections import correct, observe
from doctor.replay.cure import Change, Places, apply, moves_work, select
from doctor.replay.intervals import union_by_group
from doctor.replay.promise import Cured, Doubt, Lengths, Win, promise
from doctor.replay.quality import Errors, error, judge, with_class_medians
from doctor.replay.run import Real, Run, to_replay
from doctor.replay.schedule import Plan, plan, replay
from doctor.rule import Cure

READ_BY_REPLAY = frozenset({"steady_window", "call_name", "device_op", "launch", "host_call", "launcher"})
"""Derived tables that have to be there before a replay is built."""


@dataclass(frozen=True)
class _Timeline:
    """A run, and how long it is without a cure."""

    run: Run
    length_ns: float


@dataclass(frozen=True)
class _Trial:
    """A cure to be tried, its rows found.

    Attributes:
        changes: what the cures in place make, and this one.
        best: all that, and what a better cure makes as well.
        cure: as the rule states it.
    """

    changes: Sequence[Change]
    best: Sequence[Change]
    cure: Cure


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
        self._recorded_work: Real | None = None
        self._stream_bounds = bounds_of(self._recorded.ops.stream, len(self._recorded.stream_device)).tolist()
        with ThreadPoolExecutor(1, "doctor-replays") as beside:
            medians = beside.submit(with_class_medians, self._recorded)
            self._plan, self._places = plan(self._recorded), Places.of(self._recorded)
            of_medians = beside.submit(_makespan_ns, medians, self._plan)
            observed = observe(self._recorded, names)
            replayed_ns, self._busy_ns = replay(self._recorded, self._plan).makespan_ns, _busy(self._recorded)
        errors = Errors(error(self._recorded, replayed_ns), error(self._recorded, of_medians.result()))
        del medians
        self._recorded = to_replay(self._recorded)
        corrected = correct(self._recorded, self._plan, observed, unprofiled_seconds)
        del observed
        self._spread_left, self._beyond = corrected.spread_left, corrected.beyond
        self.quality = judge(self._recorded, errors, corrected)
        hosts = each(lambda run: _Timeline(run, replay(run, self._plan).makespan_ns), (corrected.quick, corrected.slow))
        self._timelines = [_Timeline(self._recorded, replayed_ns), *hosts]
        give_back()

    def win(self, cure: Cure, on_top_of: Sequence[Cure] = ()) -> Win:
        """What `cure` wins once the cures `on_top_of` are in place.

        Raises:
            CatalogueError: a SELECT of a cure fails or an act does not fit its target.
        """
        [found] = self.wins([cure], on_top_of)
        return found

    def wins(self, cures: Sequence[Cure], on_top_of: Sequence[Cure] = ()) -> list[Win]:
        """What each cure alone wins once the cures `on_top_of` are in place.

        Raises:
            CatalogueError: a SELECT of a cure fails or an act does not fit its target.
        """
        before = self._select(*on_top_of)
        grounds = each(lambda timeline: self._after(timeline, before), self._timelines) if cures else []
        lengths: list[list[Future[Lengths]]] = []
        with ThreadPoolExecutor(SIDE_BY_SIDE, "doctor-replays") as pool:
            trials = deque[Future[_Trial]]()
            for cure in cures:  # rows of one are looked for while another is replayed: those of all would take room
                trials.append(pool.submit(self._trial, cure, before))
                if len(trials) == SIDE_BY_SIDE:
                    lengths.append(self._submitted(pool, trials.popleft(), grounds))
            lengths += [self._submitted(pool, trial, grounds) for trial in trials]
        return [self._win(cure, *(one.result() for one in found)) for cure, found in zip(cures, lengths, strict=True)]

    def _submitted(
        self, pool: ThreadPoolExecutor, trial: Future[_Trial], grounds: Sequence[_Timeline]
    ) -> list[Future[Lengths]]:
        """The lengths of a trial, which stands before them in the queue."""
        pairs = zip(self._timelines, grounds, strict=True)
        return [pool.submit(self._lengths, timeline, ground, trial) for timeline, ground in pairs]

    def _win(self, cure: Cure, recorded: Lengths, quick: Lengths, slow: Lengths) -> Win:
        return promise(recorded, quick, slow, Doubt(cure.spread**self._spread_left, self._beyond))

    def _after(self, timeline: _Timeline, before: Sequence[Change]) -> _Timeline:
        """The time-line with changes in place."""
        if not before:
            return timeline
        run = apply(timeline.run, before)
        return _Timeline(run, self._length(run, before))

    def _trial(self, cure: Cure, before: Sequence[Change]) -> _Trial:
        changes = [*before, *self._select(cure)]
        best = [*changes, *self._select(replace(cure, steps=cure.at_most))]
        return _Trial(changes, best, cure)

    def _select(self, *cures: Cure) -> list[Change]:
        cursor = self._connection.cursor()  # another thread may be asking for another win
        return [change for cure in cures for change in select(cursor, cure, self._places)]

    def _lengths(self, timeline: _Timeline, ground: _Timeline, asked: Future[_Trial]) -> Lengths:
        trial = asked.result()
        cured = self._cured(timeline.run, ground.run, trial.changes, trial.cure)
        cured = replace(cured, length=min(ground.length_ns, cured.length))
        best = self._cured(timeline.run, ground.run, trial.best, trial.cure) if trial.cure.at_most else cured
        best = replace(best, length=min(cured.length, best.length))
        return Lengths(ground.length_ns, cured, best, trial.cure.seen_share)

    def _cured(self, run: Run, uncured: Run, changes: Sequence[Change], cure: Cure) -> Cured:
        cured = apply(run, changes)
        least = self._least(uncured, cured, cure)
        return Cured(max(self._length(cured, changes), least), least)

    def _length(self, run: Run, changes: Sequence[Change]) -> float:
        return replay(run, plan(run) if moves_work(changes) else self._plan).makespan_ns

    def _least(self, uncured: Run, cured: Run, cure: Cure) -> float:
        """Time that the device is busy whatever the host does; 0 for cures that change the work itself."""
        if cure.device_divisor > 1.0:
            return self._busy_longest(uncured) / cure.device_divisor
        return self._busy_longest(cured) if cure.is_host_work else 0.0

    def _busy_longest(self, run: Run) -> float:
        """Busy time of the busiest device, without work on side streams."""
        if run.ops.duration is self._recorded.ops.duration and run.ops.stream is self._recorded.ops.stream:
            return float(self._busy_ns.max(initial=0.0))
        if self._recorded_work is None:
            self._recorded_work = self._work(self._recorded)
        recorded, now = self._recorded_work, self._work(run)
        share = np.divide(now, recorded, out=np.ones_like(now), where=recorded > 0)
        return float((self._busy_ns * share).max(initial=0.0))

    def _work(self, run: Run) -> Real:
        streams = pairwise(self._stream_bounds)  # moved operations follow behind them
        of_stream = [run.ops.duration[first:last].sum(dtype=np.float64) for first, last in streams]
        device = self._recorded.stream_device + 1  # 0 where ranks meet
        work = np.bincount(device, of_stream, minlength=len(self._busy_ns) + 1)
        return np.asarray(work[1:], dtype=np.float64)


def _read_run(connection: duckdb.DuckDBPyConnection, start_ns: int, end_ns: int) -> tuple[Run, CallNames]:
    """The run and the names of its functions; what was read for it is let go."""
    recording = read_recording(connection, start_ns, end_ns)
    return build_run(recording), recording.names


def _makespan_ns(run: Future[Run], cut: Plan) -> float:
    return replay(run.result(), cut).makespan_ns


def _busy(run: Run) -> Real:
    """Time that each device worked, in ns."""
    device = gather(run.stream_device, run.ops.stream)  # -1 where ranks meet
    return union_by_group(device, run.ops.start, run.ops.end, int(device.max(initial=-1)) + 1)
