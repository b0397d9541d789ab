"""Which call launched which device operation: by correlation id within one process. A graph launch has many."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from doctor.case.arrays.calls import HostCalls
from doctor.case.arrays.columns import IN_CACHE, UNKNOWN, Code, Int, gather, nullable, slices, spelled
from doctor.case.arrays.operations import DeviceOps

DENSE_SPAN = 4
"""Correlation ids that span so many times their number are looked up in a table."""
_NO_CALL = np.iinfo(np.int32).max


def launching_calls(calls: HostCalls, ops: DeviceOps) -> Code:
    """Of each operation the call that launched it, -1 where none is known."""
    launched_by = np.full(len(ops.start), -1, dtype=np.int32)
    number = {key: at for at, key in enumerate(ops.processes)}
    for process, key in enumerate(calls.threads.processes):
        if key[1] is None or key not in number:
            continue
        callers = _Callers.of(calls, process)
        for part in slices(len(launched_by), IN_CACHE):
            launched = np.flatnonzero((ops.process[part] == number[key]) & (ops.correlation[part] != UNKNOWN))
            launched_by[part][launched] = callers.find(ops.correlation[part][launched])
    return launched_by


@dataclass(frozen=True)
class _Callers:
    """The earliest outermost call of each correlation id of a process.

    Attributes:
        ids: ascending; none where the calls are in a table, since the ids lie close together.
        call: of each id, or of each number from `least` on, -1 where no call has it.
        least: the smallest id.
    """

    ids: Int
    call: Code
    least: int

    @staticmethod
    def of(calls: HostCalls, process: int) -> _Callers:
        """The calls of one process."""
        is_own = (calls.threads.process == process) & calls.threads.is_known
        outer = np.flatnonzero(gather(is_own, calls.thread) & (calls.correlation != UNKNOWN)).astype(np.int32)
        inner = np.flatnonzero(gather(is_own, gather(calls.thread, calls.inner_outer)))
        ids, caller = gather(calls.correlation, outer), calls.inner_outer[inner].astype(np.int32)
        inner_ids = calls.inner_correlation[inner]
        known = [one for one in (ids, inner_ids) if len(one)]
        least = min((int(one.min()) for one in known), default=0)
        span = max((int(one.max()) for one in known), default=-1) - least + 1
        if span > DENSE_SPAN * (len(ids) + len(inner_ids)):
            return _Callers._sorted(np.concatenate((ids, inner_ids)), np.concatenate((outer, caller)))
        call = np.full(span, _NO_CALL, dtype=np.int32)
        call[(ids - least)[::-1]] = outer[::-1]  # of several calls with one id the first, which is written last
        np.minimum.at(call, inner_ids - least, caller)
        call[call == _NO_CALL] = -1
        return _Callers(ids[:0].copy(), call, least)

    @staticmethod
    def _sorted(ids: Int, caller: Code) -> _Callers:
        if (ids[1:] > ids[:-1]).all():  # one thread counts upwards
            return _Callers(ids, caller, 0)
        order = np.argsort(ids, kind="stable").astype(np.int32)
        ids, caller = gather(ids, order), gather(caller, order)
        first = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
        return _Callers(ids[first], np.minimum.reduceat(caller, first), 0)

    def find(self, ids: Int) -> Code:
        """The call of each correlation id, -1 where there is none."""
        if not len(self.call):
            return np.full(len(ids), -1, dtype=np.int32)
        place = np.searchsorted(self.ids, ids) if len(self.ids) else ids - self.least
        is_in = (place >= 0) & (place < len(self.call))
        place = np.where(is_in, place, 0)
        if len(self.ids):
            is_in &= self.ids[place] == ids
        return np.where(is_in, self.call[place], np.int32(-1))


def as_rows(launched_by: Code) -> pa.Table:
    """Columns of the table `launch`."""
    launched = np.flatnonzero(launched_by >= 0)
    return pa.table({"device_op_id": launched, "host_call_id": gather(launched_by, launched).astype(np.int64)})


def by_thread(calls: HostCalls, launched_by: Code) -> pa.Table:
    """Threads that launched work, and how many operations."""
    keys = calls.threads.keys
    count = np.bincount(gather(calls.thread, launched_by[launched_by >= 0]), minlength=len(keys))
    thread = np.flatnonzero(count).astype(np.int32)
    return pa.table(
        {
            "source_id": spelled(thread, [key[0] for key in keys], pa.int16()),
            "pid": spelled(thread, [key[1] for key in keys], pa.int64()),
            "tid": spelled(thread, [key[2] for key in keys], pa.int64()),
            "op_count": count[thread],
        }
    )


def times_of_call(ops: DeviceOps, calls: HostCalls, launched_by: Code) -> Int:
    """Of each operation when the call that launched it began, ns; of one without a call when it began itself."""
    called = ops.start.copy()
    for part in slices(len(called)):
        launched = np.flatnonzero(launched_by[part] >= 0)
        called[part][launched] = calls.start[launched_by[part][launched]]
    return called


def with_launches(gaps: pa.Table, calls: HostCalls, launched_by: Code) -> pa.Table:
    """Gaps, with the end of the launch, copy or memory set that launched what ended each; NULL where it was none."""
    next_op = gaps.column("next_device_op_id").to_numpy()
    is_told = calls.names.in_class("launch", "memset", "copy")
    launched = np.full(len(next_op), UNKNOWN)
    for part in slices(len(next_op), IN_CACHE):
        call = launched_by[next_op[part]]
        known = np.flatnonzero(call >= 0)
        known = known[is_told[calls.name[call[known]]]]
        launched[part][known] = calls.end[call[known]]
    return gaps.append_column("launched_ns", nullable(launched))
