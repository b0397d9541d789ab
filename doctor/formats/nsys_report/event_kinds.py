"""Which event type fills which table, and where each column lies in the event's message.

Type ids are those of the export's ENUM_NSYS_EVENT_TYPE. Tables and columns carry NVIDIA's names, so that one
description serves the SQLite layout and the case file. A column is a path of field numbers inside the payload message.
An absent field is NULL.

Every column was found equal to the export's in real pairs of report and export, with these exceptions, which follow the
order of the export's columns and were never seen with a value beside an export: MEMSET.graphNodeId,
MEMCPY.deprecatedSrcId, NVTX uint64Value, uint32Value, int32Value and floatValue. The cluster columns of kernels were
checked against the cluster shapes that cuBLAS writes into its kernel names.
"""

from __future__ import annotations

from dataclasses import dataclass

from doctor.formats.nsys_report.shapes import Path

NEWEST_TYPE, NEWEST_CLASS = 154, 111
"""Highest event type and class of trace events that version 2026.2 knows."""

VARYING = frozenset(
    {
        *("start", "end", "timestamp", "correlationId", "returnValue", "bytes", "address", "virtualAddress"),
        *("gridId", "graphNodeId", "originalGraphNodeId", "eventId", "eventSyncId", "rangeId"),
        *("localMemoryPoolUtilizedSize", "overheadType"),
    }
)
"""Columns of whole numbers that are mostly others in each event; the rest of a recording's events repeats itself.

The kind of an overhead lies where a call of the same look has what it returned.
"""

INTEGER = "integer"
TEXT = "text"
REAL64 = "real64"
REAL32 = "real32"


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        name: as NVIDIA's export has it.
        path: field numbers that lead to it inside the payload.
        kind: INTEGER, TEXT, REAL64 or REAL32.
        otherwise: paths that count where `path` is absent.
    """

    name: str
    path: Path
    kind: str = INTEGER
    otherwise: tuple[Path, ...] = ()


@dataclass(frozen=True)
class EventTable:
    """A table and the events that fill it.

    Attributes:
        name: the export's table name.
        types: event type ids.
        payload: field number of the payload message.
        columns: in the export's order.
        classes: values of eventClass that belong here; None where the table has no such test.
        needs: path of a submessage that has to be there (copies and memory sets share a type).
        also_varying: numbers that fill no column and are others in each event.
    """

    name: str
    types: frozenset[int]
    payload: int
    columns: tuple[Column, ...]
    classes: frozenset[int] | None = None
    needs: Path | None = None
    also_varying: tuple[Path, ...] = ()


CUDA_PAYLOAD, TRACE_PAYLOAD, NVTX_PAYLOAD, DIAGNOSTIC_PAYLOAD, MEMORY_PAYLOAD = 107, 108, 102, 110, 123
PROCESS_PAYLOAD, POOL_PAYLOAD = 113, 129
EVENT_CLASS: Path = (6,)

_START_END = (Column("start", (1,)), Column("end", (2,)))
_PLACE = (
    Column("deviceId", (4,)),
    Column("contextId", (5,)),
    Column("greenContextId", (9,)),
    Column("streamId", (6,)),
    Column("correlationId", (3,)),
    Column("globalPid", (8,)),
)
_CALL = (*_START_END, Column("eventClass", EVENT_CLASS), Column("globalTid", (13,)))
_NAME = Column("nameId", (7,))

KERNEL = EventTable(
    "CUPTI_ACTIVITY_KIND_KERNEL",
    frozenset({79}),
    CUDA_PAYLOAD,
    (
        *_START_END,
        *_PLACE,
        Column("demangledName", (101, 1)),
        Column("shortName", (101, 2)),
        Column("mangledName", (101, 3)),
        Column("launchType", (101, 24)),
        Column("cacheConfig", (101, 23)),
        Column("registersPerThread", (101, 21)),
        *(Column(f"grid{axis}", (101, 10 + index)) for index, axis in enumerate("XYZ")),
        *(Column(f"block{axis}", (101, 13 + index)) for index, axis in enumerate("XYZ")),
        Column("staticSharedMemory", (101, 16)),
        Column("dynamicSharedMemory", (101, 17)),
        Column("localMemoryPerThread", (101, 18)),
        Column("localMemoryTotal", (101, 19)),
        Column("gridId", (101, 20)),
        Column("sharedMemoryExecuted", (101, 22)),
        Column("graphNodeId", (101, 27)),
        Column("sharedMemoryLimitConfig", (101, 28)),
        Column("clusterX", (101, 31)),
        Column("clusterY", (101, 32)),
        Column("clusterZ", (101, 33)),
        Column("clusterSchedulingPolicy", (101, 34)),
        Column("maxPotentialClusterSize", (101, 35)),
        Column("maxActiveClusters", (101, 36)),
    ),
)
MEMCPY = EventTable(
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    frozenset({80}),
    CUDA_PAYLOAD,
    (
        *_START_END,
        *_PLACE,
        Column("bytes", (102, 1)),
        Column("copyKind", (102, 2)),
        Column("deprecatedSrcId", (102, 3)),
        Column("srcKind", (102, 4)),
        Column("dstKind", (102, 5)),
        Column("srcDeviceId", (102, 6)),
        Column("srcContextId", (102, 7)),
        Column("dstDeviceId", (102, 8)),
        Column("dstContextId", (102, 9)),
        Column("migrationCause", (102, 10)),
        Column("graphNodeId", (102, 11)),
        Column("virtualAddress", (102, 12)),
        Column("copyCount", (102, 16)),
    ),
    needs=(102,),
)
MEMSET = EventTable(
    "CUPTI_ACTIVITY_KIND_MEMSET",
    frozenset({80}),
    CUDA_PAYLOAD,
    (
        *_START_END,
        *_PLACE,
        Column("value", (103, 2)),
        Column("bytes", (103, 1)),
        Column("graphNodeId", (103, 3)),
        Column("memKind", (103, 4)),
    ),
    needs=(103,),
)
SYNCHRONIZATION = EventTable(
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    frozenset({106}),
    CUDA_PAYLOAD,
    (
        *_START_END,
        *_PLACE,
        Column("deprecatedSyncType", (105, 2)),
        Column("syncType", (105, 4)),
        Column("eventId", (105, 1)),
        Column("eventSyncId", (105, 3)),
    ),
)
CUDA_EVENT = EventTable(
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
    frozenset({127}),
    CUDA_PAYLOAD,
    (Column("timestamp", (1,)), *_PLACE, Column("eventId", (106, 1)), Column("eventSyncId", (106, 2))),
    also_varying=((2,),),  # the time once more
)
GRAPH_TRACE = EventTable(
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    frozenset({130}),
    CUDA_PAYLOAD,
    (*_START_END, *_PLACE, Column("graphId", (107, 1)), Column("graphExecId", (107, 2))),
)
RUNTIME = EventTable(
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    frozenset({48}),
    TRACE_PAYLOAD,
    (*_CALL, Column("correlationId", (3,)), _NAME, Column("returnValue", (8,))),
    classes=frozenset({0, 1}),
)
OSRT_API = EventTable(
    "OSRT_API",
    frozenset({47, 48}),
    TRACE_PAYLOAD,
    (*_CALL, Column("correlationId", (3,)), _NAME, Column("returnValue", (8,)), Column("nestingLevel", (20,))),
    classes=frozenset({27, 31, 32}),
)
PROFILER_OVERHEAD = EventTable(
    "PROFILER_OVERHEAD",
    frozenset({48}),
    TRACE_PAYLOAD,
    (*_START_END, Column("globalTid", (13,)), Column("correlationId", (3,)), _NAME, Column("returnValue", (8,))),
    classes=frozenset({3}),
)
OVERHEAD = EventTable(
    "CUPTI_ACTIVITY_KIND_OVERHEAD",
    frozenset({48}),
    TRACE_PAYLOAD,
    (*_CALL, Column("correlationId", (3,)), _NAME, Column("overheadType", (8,))),
    classes=frozenset({102, 103}),
)
GRAPH_EVENTS = EventTable(
    "CUDA_GRAPH_EVENTS",
    frozenset({131, 132, 133}),
    TRACE_PAYLOAD,
    (
        *_CALL,
        _NAME,
        Column("graphId", (38, 1), otherwise=((37, 1), (39, 1))),
        Column("originalGraphId", (39, 2)),
        Column("graphExecId", (37, 2)),
    ),
)
GRAPH_NODE_EVENTS = EventTable(
    "CUDA_GRAPH_NODE_EVENTS",
    frozenset({113}),
    TRACE_PAYLOAD,
    (*_CALL, _NAME, Column("graphNodeId", (33, 1)), Column("originalGraphNodeId", (33, 2))),
)
NVTX_EVENTS = EventTable(
    "NVTX_EVENTS",
    frozenset({33, 34, 39, 59, 60, 75}),
    NVTX_PAYLOAD,
    (
        Column("start", (2,)),
        Column("end", (10,)),
        Column("eventType", (1,)),
        Column("rangeId", (4,)),
        Column("category", (5,)),
        Column("color", (6,)),
        Column("text", (7,), TEXT),
        Column("globalTid", (9,)),
        Column("endGlobalTid", (11,)),
        Column("textId", (12,)),
        Column("domainId", (13,)),
        Column("uint64Value", (8, 1)),
        Column("int64Value", (8, 2)),
        Column("doubleValue", (8, 3), REAL64),
        Column("uint32Value", (8, 4)),
        Column("int32Value", (8, 5)),
        Column("floatValue", (8, 6), REAL32),
        Column("jsonTextId", (8, 7)),
    ),
)
DIAGNOSTIC_EVENT = EventTable(
    "DIAGNOSTIC_EVENT",
    frozenset({49}),
    DIAGNOSTIC_PAYLOAD,
    (
        Column("timestamp", (1, 1)),
        Column("timestampType", (1, 2)),
        Column("source", (2,)),
        Column("severity", (3,)),
        Column("text", (4,), TEXT),
        Column("globalPid", (5,)),
    ),
)
GPU_MEMORY_USAGE = EventTable(
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    frozenset({117}),
    MEMORY_PAYLOAD,
    (
        Column("start", (1,)),
        Column("globalPid", (5,)),
        Column("deviceId", (3,)),
        Column("contextId", (4,)),
        Column("address", (6,)),
        Column("pc", (7,)),
        Column("bytes", (8,)),
        Column("memKind", (9,)),
        Column("memoryOperationType", (10,)),
        Column("name", (11,), TEXT),
        Column("correlationId", (12,)),
        Column("streamId", (15,)),
        Column("localMemoryPoolAddress", (13, 1)),
        Column("localMemoryPoolReleaseThreshold", (13, 2)),
        Column("localMemoryPoolSize", (13, 3)),
        Column("localMemoryPoolUtilizedSize", (13, 4)),
    ),
)
GPU_MEMORY_POOLS = EventTable(
    "CUDA_GPU_MEMORY_POOL_EVENTS",
    frozenset({129}),
    POOL_PAYLOAD,
    (
        Column("start", (1,)),
        Column("globalPid", (5,)),
        Column("deviceId", (6,)),
        Column("address", (7,)),
        Column("operationType", (2,)),
        Column("poolType", (3,)),
        Column("correlationId", (4,)),
        Column("minBytesToKeep", (8,)),
        Column("localMemoryPoolReleaseThreshold", (9, 10)),
        Column("localMemoryPoolSize", (9, 9)),
        Column("localMemoryPoolUtilizedSize", (9, 11)),
    ),
)
PROCESSES = EventTable(
    "PROCESSES",
    frozenset({27}),
    PROCESS_PAYLOAD,
    (
        Column("globalPid", (2,)),
        Column("name", (6,), TEXT),
        Column("executable", (5,), TEXT),
        Column("environmentId", (13,)),
    ),
)
"""The message also holds command line and working folder, which are not read. `environmentId` is the name id of a text
with the whole environment of the process, of use only to one who wants it out of the file.
"""

EVENT_TABLES = (
    PROCESSES,
    KERNEL,
    MEMCPY,
    MEMSET,
    SYNCHRONIZATION,
    CUDA_EVENT,
    GRAPH_TRACE,
    RUNTIME,
    OSRT_API,
    PROFILER_OVERHEAD,
    OVERHEAD,
    GRAPH_EVENTS,
    GRAPH_NODE_EVENTS,
    NVTX_EVENTS,
    DIAGNOSTIC_EVENT,
    GPU_MEMORY_USAGE,
    GPU_MEMORY_POOLS,
)
