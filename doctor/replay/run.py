"""The run as frozen arrays: calls of the launching threads, operations of the streams, and who waits for whom.

One `Run` holds every process of the case. Times are float64 nanoseconds from the start of the window. The arrays are
sorted, calls by (thread, start) and operations by (stream, start), and every edge goes forward in recorded time, so
that one pass in that order replays the run (`doctor.replay.schedule`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from doctor.case.arrays.columns import IN_CACHE, slices

Int = npt.NDArray[np.signedinteger]
"""Ids and positions are 32 bits wide: a run may have ten million calls."""
Real = npt.NDArray[np.floating]
"""Times since the start of the window are 64 bits wide, lengths 32: seven digits, in half of the memory."""
Flag = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Calls:
    """Host calls, sorted by (thread, start). Each thread begins with a virtual call of no length at the window's start.

    Attributes:
        call_id: `host_call_id`, -1 for the virtual ones.
        thread: dense number of the thread, or of threads that take turns.
        start: as recorded.
        end: as recorded.
        silence: time since the thread's previous call ended.
        own: time that the call takes when it waits for nothing.
        name: index into the case's function names, -1 for the virtual ones.
        correlation_id: -1 where unknown.
    """

    call_id: Int
    thread: Int
    start: Real
    end: Real
    silence: Real
    own: Real
    name: Int
    correlation_id: Int


@dataclass(frozen=True)
class Ops:
    """Device operations, sorted by (stream, start).

    An operation starts no earlier than `latency` after the start of its call, `distance` after everything before it in
    its stream has ended, and `source_distance` after operation `source` has ended.

    Attributes:
        op_id: `device_op_id`.
        stream: dense number of the stream.
        call: position of the call that launched it, or that it is tied to.
        start: as recorded.
        end: as recorded.
        duration: time on the device.
        latency: see above; minus infinity for operations that a cure removed.
        distance: see above; negative where kernels overlap.
        source: position of an operation of another stream, or -1.
        source_distance: see above.
        kind: 0 kernel, 1 copy, 2 memory set, 3 whole graph.
        is_tied: the launch is unknown: tied at its own time to the clock of the thread that launches most into its
            stream.
        is_queued: started because the work before it in its stream had ended.
        is_graph: part of a CUDA graph launch.
        holds_host: a copy whose call returns only when it is done, by the kind of its memory.
    """

    op_id: Int
    stream: Int
    call: Int
    start: Real
    end: Real
    duration: Real
    latency: Real
    distance: Real
    source: Int
    source_distance: Real
    kind: Int
    is_tied: Flag
    is_queued: Flag
    is_graph: Flag
    holds_host: Flag


@dataclass(frozen=True)
class Waits:
    """Calls that return when device work has ended, by position of the call; the awaited operations in compressed rows.

    A wait returns at `max(start + own, end of the awaited + lag)`.

    Attributes:
        call: position of the call, ascending.
        start: of the call, as recorded.
        end: likewise.
        lag: time from the end of the awaited work to the return; negative where the clocks disagree by less than 3 us.
        first: row i awaits `op[first[i]:first[i + 1]]`.
        op: positions of awaited operations.
        is_active: false where a cure took the wait out.
        is_own_copy: a copy, or a launch, that waits for its own work.
        did_block: the recorded call waited.
    """

    call: Int
    start: Real
    end: Real
    lag: Real
    first: Int
    op: Int
    is_active: Flag
    is_own_copy: Flag
    did_block: Flag


@dataclass(frozen=True)
class Run:
    """Everything a replay needs.

    Attributes:
        calls: host side.
        ops: device side.
        waits: where the host waits for the device.
        stream_device: device of each stream; devices of two processes are two; -1 where ranks meet.
        thread_process: process of each thread.
    """

    calls: Calls
    ops: Ops
    waits: Waits
    stream_device: Int
    thread_process: Int

    @property
    def recorded_ns(self) -> float:
        """End of the last operation, as recorded."""
        return float(self.ops.end.max(initial=0.0))


def to_replay(run: Run) -> Run:
    """The run without what only building and correcting it need: when calls began and ended, when operations ended."""
    none, never = run.calls.correlation_id[:0].copy(), np.zeros(0)
    calls = replace(run.calls, correlation_id=none, start=never, end=never)
    return replace(run, calls=calls, ops=replace(run.ops, end=never))


def position_of(sorted_positions: Int, ids: Int) -> Int:
    """Place of every id in a table indexed by id (see `index_by_id`), -1 where it is not there."""
    count = len(sorted_positions)
    position = np.full(len(ids), -1, dtype=sorted_positions.dtype)
    for part in slices(len(ids), IN_CACHE):
        here = ids[part]
        if here.min(initial=count) >= 0 and here.max(initial=-1) < count:  # mostly all are there
            sorted_positions.take(here, out=position[part], mode="wrap")
        else:
            known = np.flatnonzero((here >= 0) & (here < count))
            position[part][known] = sorted_positions[here[known]]
    return position


def index_by_id(ids: Int) -> Int:
    """Table from id to position, without negative ids. Ids are row numbers, so the table is as long as the case."""
    table = np.full(int(ids.max(initial=-1)) + 1, -1, dtype=np.int32)
    for part in slices(len(ids), IN_CACHE):
        named = np.flatnonzero(ids[part] >= 0)
        table[ids[part][named]] = part.start + named
    return table
