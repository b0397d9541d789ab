"""Feeds the SQL files of `views/`: the bulk of the work is done here, in arrays, and the files read it as relations.

Sorting and running sums over millions of wide rows took SQL fifty seconds for five million kernels and ten million
calls; a stable sort of numbers that are nearly in order takes a tenth of that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import duckdb
import numpy as np
import pyarrow as pa

from doctor.case.arrays import attention, intervals, launchers, launches, markers, operations, pieces, steps, work_order
from doctor.case.arrays import calls as host_calls
from doctor.case.arrays.columns import Code, Coded, Flag, Int, Scan, fetch, gather, streamed, whole
from doctor.case.arrays.steps import NO_STEP

Relations = Mapping[str, pa.Table | pa.RecordBatchReader | Coded]

_STEPS = "SELECT step_id, source_id, pid, host_start_ns AS start_ns, host_end_ns AS end_ns FROM step"
_STEPS_AND_BEFORE = f"""
{_STEPS}
UNION ALL
SELECT -1 - row_number() OVER (ORDER BY source_id, pid), source_id, pid, from_ns - 1, min(host_start_ns)
FROM step, steady_window GROUP BY source_id, pid, from_ns HAVING min(host_start_ns) > from_ns
"""


_ARRAYS = "arrays of the derivation"
_CALLS = "arrays of the calls"
_OPS = "arrays of the operations"
"""Behind the steps, what is made of calls and what is made of operations need not wait for each other."""
_GAPS = "gaps of the devices"
"""Made of calls and operations, and changes neither: what is made of calls need not wait for them."""


@dataclass(frozen=True)
class Feed:
    """Arrays made for one SQL file, or for later ones.

    Attributes:
        name: of the file, without `.sql`.
        compute: makes the relations that the file reads.
        reads: tables that have to be there, and arrays.
        makes: what later feeds may wait for.
    """

    name: str
    compute: Callable[[duckdb.DuckDBPyConnection], Relations]
    reads: frozenset[str]
    makes: frozenset[str]
    _made: dict[str, pa.Table | pa.RecordBatchReader | Coded] = field(default_factory=dict)

    def make(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Make the arrays and keep the relations."""
        self._made.update(self.compute(connection))

    def take(self) -> Relations:
        """The relations, which are let go."""
        made = dict(self._made)
        self._made.clear()
        return made


class Derivation:
    """Arrays of one case, made file by file; what a later file needs is kept until then.

    Attributes:
        feeds: by the name of the file; in order of names each finds the arrays that it needs.
    """

    _calls: host_calls.HostCalls
    _ops: operations.DeviceOps
    _launched_by: Code
    _called: Int
    _sequence: markers.OpSequence
    _step_of_op: Code
    _thread_calls: intervals.ThreadCalls

    def __init__(self) -> None:
        feeds = [
            self._feed("030_device_op", self._device_work, {"timeline_source", "device_clock", "kernel_name"}),
            self._feed("050_calls", self._read_calls, {"timeline_source", "call_name"}, makes=_CALLS),
            self._feed("060_launch", self._launch, {_CALLS}),
            self._feed("070_steady_window", self._steady_window),
            self._feed("080_step", self._step, {"device_op", "steady_window"}),
            self._feed("090_device_busy", self._device_busy, {"060_launch", "steady_window"}, makes=_GAPS),
            self._feed("100_usual_step", self._usual_step, {"step", "steady_window"}),
            self._feed(
                "102_host_call",
                self._host_call,
                {_ARRAYS, "step", "steady_window", "usual_step", "launching_thread"},
                _CALLS,
            ),
            self._feed("103_launcher", self._launcher, {_ARRAYS}, _CALLS),
            self._feed("104_launch_interval", self._launch_interval, {_ARRAYS, _GAPS}, _CALLS),
            self._feed("120_piece", self._piece, {_ARRAYS}, _OPS),
            self._feed("150_step_work", self._step_work, {_ARRAYS, "device_op"}, _OPS),
            self._feed("155_softmax_between", self._softmax_between, {_ARRAYS, "device_op", "steady_window"}, _OPS),
        ]
        self.feeds = {feed.name: feed for feed in feeds}

    @staticmethod
    def _feed(
        name: str,
        compute: Callable[[duckdb.DuckDBPyConnection], Relations],
        reads: Collection[str] = (),
        makes: str = _ARRAYS,
    ) -> Feed:
        return Feed(name, compute, frozenset(reads), frozenset((name, makes)))

    def _read_calls(self, connection: duckdb.DuckDBPyConnection) -> Relations:
        self._calls = host_calls.read_calls(connection)
        return {}

    def _device_work(self, connection: duckdb.DuckDBPyConnection) -> Relations:
        self._ops, rows, words = work_order.read_work(connection)
        return {"ordered_work": Coded(streamed(rows), words)}

    def _launch(self, connection: duckdb.DuckDBPyConnection) -> Relations:
        self._launched_by = launches.launching_calls(self._calls, self._ops)
        self._ops = self._ops.without_correlations()
        return {
            "launched_op": launches.as_rows(self._launched_by),
            "launching": launches.by_thread(self._calls, self._launched_by),
        }

    def _steady_window(self, connection: duckdb.DuckDBPyConnection) -> Relations:
        launched = np.flatnonzero(self._launched_by >= 0)
        called = gather(self._calls.start, gather(self._launched_by, launched))
        return {
            "quiet_time": operations.quiet_times(self._ops),
            "called_op": pa.table({"device_op_id": launched, "called_ns": called}),
        }

    def _step(self, connection: duckdb.DuckDBPyConnection) -> Relations:
        window = self._window(connection)
        called = self._called = launches.times_of_call(self._ops, self._calls, self._launched_by)
        sequence = markers.read_sequence(connection, self._ops, called, window)
        self._sequence, found = markers.find_markers(connection, self._ops, sequence, window)
        del sequence
        marker_rows = markers.marker_rows(self._ops, self._sequence, found)
        self._sequence = replace(self._sequence, place=self._sequence.place[:0].copy())
        return {
            "step_marker": marker_rows,
            "sequence_op": markers.operation_rows(self._ops, self._sequence),
        }

    def _device_busy(self, connection: duckdb.DuckDBPyConnection) -> Relations:
        time = operations.device_time(self._ops, *self._window(connection))
        return {"idle_time": launches.with_launches(time.gaps, self._calls, self._launched_by), "busy_time": time.busy}

    def _usual_step(self, connection: duckdb.DuckDBPyConnection) -> Relations:
        found = steps.Steps.of(fetch(connection, _STEPS_AND_BEFORE))
        self._step_of_op = found.at(self._ops.processes, self._sequence.process, self._sequence.called)
        self._sequence = replace(self._sequence, called=self._sequence.called[:0].copy())
        size = np.bincount(self._step_of_op[self._step_of_op >= 0])
        step = np.flatnonzero(size)
        held = steps.held_until(self._ops, self._launched_by, self._calls.end)
        span = steps.spans(steps.Steps.of(fetch(connection, _STEPS)), self._ops, self._called, held)
        del self._called
        return {"step_size": pa.table({"step_id": step, "op_count": size[step]}), "step_span": span}

    def _host_call(self, connection: duckdb.DuckDBPyConnection) -> Relations:
        found = steps.Steps.of(fetch(connection, _STEPS))
        threads = self._calls.threads
        process = gather(threads.process, self._calls.thread)
        step = found.at(threads.processes, process, self._calls.start)
        self._thread_calls = intervals.thread_calls(self._calls, self._launched_by, step, self._window(connection))
        main, usual = self._main_threads(connection), self._usual_steps(connection)
        rows = intervals.as_rows(self._calls, self._thread_calls, main, usual)
        return {"outermost_call": Coded(streamed(rows), intervals.words(self._calls.names))}

    def _launcher(self, connection: duckdb.DuckDBPyConnection) -> Relations:
        return {"launcher_thread": launchers.as_rows(self._calls, self._thread_calls)}

    def _launch_interval(self, connection: duckdb.DuckDBPyConnection) -> Relations:
        self._calls = self._calls.times_alone()
        relations = {
            "pace": intervals.paces(self._calls, self._thread_calls),
            "interval": intervals.long_intervals(self._calls, self._thread_calls),
        }
        del self._calls, self._thread_calls, self._launched_by
        return relations

    def _piece(self, connection: duckdb.DuckDBPyConnection) -> Relations:
        cut, placed = pieces.cut_steps(self._ops, self._sequence, self._step_of_op)
        step = np.full(len(self._ops.start), NO_STEP, dtype=np.int32)
        step[self._sequence.span()] = self._step_of_op
        self._step_of_op = step
        del self._sequence
        return {"cut_step": cut, "placed_op": placed}

    def _step_work(self, connection: duckdb.DuckDBPyConnection) -> Relations:
        blocks = Scan(connection, "device_op").whole("grid_blocks")
        return {"work_of_step": steps.step_work(self._ops, blocks, self._step_of_op)}

    def _softmax_between(self, connection: duckdb.DuckDBPyConnection) -> Relations:
        first, last = np.searchsorted(self._ops.start, self._window(connection)).tolist()
        work = first + np.flatnonzero((~self._ops.is_of("graph"))[self._ops.family[first:last]])
        if not self._ops.is_of("softmax")[self._ops.family[work]].any():  # most recordings end here, at no cost
            work = work[:0]
            stream = work
        else:
            stream = Scan(connection, "device_op").groups("source_id", "device_id", "stream_id").code[work]
        found = attention.sandwiches(self._ops, stream, work)
        return {"softmax": found.softmax, "inner_kernel": found.between}

    def _window(self, connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
        rows = connection.execute("SELECT from_ns, until_ns FROM steady_window").fetchall()
        return rows[0] if rows else (0, 0)

    def _main_threads(self, connection: duckdb.DuckDBPyConnection) -> Flag:
        rows = connection.execute("SELECT source_id, pid, tid FROM launching_thread WHERE is_main").fetchall()
        main = set(rows)
        return np.asarray([key in main for key in self._calls.threads.keys], dtype=np.bool_)

    def _usual_steps(self, connection: duckdb.DuckDBPyConnection) -> Flag:
        [(count,)] = connection.execute("SELECT coalesce(max(step_id) + 1, 0) FROM step").fetchall()
        is_usual = np.zeros(count, dtype=np.bool_)
        is_usual[whole(fetch(connection, "SELECT step_id FROM usual_step"), "step_id")] = True
        return is_usual
