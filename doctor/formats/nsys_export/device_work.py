"""Kernels, copies, memory sets, graph launches and synchronisation records, in the words of the case file."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from doctor.formats.nsys_export.codes import NO_ID, Codes
from doctor.formats.nsys_export.identifiers import process_ids
from doctor.formats.nsys_export.names import StringTable, translate
from doctor.formats.nsys_export.tables import OPTIONAL

# typed once: to tell the type of a Python value pyarrow looks for a library of dates, 50 us where it is missing
_ZERO, _NO_ID, _UNKNOWN = (pa.scalar(value, pa.int64()) for value in (0, NO_ID, None))
_STREAM_WAIT, _STREAM, _CONTEXT = (pa.scalar(word, pa.string()) for word in ("stream_wait", "stream", "context"))
_FALSE = pa.scalar(False, pa.bool_())


def _on_stream(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    columns = {
        "pid": process_ids(batch.column("globalPid")),
        "device_id": batch.column("deviceId"),
        "stream_id": batch.column("streamId"),
        "correlation_id": batch.column("correlationId"),
        "start_ns": batch.column("start"),
        "end_ns": batch.column("end"),
        **{OPTIONAL[name]: batch.column(name) for name in batch.schema.names if name in OPTIONAL},
    }
    if "graphNodeId" in batch.schema.names:
        nodes = batch.column("graphNodeId")
        columns["graph_node_id"] = pc.if_else(pc.equal(nodes, _ZERO), _UNKNOWN, nodes)  # 0 is no node
    return columns


def kernels(batch: pa.RecordBatch, strings: StringTable) -> pa.RecordBatch:
    """Rows of `kernel` out of CUPTI_ACTIVITY_KIND_KERNEL."""
    return pa.RecordBatch.from_pydict(
        {
            **_on_stream(batch),
            "name": strings.look_up(batch.column("demangledName")),
            "short_name": strings.look_up(batch.column("shortName")),
            **{f"{kind}_{axis.lower()}": batch.column(f"{kind}{axis}") for kind in ("grid", "block") for axis in "XYZ"},
        }
    )


def copies(batch: pa.RecordBatch, codes: Codes) -> pa.RecordBatch:
    """Rows of `memcpy` out of CUPTI_ACTIVITY_KIND_MEMCPY."""
    return pa.RecordBatch.from_pydict(
        {
            **_on_stream(batch),
            "size_bytes": batch.column("bytes"),
            "copy_kind": translate(batch.column("copyKind"), codes.copy_kinds),
            "src_kind": translate(batch.column("srcKind"), codes.memory_kinds),
            "dst_kind": translate(batch.column("dstKind"), codes.memory_kinds),
        }
    )


def memory_sets(batch: pa.RecordBatch, codes: Codes) -> pa.RecordBatch:
    """Rows of `memset` out of CUPTI_ACTIVITY_KIND_MEMSET."""
    return pa.RecordBatch.from_pydict(
        {
            **_on_stream(batch),
            "size_bytes": batch.column("bytes"),
            "memory_kind": translate(batch.column("memKind"), codes.memory_kinds),
        }
    )


def graph_launches(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `graph_trace` out of CUPTI_ACTIVITY_KIND_GRAPH_TRACE."""
    return pa.RecordBatch.from_pydict(
        {**_on_stream(batch), "graph_id": batch.column("graphId"), "graph_exec_id": batch.column("graphExecId")}
    )


def synchronisations(batch: pa.RecordBatch, codes: Codes) -> pa.RecordBatch:
    """Rows of `device_sync` out of CUPTI_ACTIVITY_KIND_SYNCHRONIZATION; a wait for a whole context has no stream.

    Since schema 3.17 a capture made by an older version has 0 in syncType and its value in deprecatedSyncType.
    Recorders up to 2025.3 store a stream synchronisation under the number of a stream's wait for an event, and those of
    2024 a context synchronisation under 0. What the record names tells them apart: a wait for an event names the event,
    a stream synchronisation a stream alone, a context synchronisation neither.
    """
    current, deprecated = batch.column("syncType"), batch.column("deprecatedSyncType")
    number = pc.if_else(pc.fill_null(pc.not_equal(current, _ZERO), _FALSE), current, deprecated)
    kind = translate(number, codes.sync_kinds)
    names_no_event = pc.fill_null(pc.equal(batch.column("eventId"), _NO_ID), _FALSE)
    names_no_stream = pc.fill_null(pc.equal(batch.column("streamId"), _NO_ID), _FALSE)
    is_stream = pc.and_(names_no_event, pc.fill_null(pc.equal(kind, _STREAM_WAIT), _FALSE))
    is_context = pc.and_(pc.and_(names_no_event, names_no_stream), pc.fill_null(pc.equal(number, _ZERO), _FALSE))
    kind = pc.if_else(is_context, _CONTEXT, pc.if_else(is_stream, _STREAM, kind))
    stream = pc.if_else(names_no_stream, _UNKNOWN, batch.column("streamId"))
    return pa.RecordBatch.from_pydict({**_on_stream(batch), "stream_id": stream, "sync_kind": kind})
