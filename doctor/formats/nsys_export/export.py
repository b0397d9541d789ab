"""A whole export in one pass: tables in, rows in the words of the case file out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

import pyarrow as pa

from doctor.formats.nsys_export import device_work, host_calls, machine, messages, nvtx, tables
from doctor.formats.nsys_export.codes import Codes, read_codes
from doctor.formats.nsys_export.names import StringTable, read_strings
from doctor.formats.nsys_export.recording import Recording, read_recording
from doctor.formats.nsys_export.tables import ExportTable, ExportTables

_Rows = Callable[[pa.RecordBatch], pa.RecordBatch]
LeftOut = Mapping[str, Collection[str]]
"""Columns that nobody wants, named as in a case, by the kind of row."""


@dataclass(frozen=True)
class ExportRows:
    """Rows of one kind.

    Attributes:
        table: kernel, memcpy, memset, graph_trace, device_sync, api_call, nvtx_range, os_call, gpu_memory_event,
            graph_event, profiler_overhead, diagnostic, device, stream, process or thread.
        rows: columns named and measured as in the case file, without ids of names: names are texts.
    """

    table: str
    rows: pa.RecordBatch


def read_export(export: ExportTables, left_out: LeftOut | None = None) -> Iterator[ExportRows | Recording]:
    """Yield everything that the export holds and that a case file has a place for; the `Recording` comes last.

    Args:
        export: its tables.
        left_out: columns that need not be read; those that rows cannot be made without come nevertheless.
    """
    recording = read_recording(export)
    seen_pids: set[int] = set()
    levels: set[str] = set()
    strings = read_strings(export)
    codes = read_codes(export)
    for part in _event_rows(export, strings, codes, left_out or {}):
        if "pid" in part.rows.schema.names:
            seen_pids |= machine.distinct_pids(part.rows.column("pid"))
        levels |= _graph_levels(part.table, part.rows)
        yield part
    for kind, rows in (
        ("device", machine.devices(export)),
        ("stream", machine.streams(export)),
        ("process", machine.processes(export, strings, seen_pids)),
        ("thread", machine.threads(export, strings, seen_pids)),
    ):
        if rows.num_rows:
            yield ExportRows(kind, rows)
    if recording.graph_trace_level is None and levels:
        recording = replace(recording, graph_trace_level="graph" if "graph" in levels else "node")
    yield replace(recording, notes=codes.notes())


def _event_rows(export: ExportTables, strings: StringTable, codes: Codes, left_out: LeftOut) -> Iterator[ExportRows]:
    """Calls and kernels in turn, which are nearly all, then the rest: where rows are read ahead, two are at work."""

    def converted(source: ExportTable, kind: str, convert: _Rows) -> Iterator[ExportRows]:
        for batch in export.batches(source.without(left_out.get(kind, ()))):
            rows = convert(batch)
            if rows.num_rows:
                yield ExportRows(kind, rows)

    as_calls = (tables.RUNTIME, tables.DRIVER)
    calls = (converted(of, "api_call", lambda batch: host_calls.api_calls(batch, strings)) for of in as_calls)
    kernels = converted(tables.KERNEL, "kernel", lambda batch: device_work.kernels(batch, strings))
    yield from _alternating(chain.from_iterable(calls), kernels)
    for source, kind, convert in _conversions(export, strings, codes):
        yield from converted(source, kind, convert)


def _alternating(one: Iterator[ExportRows], other: Iterator[ExportRows]) -> Iterator[ExportRows]:
    for pair in zip_longest(one, other):
        yield from (part for part in pair if part is not None)


def _conversions(
    export: ExportTables, strings: StringTable, codes: Codes
) -> tuple[tuple[ExportTable, str, _Rows], ...]:
    domains = nvtx.read_domains(export, strings)
    return (
        (tables.MEMCPY, "memcpy", lambda batch: device_work.copies(batch, codes)),
        (tables.MEMSET, "memset", lambda batch: device_work.memory_sets(batch, codes)),
        (tables.GRAPH_TRACE, "graph_trace", device_work.graph_launches),
        (tables.SYNCHRONIZATION, "device_sync", lambda batch: device_work.synchronisations(batch, codes)),
        (tables.NVTX, "nvtx_range", lambda batch: nvtx.ranges(batch, strings, domains)),
        (tables.OSRT, "os_call", lambda batch: host_calls.os_calls(batch, strings)),
        (tables.GPU_MEMORY_USAGE, "gpu_memory_event", lambda batch: host_calls.memory_events(batch, codes)),
        (tables.GRAPH_EVENTS, "graph_event", lambda batch: host_calls.graph_events(batch, strings)),
        (tables.GRAPH_NODE_EVENTS, "graph_event", lambda batch: host_calls.graph_node_events(batch, strings)),
        (tables.PROFILER_OVERHEAD, "profiler_overhead", lambda batch: host_calls.overheads(batch, strings)),
        (tables.CUPTI_OVERHEAD, "profiler_overhead", lambda batch: host_calls.overheads(batch, strings)),
        (tables.DIAGNOSTIC, "diagnostic", messages.diagnostics),
    )


def _graph_levels(kind: str, rows: pa.RecordBatch) -> set[str]:
    if kind == "graph_trace":
        return {"graph"}
    if kind == "kernel" and rows.column("graph_node_id").null_count < rows.num_rows:
        return {"node"}
    return set()
