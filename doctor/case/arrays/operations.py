"""Device operations in order of start: when every device of the case was quiet, and how each spent the window."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from doctor.case.arrays.columns import (
    UNKNOWN,
    Code,
    Flag,
    Int,
    bounds_of,
    by_group,
    gather,
    reached_before,
    spelled,
)
from doctor.case.tasks import each

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


def device_time(ops: DeviceOps, from_ns: int, until_ns: int) -> DeviceTime:
    """Gaps and busy times of every device that works in the window; concurrent streams count once."""
    inside = np.flatnonzero((ops.end > from_ns) & (ops.start < until_ns))
    inside = inside[by_group(ops.device[inside], len(ops.devices))]
    device = ops.device[inside]
    bounds = bounds_of(device, len(ops.devices))
    start, end = np.maximum(ops.start[inside], from_ns), np.minimum(ops.end[inside], until_ns)
    busy_until = reached_before(end, bounds)
    gap_start = np.where(busy_until == UNKNOWN, from_ns, busy_until)
    gap = np.flatnonzero(start > gap_start)
    gaps = {
        **_devices(ops, device[gap]),
        "start_ns": gap_start[gap],
        "end_ns": start[gap],
        "next_device_op_id": inside[gap],
    }
    is_kernel = gather(~ops.is_of(*COPIES), ops.family[inside])
    is_compute = gather(~ops.is_of(*COPIES, "collective"), ops.family[inside])
    seen = np.flatnonzero(np.diff(bounds))
    unions = each(lambda among: _covered(start, end, bounds, among), (np.ones_like(is_kernel), is_kernel, is_compute))
    busy = {
        **_devices(ops, seen.astype(np.int32)),
        **{name: values[seen] for name, values in zip(("busy_ns", "kernel_ns", "compute_ns"), unions, strict=True)},
    }
    return DeviceTime(pa.table(gaps), pa.table(busy))


def _covered(start: Int, end: Int, bounds: Int, among: Flag) -> Int:
    """Length of the union of the intervals in `among`, of each group."""
    until = reached_before(np.where(among, end, UNKNOWN), bounds)
    new = np.maximum(end - np.maximum(start, until), 0)
    new[~among] = 0
    total = np.concatenate(([0], np.cumsum(new)))
    return total[bounds[1:]] - total[bounds[:-1]]


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
