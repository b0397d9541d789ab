"""The tables of an export that are read, their columns, and what a container of such tables offers."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True)
class ExportTable:
    """One table of the export.

    Attributes:
        name: NVIDIA's name of the table.
        integers: columns that hold whole numbers.
        texts: columns that hold text.
    """

    name: str
    integers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are read."""
        return self.integers + self.texts

    def without(self, left_out: Container[str]) -> ExportTable:
        """The same table less some columns, named as in a case; only those of `OPTIONAL` can be done without."""
        kept = tuple(name for name in self.integers if OPTIONAL.get(name) not in left_out)
        return replace(self, integers=kept)


@dataclass(frozen=True)
class Only:
    """A filter: rows whose `column` holds one of `values`, numbers or texts."""

    column: str
    values: tuple[int | str, ...]


class ExportTables(Protocol):
    """A file or folder that holds an export."""

    damage: list[str]
    """One line on each thing that could not be read so far."""

    def has(self, table: str) -> bool:
        """Tell whether the export has the table."""
        ...

    def batches(self, table: ExportTable, only: Only | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one table.

        Every batch has exactly `table.columns`: int64 for the integers, string for the texts. A column that this
        version of the export lacks is NULL throughout; a value of another type is NULL and noted in `damage`; a table
        that the export lacks has no rows. What is unreadable is noted in `damage`, never raised.
        """
        ...


OPTIONAL = {
    "contextId": "context_id",
    "registersPerThread": "registers_per_thread_count",
    "staticSharedMemory": "static_shared_bytes",
    "dynamicSharedMemory": "dynamic_shared_bytes",
    "eventClass": "api",
    "returnValue": "return_value",
}
"""Columns of events that rows can be made without, and their names in a case."""

_INTERVAL = ("start", "end")
_PLACE = ("deviceId", "contextId", "streamId", "correlationId", "globalPid")
_CALL = (*_INTERVAL, "eventClass", "globalTid", "nameId")

KERNEL = ExportTable(
    "CUPTI_ACTIVITY_KIND_KERNEL",
    (
        *_INTERVAL,
        *_PLACE,
        "graphNodeId",
        "demangledName",
        "shortName",
        "gridX",
        "gridY",
        "gridZ",
        "blockX",
        "blockY",
        "blockZ",
        "registersPerThread",
        "staticSharedMemory",
        "dynamicSharedMemory",
    ),
)
MEMCPY = ExportTable(
    "CUPTI_ACTIVITY_KIND_MEMCPY", (*_INTERVAL, *_PLACE, "graphNodeId", "bytes", "copyKind", "srcKind", "dstKind")
)
MEMSET = ExportTable("CUPTI_ACTIVITY_KIND_MEMSET", (*_INTERVAL, *_PLACE, "graphNodeId", "bytes", "memKind"))
GRAPH_TRACE = ExportTable("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (*_INTERVAL, *_PLACE, "graphId", "graphExecId"))
SYNCHRONIZATION = ExportTable(
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", (*_INTERVAL, *_PLACE, "deprecatedSyncType", "syncType", "eventId")
)
RUNTIME = ExportTable("CUPTI_ACTIVITY_KIND_RUNTIME", (*_CALL, "correlationId", "returnValue"))
DRIVER = ExportTable("CUPTI_ACTIVITY_KIND_DRIVER", (*_CALL, "correlationId", "returnValue"))
OSRT = ExportTable("OSRT_API", (*_CALL, "returnValue"))
PROFILER_OVERHEAD = ExportTable("PROFILER_OVERHEAD", (*_INTERVAL, "globalTid", "nameId"))
CUPTI_OVERHEAD = ExportTable("CUPTI_ACTIVITY_KIND_OVERHEAD", (*_INTERVAL, "globalTid", "nameId"))
GRAPH_EVENTS = ExportTable("CUDA_GRAPH_EVENTS", (*_INTERVAL, "globalTid", "nameId", "graphId", "graphExecId"))
GRAPH_NODE_EVENTS = ExportTable("CUDA_GRAPH_NODE_EVENTS", (*_INTERVAL, "globalTid", "nameId"))
GPU_MEMORY_USAGE = ExportTable(
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    ("start", "globalPid", "deviceId", "address", "bytes", "memKind", "memoryOperationType", "correlationId"),
)
NVTX = ExportTable("NVTX_EVENTS", (*_INTERVAL, "eventType", "globalTid", "textId", "domainId"), ("text",))
DIAGNOSTIC = ExportTable("DIAGNOSTIC_EVENT", ("timestamp", "severity"), ("text",))
STRINGS = ExportTable("StringIds", ("id",), ("value",))
PROCESSES = ExportTable("PROCESSES", ("pid",), ("name",))
THREAD_NAMES = ExportTable("ThreadNames", ("nameId", "globalTid"))
GPU = ExportTable(
    "TARGET_INFO_GPU",
    ("id", "totalMemory", "memoryBandwidth", "clockRate", "smCount", "computeMajor", "computeMinor"),
    ("name",),
)
CUDA_GPU = ExportTable(
    "TARGET_INFO_CUDA_GPU",
    (
        "deviceId",
        "globalMemorySize",
        "globalMemoryBandwidth",
        "coreClockRate",
        "numMultiprocessors",
        "computeCapabilityMajor",
        "computeCapabilityMinor",
    ),
    ("name",),
)
CUDA_DEVICE = ExportTable("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId"))
CUDA_CONTEXT = ExportTable("TARGET_INFO_CUDA_CONTEXT_INFO", ("processId", "contextId", "deviceId", "nullStreamId"))
CUDA_STREAM = ExportTable("TARGET_INFO_CUDA_STREAM", ("processId", "contextId", "streamId", "priority", "flag"))
CUDA_NULL_STREAM = ExportTable("TARGET_INFO_CUDA_NULL_STREAM", ("processId", "contextId", "streamId"))
ANALYSIS = ExportTable("ANALYSIS_DETAILS", ("duration", "startTime", "stopTime"))
SESSION_START = ExportTable("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))
SETTINGS = ("META_DATA_EXPORT", "META_DATA_CAPTURE", "EXPORT_META_DATA")
"""Tables of (name, value) pairs, always read with a filter: they hold environments, command lines and hosts too."""

MARKS_OF_AN_EXPORT = (
    "StringIds",
    "TARGET_INFO_SESSION_START_TIME",
    "META_DATA_EXPORT",
    "EXPORT_META_DATA",
    "ANALYSIS_DETAILS",
    "ENUM_NSYS_EVENT_TYPE",
    "NVTX_EVENTS",
)
"""Tables that no other kind of file has: one of them is enough to know an export."""
