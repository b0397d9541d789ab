"""Rows of the case out of a snapshot's plain values: segments, their blocks, and the history of every device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from doctor.formats.memory_snapshot.failure import last_failure, segments_at
from doctor.formats.memory_snapshot.stacks import StackTexts

Row = dict[str, Any]

_STATES = {
    "active_allocated": "active",
    "active_pending_free": "pending",
    "active_awaiting_free": "pending",
    "inactive": "inactive",
}
_KINDS = {"small": "small", "large": "large"}
_ACTIONS = {
    "alloc": "alloc",
    "free": "free",
    "free_completed": "free",
    "segment_alloc": "segment_alloc",
    "segment_map": "segment_alloc",
    "segment_free": "segment_free",
    "segment_unmap": "segment_free",
    "oom": "oom",
}
_SIGN = {"alloc": 1, "free": -1}
_SEGMENT_SIGN = {"segment_alloc": 1, "segment_free": -1}
_MOST = 2**63
_MOST_SIZE = 2**48
"""256 TiB: no device comes near, and sums over all segments stay in 64 bits."""


@dataclass(frozen=True)
class Failure:
    """An allocation that failed, out of a history; sizes in bytes, None where not told.

    Attributes:
        device: its place in the snapshot.
        tried_bytes: what was asked for.
        free_bytes: free on the device.
        active_bytes: in tensors then.
        reserved_bytes: held by the allocator then.
        frames: of the failing call, innermost first: dicts with `name`, `filename`, `line`.
    """

    device: int
    tried_bytes: int | None
    free_bytes: int | None
    active_bytes: int
    reserved_bytes: int
    frames: tuple[Mapping[str, Any], ...]


class Snapshot:
    """One snapshot; `torch.cuda.memory._snapshot()` or the older list of `torch.cuda.memory_snapshot()`.

    Attributes:
        segments: those whose sizes can be; of a device whose history holds a failed allocation, as they were then.
        rewound_devices: devices whose segments are those of the failure.
        lost_segments: number of the others, which are left out with their blocks.
        traces: history of each device.
        stacks: texts of frames.
    """

    def __init__(self, plain: Any) -> None:
        """Take the plain values.

        Raises:
            ValueError: they are no snapshot.
        """
        segments = plain.get("segments") if isinstance(plain, dict) else plain
        if not isinstance(segments, list) or not all(isinstance(entry, dict) for entry in segments):
            raise ValueError("holds no segments")
        _refuse_repeats([entry.get("blocks") for entry in segments])
        readable = [entry for entry in segments if _is_sound(entry)]
        if segments and not readable:
            raise ValueError("holds no segment whose size can be read")
        traces = plain.get("device_traces") if isinstance(plain, dict) else None
        _refuse_repeats(traces)
        self.segments: list[Mapping[str, Any]] = readable
        self.lost_segments = len(segments) - len(readable)
        self.traces: list[list[Mapping[str, Any]]] = [
            [entry for entry in trace if isinstance(entry, dict)]
            for trace in (traces if isinstance(traces, list) else [])
            if isinstance(trace, list)
        ]
        self.stacks = StackTexts()
        self._last_segments: Sequence[Mapping[str, Any]] = readable
        self._failures = {
            device: place for device, trace in enumerate(self.traces) if (place := last_failure(trace)) is not None
        }
        self.rewound_devices = tuple(device for device in self._failures if self._rewind(device))

    @property
    def has_history(self) -> bool:
        """True where the recorder was on before the snapshot was taken."""
        return any(self.traces)

    def failures(self) -> Iterator[Failure]:
        """The last failed allocation of each device."""
        for device, place in self._failures.items():
            entry = self.traces[device][place]
            mine = [segment for segment in self.segments if _whole(segment.get("device")) in {device, None}]
            reserved = sum(_size(segment.get("total_size")) or 0 for segment in mine)
            active = sum(_size(segment.get("active_size", segment.get("allocated_size"))) or 0 for segment in mine)
            tried, free = _size(entry.get("size")), _size(entry.get("device_free"))
            yield Failure(device, tried, free, active, reserved, tuple(_dicts(entry.get("frames"))))

    def _rewind(self, device: int) -> bool:
        """Put the device's segments back to the moment of the failure; False where nothing came after it."""
        trace, place = self.traces[device], self._failures[device]
        if place == len(trace) - 1:
            return False
        is_mine = [_whole(segment.get("device")) in {device, None} for segment in self.segments]
        mine = [segment for segment, own in zip(self.segments, is_mine, strict=True) if own]
        then = segments_at(mine, trace, place)
        if then is None:
            return False
        others = [segment for segment, own in zip(self.segments, is_mine, strict=True) if not own]
        self.segments = [*others, *({**segment, "device": device} for segment in then)]
        return True

    def segment_rows(self) -> Iterator[Row]:
        """Rows of `allocator_segment`."""
        for number, entry in enumerate(self.segments):
            yield {
                "device_id": _whole(entry.get("device")),
                "segment_id": number,
                "address": _whole(entry.get("address")),
                "stream_id": _whole(entry.get("stream")),
                "total_bytes": _size(entry.get("total_size")),
                "allocated_bytes": _size(entry.get("allocated_size")),
                "active_bytes": _size(entry.get("active_size")),
                "segment_kind": _KINDS.get(_word(entry.get("segment_type"))),
                "is_private_pool": _is_private(entry.get("segment_pool_id")),
                "is_expandable": bool(entry.get("is_expandable", False)),
                "stack": self.stacks.text(entry.get("frames")),
            }

    def block_rows(self) -> Iterator[Row]:
        """Rows of `allocator_block`; older snapshots give no address, which follows from the blocks before."""
        born = self._births()
        for number, entry in enumerate(self.segments):
            device, address = _whole(entry.get("device")), _whole(entry.get("address"))
            for block in _dicts(entry.get("blocks")):
                size = _size(block.get("size"))
                at = _whole(block.get("address")) if "address" in block else address
                yield {
                    "device_id": device,
                    "segment_id": number,
                    "address": at,
                    "size_bytes": size,
                    "requested_bytes": _size(
                        block.get("requested_size", _first(block.get("history")).get("real_size"))
                    ),
                    "block_state": _STATES.get(_word(block.get("state"))),
                    "allocated_ns": born.get((device, at)),
                    "stack": self.stacks.text(block.get("frames") or _first(block.get("history")).get("frames")),
                }
                address = None if at is None or size is None else at + size

    def step_rows(self) -> Iterator[Row]:
        """Rows of `allocator_step`, with the levels after each; they are counted back from the end."""
        for device, trace in enumerate(self.traces):
            kept = [(entry, action) for entry in trace if (action := _ACTIONS.get(_word(entry.get("action"))))]
            allocated, reserved = self._levels_before(device, kept)
            for number, (entry, action) in enumerate(kept):
                size = _size(entry.get("size")) or 0
                allocated += _SIGN.get(action, 0) * size
                reserved += _SEGMENT_SIGN.get(action, 0) * size
                yield {
                    "device_id": device,
                    "step_id": number,
                    "time_ns": _time(entry),
                    "action": action,
                    "address": None if action == "oom" else _whole(entry.get("addr")),
                    "size_bytes": size,
                    "free_bytes": _size(entry.get("device_free")) if action == "oom" else None,
                    "allocated_bytes": max(allocated, 0),
                    "reserved_bytes": max(reserved, 0),
                    "stack": self.stacks.text(entry.get("frames")),
                }

    def _levels_before(self, device: int, kept: Sequence[tuple[Mapping[str, Any], str]]) -> tuple[int, int]:
        mine = [entry for entry in self._last_segments if _whole(entry.get("device")) in {device, None}]
        allocated = sum(_size(entry.get("active_size", entry.get("allocated_size"))) or 0 for entry in mine)
        reserved = sum(_size(entry.get("total_size")) or 0 for entry in mine)
        for entry, action in kept:
            size = _size(entry.get("size")) or 0
            allocated -= _SIGN.get(action, 0) * size
            reserved -= _SEGMENT_SIGN.get(action, 0) * size
        return allocated, reserved

    def _births(self) -> dict[tuple[int | None, int | None], int | None]:
        return {
            (device, _whole(entry.get("addr"))): _time(entry)
            for device, trace in enumerate(self.traces)
            for entry in trace[: self._failures.get(device)]
            if entry.get("action") == "alloc"
        }


def _refuse_repeats(lists: Any) -> None:
    """A list that stands in a snapshot many times over costs a few bytes there, and rows without end here.

    Raises:
        ValueError: one of the lists stands there twice.
    """
    entries = lists if isinstance(lists, list | tuple) else ()
    found = [id(entry) for entry in entries if isinstance(entry, list | tuple) and entry]
    if len(set(found)) < len(found):
        raise ValueError("repeats its lists of blocks or events, which no snapshot does")


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _is_sound(segment: Mapping[str, Any]) -> bool:
    """A segment has a size, and its blocks fit in it."""
    total = _size(segment.get("total_size"))
    sizes = [_size(block.get("size")) for block in _dicts(segment.get("blocks"))]
    return total is not None and None not in sizes and sum(size or 0 for size in sizes) <= total


def _time(entry: Mapping[str, Any]) -> int | None:
    micros = _whole(entry.get("time_us"))
    return None if micros is None or not 0 <= micros < _MOST // 1000 else micros * 1000


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and -_MOST <= value < _MOST else None


def _size(value: Any) -> int | None:
    whole = _whole(value)
    return None if whole is None or not 0 <= whole < _MOST_SIZE else whole


def _is_private(pool: Any) -> bool:
    return isinstance(pool, list | tuple) and tuple(pool) != (0, 0)


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list | tuple) else []


def _first(value: Any) -> Mapping[str, Any]:
    listed = _dicts(value)
    return listed[0] if listed else {}
