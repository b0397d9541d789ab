from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from doctor.formats.memory_snapshot.failure import last_failure, segments_at

MIB = 2**20
SEGMENT = 64 * MIB


@dataclass
class Allocator:
    """A caching allocator that keeps a history, large blocks only; a segment lies at a multiple of 1 GiB."""

    chance: random.Random
    held: dict[int, dict[int, int]] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    segment_count: int = 0

    def tell(self, action: str, at: int, size: int) -> None:
        frames = [{"name": f"made_{len(self.history)}", "filename": "a.py", "line": 1}]
        self.history.append({"action": action, "addr": at, "size": size, "frames": frames})

    def step(self) -> None:
        move = self.chance.choice(("segment", "alloc", "alloc", "free", "give_back"))
        if move == "segment":
            self.segment_count += 1
            self.held[self.segment_count << 30] = {}
            self.tell("segment_alloc", self.segment_count << 30, SEGMENT)
        elif move == "alloc" and self.held:
            start = self.chance.choice(sorted(self.held))
            at = start + self.chance.randrange(0, 15) * 4 * MIB
            if at not in self.held[start]:
                self.held[start][at] = 4 * MIB
                self.tell("alloc", at, 4 * MIB - self.chance.randrange(0, 100))
        elif move == "free" and any(self.held.values()):
            start = self.chance.choice(sorted(start for start, blocks in self.held.items() if blocks))
            at = self.chance.choice(sorted(self.held[start]))
            del self.held[start][at]
            self.tell("free_requested", at, 4 * MIB)
            self.tell("free_completed", at, 4 * MIB)
        elif move == "give_back" and (empty := [start for start, blocks in self.held.items() if not blocks]):
            del self.held[empty[0]]
            self.tell("segment_free", empty[0], SEGMENT)

    def segments(self) -> list[dict[str, Any]]:
        return [_segment(start, SEGMENT, blocks) for start, blocks in sorted(self.held.items())]


def _segment(start: int, size: int, live: dict[int, int], **more: object) -> dict[str, Any]:
    blocks, at = [], start
    for place in sorted(live):
        if place > at:
            blocks.append({"address": at, "size": place - at, "state": "inactive"})
        blocks.append({"address": place, "size": live[place], "state": "active_allocated"})
        at = place + live[place]
    if at < start + size:
        blocks.append({"address": at, "size": start + size - at, "state": "inactive"})
    return {"address": start, "total_size": size, "segment_type": "large", "blocks": blocks, **more}


def _layout(segments: list[Any] | None) -> list[tuple[int, int, list[tuple[int, int, str]]]]:
    assert segments is not None
    return [
        (entry["address"], entry["total_size"], [(b["address"], b["size"], b["state"]) for b in entry["blocks"]])
        for entry in segments
    ]


@pytest.mark.parametrize("seed", range(25))
def test_any_history_is_undone_to_the_moment_of_the_failure(seed: int) -> None:
    allocator = Allocator(random.Random(seed))
    for _ in range(60):
        allocator.step()
    then = allocator.segments()
    allocator.history.append({"action": "oom", "size": 1, "device_free": 0, "frames": []})
    failure = len(allocator.history) - 1
    for _ in range(60):
        allocator.step()
    undone = segments_at(allocator.segments(), allocator.history, failure)
    assert _layout(undone) == _layout(then)
    assert last_failure(allocator.history) == failure


def test_a_block_that_is_put_back_has_the_stack_of_its_last_allocation() -> None:
    made, made_before = [{"name": "reserve", "filename": "a.py"}], [{"name": "load", "filename": "a.py"}]
    history = [
        {"action": "alloc", "addr": 0, "size": 4 * MIB, "frames": made_before},
        {"action": "alloc", "addr": 0, "size": 4 * MIB, "frames": made},
        {"action": "oom", "size": 8 * MIB},
        {"action": "free_completed", "addr": 0, "size": 4 * MIB, "frames": [{"name": "unwind"}]},
        {"action": "alloc", "addr": 0, "size": 4 * MIB, "frames": [{"name": "later"}]},
        {"action": "free_completed", "addr": 0, "size": 4 * MIB, "frames": []},
    ]
    found = segments_at([_segment(0, 8 * MIB, {})], history, 2)
    assert found is not None
    (segment,) = found
    assert segment["blocks"][0]["frames"] is made
    assert segment["active_size"] == 4 * MIB


def test_ranges_of_a_segment_that_grows_in_place_come_and_go_in_part() -> None:
    page = 2 * MIB
    history = [
        {"action": "oom", "size": 1},
        {"action": "segment_map", "addr": 4 * page, "size": page},
        {"action": "segment_unmap", "addr": 0, "size": 2 * page},
    ]
    now = [_segment(2 * page, 3 * page, {2 * page: page}, is_expandable=True)]
    undone = segments_at(now, history, 0)
    assert [(start, size) for start, size, _ in _layout(undone)] == [(0, 2 * page), (2 * page, 2 * page)]
    assert all(entry["is_expandable"] for entry in undone or ())


def test_a_rest_too_small_to_be_split_off_belongs_to_its_block() -> None:
    history = [{"action": "oom", "size": 1}, {"action": "free_completed", "addr": 0, "size": 4 * MIB - 700_000}]
    assert _layout(segments_at([_segment(0, 4 * MIB, {})], history, 0))[0][2] == [(0, 4 * MIB, "active_allocated")]


def test_what_waits_for_a_stream_was_in_use_before_it_was_freed() -> None:
    segment = _segment(0, 4 * MIB, {0: 4 * MIB})
    segment["blocks"][0]["state"] = "active_pending_free"
    history = [{"action": "oom", "size": 1}, {"action": "free_requested", "addr": 0, "size": 4 * MIB}]
    assert _layout(segments_at([segment], history, 0))[0][2] == [(0, 4 * MIB, "active_allocated")]


@pytest.mark.parametrize("address", [None, "x", True])
def test_segments_without_an_address_are_left_as_they_are(address: object) -> None:
    assert segments_at([{"address": address, "total_size": 1, "blocks": []}], [{"action": "oom"}], 0) is None


def test_entries_of_no_possible_size_are_passed_over() -> None:
    history: list[dict[str, Any]] = [
        {"action": "alloc", "addr": [], "size": {}},
        {"action": "oom"},
        {"action": [], "addr": 0, "size": 1},
        {"action": "free_completed", "addr": -1, "size": 2**60},
    ]
    assert _layout(segments_at([_segment(0, MIB, {})], history, 1))[0][2] == [(0, MIB, "inactive")]
