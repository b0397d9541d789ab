"""Which call launched which device operation: by correlation id within one process. A graph launch has many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from doctor.case.arrays.calls import HostCalls
from doctor.case.arrays.columns import IN_CACHE, UNKNOWN, Code, Int, gather, nullable, scatter, slices, spelled
from doctor.case.arrays.operations import DeviceOps


def launching_calls(calls: HostCalls, ops: DeviceOps) -> Code:
    """Of each operation the call that launched it, -1 where none is known."""
    launched_by = np.full(len(ops.start), -1, dtype=np.int32)
    number = {key: at for at, key in enumerate(ops.processes)}
    for process, key in enumerate(calls.threads.processes):
        if key[1] is None or key not in number:
            continue
        ids, first_caller = _callers(calls, process)
        launched = np.flatnonzero((ops.process == number[key]) & (ops.correlation != UNKNOWN)).astype(np.int32)
        if len(ids):
            correlation = gather(ops.correlation, launched)
            place = np.minimum(np.searchsorted(ids, correlation), len(ids) - 1).astype(np.int32)
            is_found = gather(ids, place) == correlation
            if not is_found.all():
                launched, place = launched[is_found], place[is_found]
            scatter(gather(first_caller, place), launched, into=launched_by)
    return launched_by


def _callers(calls: HostCalls, process: int) -> tuple[Int, Code]:
    """Correlation ids of a process, ascending, and the earliest outermost call of each."""
    is_own = (calls.threads.process == process) & calls.threads.is_known
    outer = np.flatnonzero(gather(is_own, calls.thread) & (calls.correlation != UNKNOWN)).astype(np.int32)
    inner = np.flatnonzero(gather(is_own, calls.thread[calls.inner_outer]))
    correlation = np.concatenate((calls.correlation[outer], calls.inner_correlation[inner]))
    caller = np.concatenate((outer, calls.inner_outer[inner].astype(np.int32)))
    if (correlation[1:] > correlation[:-1]).all():  # one thread counts upwards
        return correlation, caller
    order = np.argsort(correlation, kind="stable").astype(np.int32)
    correlation, caller = gather(correlation, order), gather(caller, order)
    first = np.flatnonzero(np.append(True, correlation[1:] != correlation[:-1]))
    return correlation[first], np.minimum.reduceat(caller, first)


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
