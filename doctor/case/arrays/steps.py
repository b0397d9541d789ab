"""The step that operations and calls fall in, how long each step takes, and the work of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from doctor.case.arrays.columns import IN_CACHE, UNKNOWN, Code, Int, rows_of, slices, spelled, whole
from doctor.case.arrays.operations import DeviceOps, process_columns

NO_STEP = np.iinfo(np.int32).min
LONGEST_LATENCY_NS = 200_000
"""Between a launch and the start of its work on a device that has nothing else to do: 10 us, and some of jitter."""


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
        known = [at for at, key in enumerate(processes) if key in self.of_process and None not in key]
        for part in slices(len(time), IN_CACHE):
            for number in known:
                start, end, step_id = self.of_process[processes[number]]
                here = rows_of(process[part], number, len(processes))
                moment = time[part][here]
                place = np.searchsorted(start, moment, side="right") - 1
                is_in = (place >= 0) & (moment < end[place])
                found[part][here] = np.where(is_in, step_id[place], NO_STEP)
        return found


def spans(steps: Steps, ops: DeviceOps, called: Int, held_until: Int) -> pa.Table:
    """When each step began and ended, in ns: when the host was there and all launched before was done.

    Where the host waits for the device these are the host's own times. Where it runs ahead, a step begins when the one
    before it is done, as on the device, so that the lengths of steps in a row add up to the time of all. What the host
    does before the first launch of all is in no step then: the device hides it in every other.

    Args:
        steps: when the host was in each.
        ops: all operations.
        called: of each operation, ns, start of the launching call.
        held_until: of each process, as of `held_until`.
    """
    number = {key: at for at, key in enumerate(ops.processes)}
    parts = []
    for key, (start, end, step_id) in steps.of_process.items():
        moments = np.unique(np.concatenate((start, end)))
        done = moments
        if key in number:
            here = rows_of(ops.process, number[key], len(number))
            done = np.maximum(_done(moments, called[here], ops.end[here]), held_until[number[key]])
            if len(start) > 1 and _is_ahead(start[1], done[np.searchsorted(moments, start[1])], called[here]):
                done = np.maximum(done, ops.start[here][0])
        parts.append((step_id, done[np.searchsorted(moments, start)], done[np.searchsorted(moments, end)]))
    names = ("step_id", "start_ns", "end_ns")
    columns = zip(*parts, strict=True) if parts else ([np.zeros(0, dtype=np.int64)] for _ in names)
    return pa.table({name: np.concatenate(column) for name, column in zip(names, columns, strict=True)})


def _done(moments: Int, called: Int, end: Int) -> Int:
    """Of each moment, ascending: itself, or the end of the last operation that was called before it."""
    reached = np.full(len(moments) + 1, UNKNOWN, dtype=np.int64)
    np.maximum.at(reached, np.searchsorted(moments, called, side="right"), end)
    return np.maximum(moments, np.maximum.accumulate(reached)[:-1])


def _is_ahead(start: int, done: int, called: Int) -> bool:
    """The device still works on what came before when a step that begins at `start` launches first."""
    return bool(done > called[called >= start].min(initial=np.iinfo(np.int64).max))


def held_until(ops: DeviceOps, launched_by: Code, returned: Int) -> Int:
    """Until when the device was held by work that each process had launched before the recording; `UNKNOWN` if not.

    Nothing recorded runs before the first operation, so that it waits for something else where it begins long after
    the call that launched it.

    Args:
        ops: all operations.
        launched_by: place of the call that launched each, negative where that was not recorded.
        returned: of each call, ns, its end.
    """
    held = np.full(len(ops.processes), UNKNOWN, dtype=np.int64)
    for process in range(len(ops.processes)):
        first = int(np.argmax(ops.process == process))
        call = int(launched_by[first])
        if call >= 0 and ops.start[first] - returned[call] > LONGEST_LATENCY_NS:
            held[process] = ops.start[first]
    return held


def step_work(ops: DeviceOps, blocks: Int, step_of_op: Code) -> pa.Table:
    """Operations, their device time in ns and their thread blocks, by step and family of work."""
    size = (int(step_of_op.max(initial=-1)) + 1) * len(ops.families)
    count, any_op = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    device_ns, rows_blocks = np.zeros(size), np.zeros(size)
    for part in slices(len(step_of_op), IN_CACHE):
        at = part.start + np.flatnonzero(step_of_op[part] >= 0)
        group = step_of_op[at].astype(np.int64) * len(ops.families) + ops.family[at]
        least = int(group.min(initial=size))
        until = slice(least, int(group.max(initial=least - 1)) + 1)
        count[until] += np.bincount(group - least)
        device_ns[until] += np.bincount(group - least, ops.end[at] - ops.start[at])
        rows_blocks[until] += np.bincount(group - least, np.where(blocks[at] == UNKNOWN, 0, blocks[at]))
        any_op[group] = at
    there = np.flatnonzero(count)
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
