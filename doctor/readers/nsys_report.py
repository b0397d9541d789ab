"""Native reports of Nsight Systems (`.nsys-rep`, `.qdrep`), read without NVIDIA's software, chunk by chunk.

Times are those of the events: nanoseconds from the start of the capture window, as in NVIDIA's exports. Rows come in
the order of the stream. A range of an NVTX domain whose name is not known yet waits for it; everything else passes at
once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from doctor.case.batch import SourceFacts, TableBatch
from doctor.case.schema import Columns
from doctor.errors import DamagedEvidenceError, EvidenceError
from doctor.formats.nsys_export import device_work, host_calls, machine, messages, nvtx
from doctor.formats.nsys_export.codes import NVTX_DOMAIN_CREATED, Codes, read_codes
from doctor.formats.nsys_export.identifiers import process_ids
from doctor.formats.nsys_export.names import StringTable
from doctor.formats.nsys_export.tables import ExportTable, Only
from doctor.formats.nsys_report.container import is_report
from doctor.formats.nsys_report.decoder import Batches
from doctor.formats.nsys_report.event_kinds import NVTX_EVENTS, PROCESSES
from doctor.formats.nsys_report.report import NsysReport, open_report
from doctor.formats.nsys_report.spread_rows import SpreadRows
from doctor.formats.nsys_report.target import Row
from doctor.formats.private_paths import executable_name
from doctor.readers.ahead import read_ahead
from doctor.readers.protocol import Progress
from doctor.readers.report_rows import Convert, TableOfEvents

_BATCHES_AHEAD = 4
"""Most batches are whole groups of rows: one that is stored and a few that wait."""


class NsysReportReader:
    """Reads one native report."""

    kind = "nsys-report"

    def recognises(self, path: Path, head: bytes) -> bool:
        """Tell a report by its first line."""
        return is_report(head)

    def read(self, path: Path, progress: Progress) -> Iterator[TableBatch | SourceFacts]:
        """Yield the rows of one report.

        Raises:
            DamagedEvidenceError: the report is cut or damaged before its first event.
            EvidenceError: the file cannot be read.
        """
        yield from self.read_without(path, progress, {})

    def read_without(self, path: Path, progress: Progress, left_out: Columns) -> Iterator[TableBatch | SourceFacts]:
        """Yield the rows of one report without some columns.

        Raises:
            DamagedEvidenceError: the report is cut or damaged before its first event.
            EvidenceError: the file cannot be read.
        """
        try:
            report = open_report(path)
            yield from read_ahead(_Conversion(report, left_out).batches(progress), _BATCHES_AHEAD)
        except OSError as error:
            raise EvidenceError(f"{path} cannot be read: {error.strerror or error}") from error
        except MemoryError as error:
            raise DamagedEvidenceError(f"{path} asks for more memory than there is: it is damaged") from error


def _unpacked_ahead(batches: Batches) -> Batches:
    return read_ahead(batches, 1)


class _Conversion:
    """One pass over a report."""

    def __init__(self, report: NsysReport, left_out: Columns) -> None:
        self._report = report
        self._tables = _SmallTables(report)
        self._strings = StringTable(dict(enumerate(map(_decode, report.strings))))
        self._codes = read_codes(self._tables)
        self._events = _tables_of_events(self._strings, self._codes, left_out)
        self._domains: dict[tuple[int, int], str] = {}
        self._named_ranges = TableOfEvents(
            "nvtx_range", lambda rows: nvtx.ranges_and_others(rows, self._strings, self._domains)
        )
        self._waiting: list[pa.RecordBatch] = []
        self._pids: set[int] = set()
        self._levels: set[str] = set()

    def batches(self, progress: Progress) -> Iterator[TableBatch | SourceFacts]:
        """Yield rows of events, then of the machine, then the facts."""
        for part in self._report.spread_rows(progress, _unpacked_ahead):
            if part.table is NVTX_EVENTS:
                yield from self._ranges(part)
            elif part.table is PROCESSES:
                self._tables.note_processes(part.whole())
            elif part.table.name in self._events:
                events = self._events[part.table.name]
                for rows in events.rows(part):
                    yield from self._batch(events.kind, rows)
        for events in self._events.values():
            for rows in events.rest():
                yield from self._batch(events.kind, rows)
        for rows in self._waiting:
            yield from self._batch("nvtx_range", nvtx.ranges(rows, self._strings, self._domains))
        for kind, rows in (
            ("device", machine.devices(self._tables)),
            ("stream", machine.streams(self._tables)),
            ("process", machine.processes(self._tables, self._strings, self._pids)),
            ("thread", machine.threads(self._tables, self._strings, self._pids)),
        ):
            yield from self._batch(kind, rows)
        yield self._facts()

    def _ranges(self, part: SpreadRows) -> Iterator[TableBatch]:
        repeated = part.used()
        created = repeated.filter(pc.equal(repeated.column("eventType"), NVTX_DOMAIN_CREATED))
        if created.num_rows:
            self._domains.update(nvtx.read_domains(_OneTable(created), self._strings))
            self._named_ranges.convert_anew()
        if pc.all(self._has_domain_name(repeated)).as_py():
            for rows in chain(self._named_ranges.rows(part), self._named_ranges.rest()):  # others may wait for a name
                yield from self._batch("nvtx_range", _only_ranges(rows))
            return
        rows = part.whole()
        is_known = self._has_domain_name(rows)
        self._waiting.append(rows.filter(pc.invert(is_known)))
        yield from self._batch("nvtx_range", nvtx.ranges(rows.filter(is_known), self._strings, self._domains))

    def _has_domain_name(self, rows: pa.RecordBatch) -> pa.Array:
        if rows.column("domainId").unique().to_pylist() in ([], [0]):  # the default domain, which has no name
            return pa.array([True] * rows.num_rows)
        pairs = pa.table({"pid": process_ids(rows.column("globalTid")), "domain": rows.column("domainId")})
        distinct = pairs.group_by(["pid", "domain"]).aggregate([]).to_pylist()
        missing = [pair for pair in distinct if pair["domain"] and (pair["pid"], pair["domain"]) not in self._domains]
        is_known = pa.array([True] * rows.num_rows)
        for pair in missing:
            here = pc.and_(pc.equal(pairs["pid"], pair["pid"]), pc.equal(pairs["domain"], pair["domain"]))
            is_known = pc.and_not(is_known, pc.fill_null(here.combine_chunks(), False))
        return is_known

    def _batch(self, kind: str, rows: pa.RecordBatch) -> Iterator[TableBatch]:
        if not rows.num_rows:
            return
        if "pid" in rows.schema.names:
            self._pids |= machine.distinct_pids(rows.column("pid"))
        if kind == "graph_trace":
            self._levels.add("graph")
        elif kind == "kernel" and rows.column("graph_node_id").null_count < rows.num_rows:
            self._levels.add("node")
        yield TableBatch(kind, rows)

    def _facts(self) -> SourceFacts:
        report, session = self._report, self._report.session
        has_window = session.start_ns is not None and session.stop_ns is not None
        level = "graph" if "graph" in self._levels else next(iter(self._levels), None)
        return SourceFacts(
            kind=NsysReportReader.kind,
            tool=f"nsys {session.version_text}" if session.version_text else "nsys",
            is_complete=report.is_complete,
            notes=(*report.notes, *self._codes.notes()),
            capture_start_ns=0 if has_window else None,
            capture_end_ns=(session.stop_ns or 0) - (session.start_ns or 0) if has_window else None,
            clock_offset_ns=session.start_times.utc_ns,
            graph_trace_level=session.graph_trace_level or level,
        )


def _only_ranges(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with a kind, and ends where there are any."""
    kinds, starts, ends = (rows.column(name) for name in ("range_kind", "start_ns", "end_ns"))
    rows = rows.set_column(rows.schema.get_field_index("end_ns"), "end_ns", nvtx.ends(starts, ends))
    return rows.filter(kinds.is_valid()) if kinds.null_count else rows


def _tables_of_events(strings: StringTable, codes: Codes, left_out: Columns) -> Mapping[str, TableOfEvents]:
    """Kind of row and conversion of each of NVIDIA's tables that a case file has a place for, NVTX aside."""
    conversions: dict[str, tuple[str, Convert]] = {
        "CUPTI_ACTIVITY_KIND_RUNTIME": ("api_call", lambda rows: host_calls.api_calls(rows, strings)),
        "CUPTI_ACTIVITY_KIND_KERNEL": ("kernel", lambda rows: device_work.kernels(rows, strings)),
        "CUPTI_ACTIVITY_KIND_MEMCPY": ("memcpy", lambda rows: device_work.copies(rows, codes)),
        "CUPTI_ACTIVITY_KIND_MEMSET": ("memset", lambda rows: device_work.memory_sets(rows, codes)),
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": ("graph_trace", device_work.graph_launches),
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": ("device_sync", lambda rows: device_work.synchronisations(rows, codes)),
        "OSRT_API": ("os_call", lambda rows: host_calls.os_calls(rows, strings)),
        "CUDA_GPU_MEMORY_USAGE_EVENTS": ("gpu_memory_event", lambda rows: host_calls.memory_events(rows, codes)),
        "CUDA_GRAPH_EVENTS": ("graph_event", lambda rows: host_calls.graph_events(rows, strings)),
        "CUDA_GRAPH_NODE_EVENTS": ("graph_event", lambda rows: host_calls.graph_node_events(rows, strings)),
        "PROFILER_OVERHEAD": ("profiler_overhead", lambda rows: host_calls.overheads(rows, strings)),
        "CUPTI_ACTIVITY_KIND_OVERHEAD": ("profiler_overhead", lambda rows: host_calls.overheads(rows, strings)),
        "DIAGNOSTIC_EVENT": ("diagnostic", messages.diagnostics),
    }
    return {name: TableOfEvents(kind, convert, left_out) for name, (kind, convert) in conversions.items()}


class _SmallTables:
    """Tables of a report that are no events, as `doctor.formats.nsys_export` takes them."""

    def __init__(self, report: NsysReport) -> None:
        self.damage: list[str] = []
        self._rows: dict[str, tuple[Row, ...]] = {
            "ThreadNames": report.thread_names,
            "TARGET_INFO_GPU": () if report.target.cuda_gpus else report.target.gpus,  # that says more
            "TARGET_INFO_CUDA_GPU": report.target.cuda_gpus,
            "TARGET_INFO_CUDA_DEVICE": report.target.cuda_devices,
            "TARGET_INFO_CUDA_CONTEXT_INFO": report.target.contexts,
            "TARGET_INFO_CUDA_STREAM": report.target.streams,
        }

    def note_processes(self, rows: pa.RecordBatch) -> None:
        """Remember names of processes; a program that was started inside a process comes later and counts."""
        pids = process_ids(rows.column("globalPid")).to_pylist()
        names = [rows.column(name).to_pylist() for name in ("executable", "name")]
        found: list[Row] = [
            {"pid": pid, "name": executable_name(executable or name)}
            for pid, executable, name in zip(pids, *names, strict=True)
        ]
        self._rows["PROCESSES"] = (*self._rows.get("PROCESSES", ()), *found)

    def has(self, table: str) -> bool:
        """Tell whether the report has such rows."""
        return bool(self._rows.get(table))

    def batches(self, table: ExportTable, only: Only | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one table at once: they are few."""
        rows = self._rows.get(table.name)
        if not rows:
            return
        arrays = [pa.array([row.get(name) for row in rows], pa.int64()) for name in table.integers]
        arrays += [pa.array([row.get(name) for row in rows], pa.string()) for name in table.texts]
        yield pa.record_batch(arrays, names=list(table.columns))


class _OneTable:
    """A batch of NVTX events that is already filtered."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.damage: list[str] = []
        self._rows = rows

    def has(self, table: str) -> bool:
        """Only NVTX events are here."""
        return table == NVTX_EVENTS.name

    def batches(self, table: ExportTable, only: Only | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the batch."""
        yield self._rows.select(list(table.columns))


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "replace")
