"""Names and times as a narrow screen shows them."""

from __future__ import annotations

import re

from doctor.case.timeline.drawing import Item, Lane
from doctor.case.timeline.items import Work
from doctor.tui.names import short_name

_VERSION = re.compile(r"_v\d{4,5}$")
"""Of a call of the CUDA runtime: which release brought it, as in `cudaMemcpyAsync_v3020`."""
_UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "us"), (1, "ns"))


def item_name(item: Item) -> str:
    """The name of an item in its box."""
    if item.work is Work.STEP:
        return f"step {item.item_id}"
    if item.name:
        return _VERSION.sub("", short_name(item.name))
    return {Work.COPY: "copy", Work.MEMSET: "memset", Work.GRAPH: "CUDA graph"}.get(item.work, "unnamed")


def lane_name(lane: Lane) -> str:
    """The label of a lane."""
    if lane.kind == "stream":
        return f"GPU{lane.device_id} str {lane.stream_id}"
    if lane.kind == "thread":
        return f"thread {lane.tid}" if lane.tid is not None else "thread ?"
    if lane.kind == "range":
        return "ranges" if lane.depth == 0 else f"  depth {lane.depth}"
    return "steps"


def moment(time_ns: int, step_ns: float) -> str:
    """A time with as many digits as `step_ns` needs: `12.3452 ms` where a step is 100 ns."""
    size, unit = next((entry for entry in _UNITS if abs(time_ns) >= entry[0]), _UNITS[-1])
    digits = 0
    while digits < 9 and size / 10**digits > max(step_ns, 1):
        digits += 1
    return f"{time_ns / size:.{digits}f} {unit}"


def tick_step(cell_ns: float, cells_between: int) -> int:
    """A round distance (1, 2 or 5 times a power of ten ns) of at least so many cells."""
    least = max(cell_ns * cells_between, 1)
    power = 1
    while power * 10 <= least:
        power *= 10
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)
