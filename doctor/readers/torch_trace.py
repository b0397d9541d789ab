"""Traces of the PyTorch profiler: plain, gzip or zstd; 2021 to today; CUDA and ROCm; bare arrays and cut files.

Streamed: memory holds a few MiB of text, the rows of a batch, and device work whose API calls have not come by yet.
    What an event is follows from its category alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from doctor.case.batch import SourceFacts, TableBatch
from doctor.errors import DamagedEvidenceError
from doctor.formats.kineto import device_work, host_work, machine
from doctor.formats.kineto.categories import KINDS, LEFT_OUT, MEMORY_EVENT, OLD_OPERATOR, STEP_PREFIX, EventKind
from doctor.formats.kineto.events import TraceEvent
from doctor.formats.kineto.launches import Launches
from doctor.formats.kineto.opening import is_array_of_events
from doctor.formats.kineto.stream import TraceStream
from doctor.readers.ahead import read_ahead
from doctor.readers.evidence_file import EvidenceFile, open_evidence
from doctor.readers.protocol import Progress

_SEARCH_BYTES = 16 << 20
_CHUNKS_AHEAD = 8
_OPENING = re.compile(rb"(?:\xef\xbb\xbf)?\s*([\[{])")
_MARKS = (b'"traceEvents"', b'"deviceProperties"', b'"baseTimeNanoseconds"')

_Rows = Callable[[list[TraceEvent]], pa.RecordBatch]

_DEVICE_WORK: dict[EventKind, tuple[tuple[str, _Rows], ...]] = {
    EventKind.KERNEL: (("kernel", device_work.kernels), ("collective", device_work.collectives)),
    EventKind.MEMCPY: (("memcpy", device_work.copies),),
    EventKind.MEMSET: (("memset", device_work.memory_sets),),
    EventKind.DEVICE_SYNC: (("device_sync", device_work.synchronisations),),
}
_HOST_WORK: dict[EventKind, tuple[str, _Rows]] = {
    EventKind.RUNTIME_CALL: ("api_call", lambda events: host_work.api_calls(events, "runtime")),
    EventKind.DRIVER_CALL: ("api_call", lambda events: host_work.api_calls(events, "driver")),
    EventKind.OPERATOR: ("host_op", lambda events: host_work.operators(events, "cpu_op")),
    EventKind.PYTHON_FUNCTION: ("host_op", lambda events: host_work.operators(events, "python_function")),
    EventKind.ANNOTATION: ("nvtx_range", host_work.user_annotations),
    EventKind.OVERHEAD: ("profiler_overhead", host_work.overheads),
    EventKind.ALLOCATION: ("allocator_event", host_work.allocator_events),
}


class TorchTraceReader:
    """Reads one trace of one or more processes."""

    kind = "kineto"

    def recognises(self, path: Path, head: bytes) -> bool:
        """Tell a trace by the keys beside its events, a bare array by its first event."""
        opening = _OPENING.match(head)
        if opening is None:
            return False
        if opening[1] == b"[":
            return is_array_of_events(head)
        return any(mark in head for mark in _MARKS) or _names_events_later(path)

    def read(self, path: Path, progress: Progress) -> Iterator[TableBatch | SourceFacts]:
        """Yield the rows of one trace.

        Raises:
            DamagedEvidenceError: it holds no event at all.
        """
        file = open_evidence(path)
        yield from read_ahead(_Reading(file, progress).parts())


class _Reading:
    """One pass over one trace."""

    def __init__(self, file: EvidenceFile, progress: Progress) -> None:
        self._file = file
        self._chunks = _chunks(file, progress)
        self._stream = TraceStream(self._chunks)
        self._waiting: dict[EventKind, list[TraceEvent]] = {kind: [] for kind in EventKind}
        self._take = {category: self._waiting[kind].append for category, kind in KINDS.items()}
        self._take[OLD_OPERATOR] = self._take_old_operator
        self._unread: Counter[str] = Counter()
        self._names = machine.HostNames()
        self._launches = Launches()
        self._window: tuple[int, int] | None = None
        self._pids: set[int] = set()
        self._latest_ns: int | None = None
        self._event_count = 0
        self._timeless_count = 0
        self._endless_count = 0
        self._has_kernels = False

    def parts(self) -> Iterator[TableBatch | SourceFacts]:
        """Yield the rows, then the facts."""
        with closing(self._chunks):
            yield from self._rows()
            if self._file.compression != "none":
                for _ in self._chunks:  # damage behind the last event counts as well
                    pass
            yield self._facts()

    def _rows(self) -> Iterator[TableBatch]:
        for events in self._stream.event_lists():
            self._event_count += len(events)
            self._sort(events)
            for kind in EventKind:
                yield from self._flush(kind)
        if not self._event_count:
            raise DamagedEvidenceError(f"{self._file.path}: {self._why_empty()}")
        for table, rows in self._launches.release():
            yield TableBatch(table, rows)
        yield from self._machine_rows()

    def _sort(self, events: list[TraceEvent]) -> None:
        """Put each event to its kind; arrows between events, half of a trace, fall through."""
        take_of = self._take.get
        for event in events:
            if event.ph == "X":
                take = take_of(event.cat)
                if take is not None:
                    take(event)
                else:
                    self._unread[event.cat or "none"] += event.cat not in LEFT_OUT
            elif event.ph not in ("s", "f", "t"):
                self._sort_rare(event)

    def _take_old_operator(self, event: TraceEvent) -> None:
        is_step = str(event.name).startswith(STEP_PREFIX)
        self._waiting[EventKind.ANNOTATION if is_step else EventKind.OPERATOR].append(event)

    def _sort_rare(self, event: TraceEvent) -> None:
        if event.ph == "M":
            self._names.take(event)
        elif event.ph in ("i", "I") and event.name == MEMORY_EVENT:
            self._waiting[EventKind.ALLOCATION].append(event)
        elif event.ph in ("B", "E"):
            self._unread[f"{event.cat or 'none'} (begin and end apart)"] += 1

    def _flush(self, kind: EventKind) -> Iterator[TableBatch]:
        events = self._waiting[kind].copy()
        self._waiting[kind].clear()
        if not events:
            return
        if kind is EventKind.WINDOW:
            self._window = self._window or machine.window(events[0])
        elif kind in _DEVICE_WORK:
            yield from self._device_batches(kind, events)
        else:
            table, convert = _HOST_WORK[kind]
            rows = self._with_time(convert(events))
            if rows.num_rows:
                self._pids |= {pid for pid in pc.unique(rows.column("pid")).to_pylist() if pid is not None}
                if table == "api_call":
                    self._launches.take_calls(rows)
                yield TableBatch(table, rows)

    def _device_batches(self, kind: EventKind, events: list[TraceEvent]) -> Iterator[TableBatch]:
        self._has_kernels |= kind is EventKind.KERNEL
        for table, convert in _DEVICE_WORK[kind]:
            rows = self._with_time(convert(events))
            for ready, batch in self._launches.hold(table, rows) if rows.num_rows else ():
                yield TableBatch(ready, batch)

    def _with_time(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Leave out rows whose time is unreadable, and keep the latest time."""
        column = next((name for name in ("start_ns", "time_ns") if name in rows.schema.names), None)
        if column is None or rows.num_rows == 0:
            return rows
        starts = rows.column(column)
        if starts.null_count:
            self._timeless_count += starts.null_count
            rows = rows.filter(pc.is_valid(starts))
        if "end_ns" in rows.schema.names:
            self._endless_count += rows.column("end_ns").null_count
        latest = pc.max(rows.column(column)).as_py()
        if latest is not None and (self._latest_ns is None or latest > self._latest_ns):
            self._latest_ns = latest
        return rows

    def _machine_rows(self) -> Iterator[TableBatch]:
        for table, rows in (
            ("device", machine.devices(self._stream.header)),
            ("diagnostic", machine.diagnostics(self._stream.header)),
            ("process", self._names.process_rows(self._pids)),
            ("thread", self._names.thread_rows(self._pids)),
        ):
            if rows.num_rows:
                yield TableBatch(table, rows)

    def _facts(self) -> SourceFacts:
        facts = machine.trace_facts(self._stream.header, self._latest_ns)
        losses = self._losses()
        start, end = self._window or (None, None)
        return SourceFacts(
            kind=TorchTraceReader.kind,
            tool=facts.tool,
            is_complete=not losses,
            notes=(*losses, *self._remarks()),
            capture_start_ns=start,
            capture_end_ns=end,
            clock_offset_ns=facts.clock_offset_ns,
            rank=facts.rank,
            world_size=facts.world_size,
            graph_trace_level="node" if self._has_kernels else None,
        )

    def _losses(self) -> tuple[str, ...]:
        found = []
        if self._file.cut_short:
            found.append(f"{self._file.cut_short}; what came before was read")
        elif self._stream.is_cut:
            found.append(f"the trace is cut: it ends within its list; {self._event_count:,} whole events were read")
        if self._stream.skipped_count:
            found.append(f"{self._stream.skipped_count:,} events are no valid JSON and were left out")
        if self._stream.mended_count:
            found.append(f"{self._stream.mended_count:,} events are no valid JSON and were mended")
        if self._timeless_count:
            found.append(f"{self._timeless_count:,} events have no readable time and were left out")
        if self._endless_count:
            found.append(f"{self._endless_count:,} events have no readable duration: their end is unknown")
        if self._stream.is_bare:
            found.append("a bare list of events: devices, rank and clock, which stand beside the list, are missing")
        return tuple(found)

    def _remarks(self) -> tuple[str, ...]:
        found = [f"{count:,} events of category {name} are not read" for name, count in self._unread.items() if count]
        if self._launches.is_uncertain:
            found.append("several processes share the file: some device work may stand under the wrong one")
        return tuple(sorted(found))

    def _why_empty(self) -> str:
        if self._file.cut_short or self._stream.is_cut:
            return "the trace is cut before its first whole event: record or copy it again"
        if self._stream.has_events:
            return (
                "the trace holds no events: the profiler stopped before it recorded, or its schedule was never active"
            )
        return "the JSON holds no `traceEvents`: it is no trace of the PyTorch profiler"


def _chunks(file: EvidenceFile, progress: Progress) -> Generator[bytes, None, None]:
    """Contents of a file; a compressed one is unpacked in a thread of its own, beside the parsing."""
    chunks = file.chunks(progress)
    return (chunk for chunk in chunks) if file.compression == "none" else read_ahead(chunks, _CHUNKS_AHEAD)


def _names_events_later(path: Path) -> bool:
    """Metadata of any size may stand before the events."""
    tail = b""
    read_bytes = 0
    for chunk in open_evidence(path).chunks():
        if b'"traceEvents"' in tail + chunk:
            return True
        tail = chunk[-16:]
        read_bytes += len(chunk)
        if read_bytes > _SEARCH_BYTES:
            return False
    return False
