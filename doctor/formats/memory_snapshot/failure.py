"""A snapshot's segments as they were when an allocation failed: what was freed afterwards is put back.

A snapshot is mostly dumped once the exception has unwound the program, so that its segments no longer hold what filled
the device. The history does: it is undone event by event from the end back to the last failure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Entry = Mapping[str, Any]

_ROUNDING = 512
"""Blocks are multiples of it; the history tells what was asked for."""
_LEAST_SPLIT = 1 << 20
"""A rest of this size or less stays with its block in a large segment: CUDACachingAllocator.cpp, `should_split`."""
_SMALL_SEGMENT = 2 << 20
_MOST_SIZE, _MOST_ADDRESS = 1 << 48, 1 << 63
_MOST_SEGMENT_EVENTS = 200_000
"""Behind a failure. Each is put in order: without a bound a made-up history takes for ever."""


def last_failure(trace: Sequence[Entry]) -> int | None:
    """Place of the last event `oom` in a history; None where nothing failed."""
    return next((place for place in range(len(trace) - 1, -1, -1) if trace[place].get("action") == "oom"), None)


def segments_at(segments: Sequence[Entry], trace: Sequence[Entry], failure: int) -> list[Entry] | None:
    """The segments of one device when the allocation failed, with their blocks.

    Args:
        segments: of the device, as the snapshot has them, with sizes that can be.
        trace: the device's history, which the snapshot ends.
        failure: place of the failure in it.

    Returns:
        Segments of the same form; None where addresses are missing or the history cannot be undone.
    """
    behind = trace[failure + 1 :]
    if sum(str(entry.get("action")).startswith("segment") for entry in behind) > _MOST_SEGMENT_EVENTS:
        return None
    device = _Device()
    if not all(device.add(segment) for segment in segments):
        return None
    for entry in reversed(behind):
        device.undo(entry)
    device.name_stacks(trace[:failure])
    return list(device.laid_out())


@dataclass
class _Device:
    """Address ranges that are reserved, and the blocks in them that are in use."""

    starts: list[int] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    told: dict[int, Entry] = field(default_factory=dict)
    live: dict[int, dict[str, Any]] = field(default_factory=dict)

    def add(self, segment: Entry) -> bool:
        """Take a segment of the snapshot; False where it has no address."""
        at = start = segment.get("address")
        if not isinstance(start, int) or isinstance(start, bool):
            return False
        self._reserve(start, start + segment["total_size"], segment)
        blocks = segment.get("blocks")
        for block in blocks if isinstance(blocks, list | tuple) else ():
            if not isinstance(block, dict):
                continue
            at = block.get("address", at)
            if not isinstance(at, int) or isinstance(at, bool):
                return False
            if block.get("state") != "inactive":
                self.live[at] = {**block, "address": at}
            at += block["size"]
        return True

    def undo(self, entry: Entry) -> None:
        """Take one event of the history back."""
        action, at, size = entry.get("action"), entry.get("addr"), entry.get("size")
        if not isinstance(action, str) or not isinstance(at, int) or not isinstance(size, int):
            return
        if not 0 <= size < _MOST_SIZE or not 0 <= at < _MOST_ADDRESS:
            return
        if action in {"free", "free_completed"}:
            rounded = max(_ROUNDING, -(-size // _ROUNDING) * _ROUNDING)
            self.live[at] = {"address": at, "size": rounded, "requested_size": size, "is_back": True}
        elif action == "free_requested" and at in self.live:
            self.live[at]["state"] = "active_allocated"
        elif action == "alloc":
            self.live.pop(at, None)
        elif action in {"segment_free", "segment_unmap"}:
            self._reserve(at, at + size, {"is_expandable": action == "segment_unmap"})
        elif action in {"segment_alloc", "segment_map"}:
            self._release(at, at + size)

    def name_stacks(self, before: Sequence[Entry]) -> None:
        """Blocks that were put back were made by the last allocation at their address."""
        wanted = {at for at, block in self.live.items() if block.get("is_back")}
        for entry in before:
            at = entry.get("addr")
            if entry.get("action") == "alloc" and isinstance(at, int) and at in wanted:
                self.live[at]["frames"] = entry.get("frames")

    def laid_out(self) -> Iterator[Entry]:
        """Segments with their blocks, the free ones between them included."""
        places = sorted(self.live)
        for start in self.starts:
            end = self.ends[start]
            inside = places[bisect_left(places, start) : bisect_left(places, end)]
            told = self.told[start]
            blocks = list(self._blocks(start, end, inside, bool(told.get("is_expandable"))))
            used = sum(block["size"] for block in blocks if block["state"] != "inactive")
            kind = "small" if end - start <= _SMALL_SEGMENT else "large"
            yield {
                "segment_type": kind,
                **told,
                "address": start,
                "total_size": end - start,
                "allocated_size": used,
                "active_size": used,
                "blocks": blocks,
            }

    def _blocks(self, start: int, end: int, inside: Sequence[int], is_expandable: bool) -> Iterator[dict[str, Any]]:
        at = start
        for place, following in pairwise([*inside, end]):
            if place > at:
                yield {"address": at, "size": place - at, "state": "inactive"}
            block = self.live[place]
            room = following - place
            rest = room - block["size"]
            is_whole = rest < 0 or (block.get("is_back") and rest <= _LEAST_SPLIT and not is_expandable)
            size = room if is_whole else block["size"]
            yield {"state": "active_allocated", **block, "size": size}
            at = place + size
        if end > at:
            yield {"address": at, "size": end - at, "state": "inactive"}

    def _reserve(self, start: int, end: int, told: Entry) -> None:
        if end > start and start not in self.ends:
            insort(self.starts, start)
            self.ends[start], self.told[start] = end, told

    def _release(self, start: int, end: int) -> None:
        """Take a range away: a whole segment, or a part of one that grows in place."""
        place = bisect_right(self.starts, start) - 1
        if place < 0 or self.ends[self.starts[place]] < end:
            return
        first = self.starts.pop(place)
        last, told = self.ends.pop(first), self.told.pop(first)
        self._reserve(first, start, told)
        self._reserve(end, last, told)
