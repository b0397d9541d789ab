from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from doctor.case.batch import TableBatch
from doctor.errors import DamagedEvidenceError, UnknownEvidenceError
from doctor.readers.memory_snapshot import MemorySnapshotReader
from doctor.readers.protocol import no_progress
from tests.support.allocator_snapshots import MIB, SnapshotBuilder
from tests.support.reading import Reading, read_all, rows
from tests.support.traces import shared_trace

FRAMES = [{"name": "f", "filename": "a.py", "line": 1}]
STACK = (("decode", "/srv/app/engine/loop.py"), ("main", "/srv/app/run.py"))


def read(content: bytes, folder: Path) -> Reading:
    """What the reader makes of a snapshot."""
    path = folder / "snapshot.pickle"
    path.write_bytes(content)
    return read_all(path)


def test_gives_segments_blocks_and_stacks_without_folders(tmp_path: Path) -> None:
    builder = SnapshotBuilder()
    builder.segment([(4 * MIB, True), (2 * MIB, False)], stack=STACK)
    reading = read(builder.pickled(), tmp_path)
    assert rows(reading, "allocator_segment", "total_bytes", "allocated_bytes", "is_private_pool", "is_expandable") == [
        (6 * MIB, 4 * MIB, False, False)
    ]
    assert rows(reading, "allocator_block", "size_bytes", "block_state", "stack") == [
        (4 * MIB, "active", "decode (loop.py:10) < main (run.py:10)"),
        (2 * MIB, "inactive", None),
    ]
    assert "no history" in reading.facts.notes[0]


def test_levels_of_the_history_are_counted_back_from_the_end(tmp_path: Path) -> None:
    builder = SnapshotBuilder()
    builder.segment([(8 * MIB, True), (4 * MIB, False)])
    for action in ("alloc", "free_requested", "free_completed"):
        builder.step(action, 4 * MIB, 99)
    builder.step("oom", 64 * MIB, 0, device_free=MIB)
    reading = read(builder.pickled(), tmp_path)
    assert rows(reading, "allocator_step", "action", "allocated_bytes", "reserved_bytes", "free_bytes") == [
        ("alloc", 12 * MIB, 12 * MIB, None),
        ("free", 8 * MIB, 12 * MIB, None),
        ("oom", 8 * MIB, 12 * MIB, MIB),
    ]
    assert reading.facts.notes == ()


def test_a_block_is_as_old_as_its_last_allocation(tmp_path: Path) -> None:
    builder = SnapshotBuilder()
    builder.segment([(MIB, True)])
    address = builder.segments[0]["address"]
    builder.step("alloc", MIB, address)
    builder.step("alloc", MIB, address)
    reading = read(builder.pickled(), tmp_path)
    assert reading.column("allocator_block", "allocated_ns") == [builder.time_us * 1000]


def test_the_older_list_of_segments_is_read(tmp_path: Path) -> None:
    blocks = [
        {"size": MIB, "state": "active_allocated", "history": [{"real_size": 1000, "frames": FRAMES}]},
        {"size": MIB, "state": "active_pending_free"},
    ]
    segment = {
        "device": 0,
        "address": 4096,
        "total_size": 2 * MIB,
        "stream": 0,
        "segment_type": "small",
        "blocks": blocks,
    }
    reading = read(pickle.dumps([segment]), tmp_path)
    assert rows(reading, "allocator_block", "address", "block_state", "requested_bytes", "stack") == [
        (4096, "active", 1000, "f (a.py:1)"),
        (4096 + MIB, "pending", None, None),
    ]


def test_values_of_no_possible_size_become_unknown(tmp_path: Path) -> None:
    segment = {
        "device": "x",
        "address": 2**80,
        "total_size": 2**21,
        "active_size": -5,
        "segment_type": ["?"],
        "blocks": [{"size": 2**20, "requested_size": 1e9}, 7],
        "segments": 1,
    }
    reading = read(
        pickle.dumps({"segments": [segment], "device_traces": [[{"action": "alloc", "size": None}, 3], None]}), tmp_path
    )
    assert reading.column("allocator_segment", "address") == [None]
    assert reading.column("allocator_segment", "active_bytes") == [None]
    assert reading.column("allocator_block", "requested_bytes") == [None]


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({"segments": [{"total_size": os.getcwd}]}),
        pickle.dumps({"segments": 5}),
        pickle.dumps(["segments"]),
        pickle.dumps({"segments": [{"total_size": 1}]})[:-9],
    ],
)
def test_what_is_no_snapshot_is_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(DamagedEvidenceError) as refusal:
        read(content, tmp_path)
    assert len(refusal.value.message.splitlines()) == 1
    assert "snapshot.pickle" in refusal.value.message


def test_any_other_pickle_stays_unopened(tmp_path: Path) -> None:
    with pytest.raises(UnknownEvidenceError, match="pickle"):
        read(pickle.dumps({"weights": [1.0]}), tmp_path)
    assert not MemorySnapshotReader().recognises(tmp_path, b"segments, but no pickle")


def test_a_real_snapshot_is_read_whole() -> None:
    reading = read_all(shared_trace("h200/oomkv.pickle"))
    counts = reading.row_counts()
    assert counts["allocator_segment"] == 1167
    assert counts["allocator_step"] == 1099 + 1099 + 11 + 2 + 1
    live = [size for size, state in rows(reading, "allocator_block", "size_bytes", "block_state") if state == "active"]
    assert live.count(128 * MIB) == 34 * 16 * 2 + 11  # those that unwinding freed behind the failure


STEP = {"action": "alloc", "addr": 1, "size": 1, "frames": []}
SEGMENT = {"device": 0, "address": 1, "total_size": 10, "segment_type": "large", "blocks": [], "frames": []}
TEN_THOUSAND = 10_000


@pytest.mark.parametrize(
    "snapshot",
    [
        {"segments": [], "device_traces": [[STEP] * TEN_THOUSAND] * TEN_THOUSAND},
        {"segments": [{**SEGMENT, "blocks": [{"size": 0}] * TEN_THOUSAND}] * TEN_THOUSAND, "device_traces": []},
    ],
    ids=["events", "blocks"],
)
def test_a_list_that_is_repeated_many_times_over_is_refused(snapshot: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "bomb.pickle"
    path.write_bytes(pickle.dumps(snapshot, 4))
    assert path.stat().st_size < 100_000
    with pytest.raises(DamagedEvidenceError, match="repeats its lists"):
        list(MemorySnapshotReader().read(path, no_progress))


def test_words_and_stacks_that_are_made_of_themselves_cost_nothing(tmp_path: Path) -> None:
    laughs: object = "ha"
    for _ in range(32):
        laughs = [laughs, laughs]
    frame = {"name": "f" * 100_000, "filename": laughs, "line": 1}
    segments = [
        {**SEGMENT, "segment_type": laughs, "frames": [frame] * TEN_THOUSAND, "blocks": [{"size": 1, "state": laughs}]},
        {**SEGMENT, "frames": [{"name": laughs, "filename": "a.py"}]},
    ]
    traces = [[{**STEP, "action": laughs}, {**STEP, "frames": [laughs] * TEN_THOUSAND}]]
    path = tmp_path / "laughs.pickle"
    path.write_bytes(pickle.dumps({"segments": segments, "device_traces": traces}, 4))
    parts = [part for part in MemorySnapshotReader().read(path, no_progress) if isinstance(part, TableBatch)]
    assert {part.table: part.rows.num_rows for part in parts} == {
        "allocator_segment": 2, "allocator_block": 1, "allocator_step": 1,
    }  # fmt: skip
