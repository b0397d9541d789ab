"""API calls, system calls, graph and memory events and the recorder's own time, in the words of the case file."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from doctor.formats.nsys_export.codes import APIS, Codes
from doctor.formats.nsys_export.identifiers import process_ids, thread_ids
from doctor.formats.nsys_export.names import StringTable, translate


def _on_thread(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return {
        "pid": process_ids(batch.column("globalTid")),
        "tid": thread_ids(batch.column("globalTid")),
        "start_ns": batch.column("start"),
        "end_ns": batch.column("end"),
    }


def _api(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return {"api": translate(batch.column("eventClass"), APIS)} if "eventClass" in batch.schema.names else {}


def _status(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return {"return_value": batch.column("returnValue")} if "returnValue" in batch.schema.names else {}


def api_calls(batch: pa.RecordBatch, strings: StringTable) -> pa.RecordBatch:
    """Rows of `api_call` out of CUPTI_ACTIVITY_KIND_RUNTIME, which holds runtime and driver calls alike."""
    return pa.RecordBatch.from_pydict(
        {
            **_on_thread(batch),
            "name": strings.look_up(batch.column("nameId")),
            "correlation_id": batch.column("correlationId"),
            **_api(batch),
            **_status(batch),
        }
    )


def os_calls(batch: pa.RecordBatch, strings: StringTable) -> pa.RecordBatch:
    """Rows of `os_call` out of OSRT_API."""
    return pa.RecordBatch.from_pydict(
        {
            **_on_thread(batch),
            "name": strings.look_up(batch.column("nameId")),
            **_status(batch),
        }
    )


def overheads(batch: pa.RecordBatch, strings: StringTable) -> pa.RecordBatch:
    """Rows of `profiler_overhead` out of PROFILER_OVERHEAD or CUPTI_ACTIVITY_KIND_OVERHEAD."""
    return pa.RecordBatch.from_pydict({**_on_thread(batch), "name": strings.look_up(batch.column("nameId"))})


def graph_events(batch: pa.RecordBatch, strings: StringTable) -> pa.RecordBatch:
    """Rows of `graph_event` out of CUDA_GRAPH_EVENTS: graphs made and graphs instantiated."""
    return pa.RecordBatch.from_pydict(
        {
            **_on_thread(batch),
            "event_kind": pc.if_else(pc.is_valid(batch.column("graphExecId")), "exec", "graph"),
            "name": strings.look_up(batch.column("nameId")),
            "graph_id": batch.column("graphId"),
            "graph_exec_id": batch.column("graphExecId"),
        }
    )


def graph_node_events(batch: pa.RecordBatch, strings: StringTable) -> pa.RecordBatch:
    """Rows of `graph_event` out of CUDA_GRAPH_NODE_EVENTS."""
    return pa.RecordBatch.from_pydict(
        {
            **_on_thread(batch),
            "event_kind": pa.repeat("node", batch.num_rows),
            "name": strings.look_up(batch.column("nameId")),
        }
    )


def memory_events(batch: pa.RecordBatch, codes: Codes) -> pa.RecordBatch:
    """Rows of `gpu_memory_event` out of CUDA_GPU_MEMORY_USAGE_EVENTS."""
    return pa.RecordBatch.from_pydict(
        {
            "pid": process_ids(batch.column("globalPid")),
            "device_id": batch.column("deviceId"),
            "time_ns": batch.column("start"),
            "operation": translate(batch.column("memoryOperationType"), codes.memory_operations),
            "memory_kind": translate(batch.column("memKind"), codes.memory_kinds),
            "size_bytes": batch.column("bytes"),
            "address": batch.column("address"),
            "correlation_id": batch.column("correlationId"),
        }
    )
