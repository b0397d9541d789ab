"""Device operations in order of start: when every device of the case was quiet, and how each spent the window."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from doctor.case.arrays.columns import (
    IN_CACHE,
    Code,
    Flag,
    Int,
    bounds_of,
    by_group,
    gather,
    slices,
    spelled,
)

COPIES = ("memcpy", "memset")


@dataclass(frozen=True)
class DeviceOps:
    """Operations in order of start; the position of one is its `device_op_id`.

    Attributes:
        processes: source id and process id.
        process: of each operation.
        devices: source id and device id.
        device: of each operation.
        start: ns on the case's clock.
        end: likewise.
        correlation: `UNKNOWN` where not recorded.
        families: kinds of work.
        family: uint8, of each operation.
    """

    processes: tuple[tuple[int | None, ...], ...]
    process: Code
    devices: tuple[tuple[int | None, ...], ...]
    device: Code
    start: Int
    end: Int
    correlation: Int
    families: tuple[str, ...]
    family: npt.NDArray[np.uint8]

    def without_correlations(self) -> DeviceOps:
        """The same without the ids, which are needed once."""
        return replace(self, correlation=self.correlation[:0].copy())

    def is_of(self, *families: str) -> Flag:
        """Of each family, whether it is one of these."""
        return np.asarray([one in families for one in self.families], dtype=np.bool_)


def quiet_times(ops: DeviceOps) -> pa.Table:
    """Maximal times in which no device of the case worked, with the work before, behind and in all; ns."""
    reached = np.maximum.accumulate(ops.end)
    next_op = np.flatnonzero(ops.start[1:] > reached[:-1]) + 1
    start, end = reached[next_op - 1], ops.start[next_op]
    idle_until = np.cumsum(end - start)
    idle = int(idle_until[-1]) if len(idle_until) else 0
    first, last = (int(ops.start[0]), int(reached[-1])) if len(reached) else (0, 0)
    return pa.table(
        {
            "start_ns": start,
            "end_ns": end,
            "busy_before_ns": end - first - idle_until,
            "busy_after_ns": last - end - (idle - idle_until),
            "busy_ns": np.full(len(start), last - first - idle),
        }
    )


@dataclass(frozen=True)
class DeviceTime:
    """How the devices spent a window: `gaps` as in `device_gap`, `busy` a row a device with three unions in ns."""

    gaps: pa.Table
    busy: pa.Table


@dataclass
class _Union:
    """Intervals that are joined as they come, in order of start.

    Attributes:
        reached: ns, until when they reach; at first where the union begins.
        idle_ns: time until then that none of them covers.
    """

    reached: int
    idle_ns: int = 0

    def join(self, start: Int, end: Int) -> Int:
        """Join some more; returns until when those before each of them reach."""
        reached = np.maximum.accumulate(np.concatenate((np.asarray([self.reached]), end)))
        self.reached = int(reached[-1])
        self.idle_ns += int(np.maximum(start - reached[:-1], 0).sum())
        return np.asarray(reached[:-1])


def device_time(ops: DeviceOps, from_ns: int, until_ns: int) -> DeviceTime:
    """Gaps and busy times of every device that works in the window; concurrent streams count once."""
    count = len(ops.devices)
    among = {"kernel_ns": ~ops.is_of(*COPIES), "compute_ns": ~ops.is_of(*COPIES, "collective")}
    unions = {name: [_Union(from_ns) for _ in range(count)] for name in ("busy_ns", *among)}
    gaps: list[list[tuple[Int, Code]]] = [[] for _ in range(count)]
    for part in slices(int(np.searchsorted(ops.start, until_ns)), IN_CACHE):
        inside = np.flatnonzero(ops.end[part] > from_ns)
        inside = inside[by_group(ops.device[part][inside], count)]
        start, end = np.maximum(ops.start[part][inside], from_ns), np.minimum(ops.end[part][inside], until_ns)
        bounds, family = bounds_of(ops.device[part][inside], count), ops.family[part][inside]
        for device in np.flatnonzero(np.diff(bounds)).tolist():
            own = slice(bounds[device], bounds[device + 1])
            busy_until = unions["busy_ns"][device].join(start[own], end[own])
            gap = np.flatnonzero(start[own] > busy_until)
            gaps[device].append((busy_until[gap], (part.start + inside[own][gap]).astype(np.int32)))
            for name, is_among in among.items():
                here = np.flatnonzero(is_among[family[own]])
                unions[name][device].join(start[own][here], end[own][here])
    seen = np.asarray([device for device in range(count) if gaps[device]], dtype=np.int32)
    gap_count = [sum(len(next_op) for _, next_op in gaps[device]) for device in seen]
    begins, next_ops = zip(*chain.from_iterable(gaps), strict=True) if len(seen) else ((), ())
    del gaps
    next_op = np.concatenate((np.zeros(0, dtype=np.int32), *next_ops))
    return DeviceTime(
        pa.table(
            {
                **_devices(ops, np.repeat(seen, gap_count)),
                "start_ns": np.concatenate((np.zeros(0, dtype=np.int64), *begins)),
                "end_ns": np.maximum(gather(ops.start, next_op), from_ns),
                "next_device_op_id": next_op.astype(np.int64),
            }
        ),
        pa.table(
            {
                **_devices(ops, seen),
                **{
                    name: np.asarray(
                        [of_device[one].reached - from_ns - of_device[one].idle_ns for one in seen], dtype=np.int64
                    )
                    for name, of_device in unions.items()
                },
            }
        ),
    )


def _devices(ops: DeviceOps, device: Code) -> dict[str, pa.Array]:
    return {
        "source_id": spelled(device, [key[0] for key in ops.devices], pa.int16()),
        "device_id": spelled(device, [key[1] for key in ops.devices], pa.int32()),
    }


def process_columns(ops: DeviceOps, process: Code) -> dict[str, pa.Array]:
    """Source and process id of each row, as columns."""
    return {
        "source_id": spelled(process, [key[0] for key in ops.processes], pa.int16()),
        "pid": spelled(process, [key[1] for key in ops.processes], pa.int64()),
    }
