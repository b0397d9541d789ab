"""Memory snapshots of PyTorch (`torch.cuda.memory._dump_snapshot`): segments, blocks, history."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from doctor.case.batch import SourceFacts, TableBatch
from doctor.errors import DamagedEvidenceError, EvidenceTooLargeError
from doctor.formats.memory_snapshot.plain_pickle import PickleRefusedError, load
from doctor.formats.memory_snapshot.snapshot import Failure, Row, Snapshot
from doctor.readers.protocol import Progress
from doctor.readers.text.python_frames import MOST_FRAMES, Frame, Place, judged
from doctor.units import format_bytes

MOST_BYTES = 1 << 30
"""A snapshot this large holds some ten million events."""
_MOST_PATH = 400
_ROWS_A_BATCH = 50_000
_WORDS = (b"segments", b"segment_type", b"device_traces", b"total_size")


class MemorySnapshotReader:
    """A pickle that is interpreted, not run: only plain values are made of it."""

    kind = "memory-snapshot"

    def recognises(self, path: Path, head: bytes) -> bool:
        """Tell whether a pickle holds the words of a snapshot.

        Args:
            path: an existing file.
            head: its first 64 KiB after decompression.
        """
        is_pickle = len(head) > 2 and head[0] == 0x80 and head[1] in range(2, 6)
        return is_pickle and any(word in head for word in _WORDS)

    def read(self, path: Path, progress: Progress) -> Iterator[TableBatch | SourceFacts]:
        """Yield rows of the allocator's tables, then the facts.

        Raises:
            DamagedEvidenceError: the pickle is damaged, no snapshot, or asks for more than plain values.
            EvidenceTooLargeError: it is over the bound.
        """
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise EvidenceTooLargeError(
                f"{path} holds {format_bytes(size)}, over {format_bytes(MOST_BYTES)}: record with a smaller max_entries"
            )
        snapshot = _opened(path)
        progress(size, size)
        yield from _batches("allocator_segment", snapshot.segment_rows())
        yield from _batches("allocator_block", snapshot.block_rows())
        yield from _batches("allocator_step", snapshot.step_rows())
        yield from _batches("oom_event", map(_event, snapshot.failures()))
        yield SourceFacts(
            kind=self.kind, tool="torch", is_complete=not snapshot.lost_segments, notes=tuple(_notes(snapshot))
        )


def _notes(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.lost_segments:
        yield f"{snapshot.lost_segments:,} segments are left out: their sizes cannot be, or their blocks do not fit"
    if not snapshot.has_history:
        yield "no history: torch.cuda.memory._record_memory_history() was not on"
    if snapshot.rewound_devices:
        yield "segments and blocks are those of the last allocation that failed: what was freed afterwards is put back"


def _event(failure: Failure) -> Row:
    """A row of `oom_event`; a snapshot does not tell the size of the device."""
    place = _place(failure.frames)
    return {
        "oom_event_id": failure.device,
        "text_form": "snapshot",
        "device_id": failure.device,
        "framework": place.framework,
        "phase": place.phase,
        "hot_spot": place.hot_spot,
        "stack": place.stack,
        "tried_bytes": failure.tried_bytes,
        "free_bytes": failure.free_bytes,
        "allocated_bytes": failure.active_bytes,
        "reserved_bytes": failure.reserved_bytes,
        "reserved_unallocated_bytes": failure.reserved_bytes - failure.active_bytes,
    }


def _place(frames: Sequence[Mapping[str, Any]]) -> Place:
    """What the process was doing, from the frames of Python."""
    named = [(frame.get("filename"), frame.get("line"), frame.get("name")) for frame in frames]
    inner = [
        Frame(file[-_MOST_PATH:], line if isinstance(line, int) else 0, name[:_MOST_PATH])
        for file, line, name in named
        if isinstance(file, str) and file.endswith(".py") and isinstance(name, str) and name
    ]
    return judged(tuple(reversed(inner[:MOST_FRAMES]))) if inner else Place()


def _opened(path: Path) -> Snapshot:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return Snapshot(load(data))
    except PickleRefusedError as error:
        raise DamagedEvidenceError(f"{path} is no memory snapshot that can be read: {error}") from error
    except ValueError as error:
        raise DamagedEvidenceError(f"{path} is a pickle of plain values, but no memory snapshot: it {error}") from error


def _batches(table: str, rows: Iterable[Row]) -> Iterator[TableBatch]:
    remaining = iter(rows)
    while piece := list(islice(remaining, _ROWS_A_BATCH)):
        yield TableBatch(table, pa.table({name: _column(piece, name) for name in piece[0]}))


def _column(rows: list[Row], name: str) -> pa.Array:
    return pa.array([row[name] for row in rows])
