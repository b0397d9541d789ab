"""Which call launched which device operation: by correlation id within one process. A graph launch has many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from doctor.case.arrays.calls import HostCalls
from doctor.case.arrays.columns import UNKNOWN, Code, Int, spelled
from doctor.case.arrays.operations import DeviceOps


def launching_calls(calls: HostCalls, ops: DeviceOps) -> Code:
    """Of each operation the call that launched it, -1 where none is known."""
    launched_by = np.full(len(ops.start), -1, dtype=np.int32)
    number = {key: at for at, key in enumerate(calls.threads.processes)}
    caller = np.concatenate((np.arange(len(calls.start)), calls.inner_outer))
    correlation = np.concatenate((calls.correlation, calls.inner_correlation))
    process = np.where(calls.threads.is_known, calls.threads.process, -1)[calls.thread[caller]]
    for at, key in enumerate(ops.processes):
        if key[1] is None or key not in number:
            continue
        candidates = np.flatnonzero((process == number[key]) & (correlation != UNKNOWN))
        ids, first_caller = _first_of_each(correlation[candidates], caller[candidates])
        launched = np.flatnonzero((ops.process == at) & (ops.correlation != UNKNOWN))
        if len(ids):
            place = np.minimum(np.searchsorted(ids, ops.correlation[launched]), len(ids) - 1)
            is_found = ids[place] == ops.correlation[launched]
            launched_by[launched[is_found]] = first_caller[place[is_found]]
    return launched_by


def _first_of_each(correlation: Int, caller: Int) -> tuple[Int, Int]:
    """Distinct correlation ids, ascending, and the earliest call of each."""
    order = np.argsort(correlation, kind="stable")  # ids mostly grow with time
    correlation, caller = correlation[order], caller[order]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = correlation[1:] != correlation[:-1]
    first = np.flatnonzero(is_first)
    return correlation[first], np.minimum.reduceat(caller, first) if len(first) else caller


def as_rows(launched_by: Code) -> pa.Table:
    """Columns of the table `launch`."""
    launched = np.flatnonzero(launched_by >= 0)
    return pa.table({"device_op_id": launched, "host_call_id": launched_by[launched].astype(np.int64)})


def by_thread(calls: HostCalls, launched_by: Code) -> pa.Table:
    """Threads that launched work, and how many operations."""
    keys = calls.threads.keys
    count = np.bincount(calls.thread[launched_by[launched_by >= 0]], minlength=len(keys))
    thread = np.flatnonzero(count).astype(np.int32)
    return pa.table(
        {
            "source_id": spelled(thread, [key[0] for key in keys], pa.int16()),
            "pid": spelled(thread, [key[1] for key in keys], pa.int64()),
            "tid": spelled(thread, [key[2] for key in keys], pa.int64()),
            "op_count": count[thread],
        }
    )
