"""The step that operations and calls fall in, and the work of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from doctor.case.arrays.columns import UNKNOWN, Code, Int, spelled, whole
from doctor.case.arrays.operations import DeviceOps, process_columns

NO_STEP = np.iinfo(np.int32).min


@dataclass(frozen=True)
class Steps:
    """Steps of each process, in order of start: rows of (start, end, id)."""

    of_process: dict[tuple[int | None, ...], tuple[Int, Int, Int]]

    @staticmethod
    def of(rows: pa.Table) -> Steps:
        """Steps out of columns source_id, pid, step_id, start_ns, end_ns."""
        keys = list(zip(rows.column("source_id").to_pylist(), rows.column("pid").to_pylist(), strict=True))
        columns = [whole(rows, name) for name in ("start_ns", "end_ns", "step_id")]
        order = np.argsort(columns[0], kind="stable")
        places: dict[tuple[int | None, ...], list[int]] = {}
        for at in order.tolist():
            places.setdefault(keys[at], []).append(at)
        return Steps({key: (columns[0][at], columns[1][at], columns[2][at]) for key, at in places.items()})

    def at(self, processes: tuple[tuple[int | None, ...], ...], process: Code, time: Int) -> Code:
        """Step of each moment of a process, `NO_STEP` between steps."""
        found = np.full(len(time), NO_STEP, dtype=np.int32)
        for number, key in enumerate(processes):
            if key not in self.of_process or None in key:
                continue
            start, end, step_id = self.of_process[key]
            here = np.flatnonzero(process == number)
            place = np.searchsorted(start, time[here], side="right") - 1
            is_in = (place >= 0) & (time[here] < end[np.maximum(place, 0)])
            found[here[is_in]] = step_id[place[is_in]]
        return found


def step_work(ops: DeviceOps, blocks: Int, step_of_op: Code) -> pa.Table:
    """Operations, their device time in ns and their thread blocks, by step and family of work."""
    at = np.flatnonzero(step_of_op >= 0)
    group = step_of_op[at].astype(np.int64) * len(ops.families) + ops.family[at]
    size = int(group.max(initial=-1)) + 1
    count = np.bincount(group, minlength=size)
    device_ns = np.bincount(group, ops.end[at] - ops.start[at], size)
    rows_blocks = np.bincount(group, np.where(blocks[at] == UNKNOWN, 0, blocks[at]), size)
    there = np.flatnonzero(count)
    any_op = np.empty(size, dtype=np.int64)
    any_op[group] = at
    return pa.table(
        {
            "step_id": there // len(ops.families),
            **process_columns(ops, ops.process[any_op[there]]),
            "family": spelled((there % len(ops.families)).astype(np.int32), ops.families, pa.string()),
            "op_count": count[there],
            "device_ns": device_ns[there].astype(np.int64),
            "rows_blocks": rows_blocks[there].astype(np.int64),
        }
    )
