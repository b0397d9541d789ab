"""Tables and columns of the export, as NVIDIA's exporter writes them.

They are those of schema 3.25, and beside them the columns that older schemas had in their place.
A column is written `name`, `name!` (NOT NULL), `name:text` or `name:real`. A value that a report lacks is NULL, or 0
where the column is NOT NULL, as the exporter does it.
"""

from __future__ import annotations

from dataclasses import dataclass

Version = tuple[int, int, int]


@dataclass(frozen=True)
class LayoutColumn:
    """A column: SQLite type and whether it may be NULL."""

    name: str
    sql_type: str
    is_required: bool


@dataclass(frozen=True)
class LayoutTable:
    """A table, and what stands in front of its columns.

    Attributes:
        keys: column that is the primary key, or None.
        name_columns: columns that hold ids of StringIds.
        since: first recorder version whose own exporter writes the table; None where it always did.
    """

    name: str
    columns: tuple[LayoutColumn, ...]
    key: str | None = None
    name_columns: tuple[str, ...] = ()
    since: Version | None = None


def _table(name: str, columns: str, **more: object) -> LayoutTable:
    return LayoutTable(name, tuple(map(_column, columns.split())), **more)  # type: ignore[arg-type] # keywords are the fields


def _column(text: str) -> LayoutColumn:
    name, _, sql_type = text.rstrip("!").partition(":")
    return LayoutColumn(name, {"": "INTEGER", "text": "TEXT", "real": "REAL"}[sql_type], text.endswith("!"))


_PLACE = "deviceId! contextId! greenContextId streamId! correlationId globalPid"
_CALL = "start! end! eventClass! globalTid"

EVENT_LAYOUT = (
    _table(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        f"start! end! {_PLACE} demangledName! shortName! mangledName launchType cacheConfig "
        "registersPerThread! gridX! gridY! gridZ! blockX! blockY! blockZ! staticSharedMemory! "
        "dynamicSharedMemory! localMemoryPerThread! localMemoryTotal! gridId! sharedMemoryExecuted "
        "graphNodeId sharedMemoryLimitConfig qmdBulkReleaseDone qmdPreexitDone qmdLastCtaDone graphId "
        "clusterX clusterY clusterZ clusterSchedulingPolicy maxPotentialClusterSize maxActiveClusters "
        "sharedMemoryRequestedPercentage tensorSizeMinusOneElements:text",
        name_columns=("demangledName", "shortName", "mangledName"),
    ),
    _table(
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        f"start! end! {_PLACE} bytes! copyKind! deprecatedSrcId srcKind dstKind srcDeviceId srcContextId "
        "dstDeviceId dstContextId migrationCause graphNodeId virtualAddress copyCount",
    ),
    _table("CUPTI_ACTIVITY_KIND_MEMSET", f"start! end! {_PLACE} value! bytes! graphNodeId memKind"),
    _table(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", f"start! end! {_PLACE} deprecatedSyncType syncType! eventId! eventSyncId"
    ),
    _table("CUPTI_ACTIVITY_KIND_CUDA_EVENT", f"timestamp {_PLACE} eventId! eventSyncId"),
    _table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", f"start! end! {_PLACE} graphId! graphExecId!"),
    _table(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        f"{_CALL} correlationId nameId! returnValue! callchainId",
        name_columns=("nameId",),
    ),
    _table(
        "OSRT_API",
        f"{_CALL} correlationId nameId! returnValue! nestingLevel callchainId!",
        name_columns=("nameId",),
    ),
    _table(
        "PROFILER_OVERHEAD",
        "start! end! globalTid correlationId nameId! returnValue! overheadType!",
        name_columns=("nameId",),
    ),
    _table(
        "CUPTI_ACTIVITY_KIND_OVERHEAD",
        f"{_CALL} correlationId nameId overheadType!",
        name_columns=("nameId",),
    ),
    _table("CUDA_GRAPH_EVENTS", f"{_CALL} nameId! graphId originalGraphId graphExecId", name_columns=("nameId",)),
    _table("CUDA_GRAPH_NODE_EVENTS", f"{_CALL} nameId! graphNodeId! originalGraphNodeId", name_columns=("nameId",)),
    _table(
        "CUDA_GPU_MEMORY_USAGE_EVENTS",
        "start! globalPid! deviceId! contextId! address! pc! bytes! memKind! memoryOperationType! name:text "
        "correlationId streamId localMemoryPoolAddress localMemoryPoolReleaseThreshold localMemoryPoolSize "
        "localMemoryPoolUtilizedSize importedMemoryPoolAddress importedMemoryPoolProcessId",
    ),
    _table(
        "CUDA_GPU_MEMORY_POOL_EVENTS",
        "start! globalPid! deviceId! address! operationType! poolType! correlationId minBytesToKeep "
        "localMemoryPoolReleaseThreshold localMemoryPoolSize localMemoryPoolUtilizedSize",
    ),
    _table(
        "NVTX_EVENTS",
        "start! end eventType! rangeId category color text:text globalTid endGlobalTid textId domainId "
        "uint64Value int64Value doubleValue:real uint32Value int32Value floatValue:real jsonTextId "
        "jsonText:text binaryData:text",
        name_columns=("textId", "jsonTextId"),
    ),
    _table(
        "DIAGNOSTIC_EVENT",
        "timestamp! timestampType! source! severity! text:text! globalPid",
        since=(2024, 1, 0),
    ),
)

TARGET_LAYOUT = (
    _table("ThreadNames", "nameId! priority globalTid", name_columns=("nameId",)),
    _table(
        "TARGET_INFO_GPU",
        "vmId! id! deviceId name:text busLocation:text isDiscrete l2CacheSize totalMemory memoryBandwidth clockRate "
        "smCount pwGpuId uuid:text luid chipName:text cuDevice ctxswDevPath:text ctrlDevPath:text revision "
        "nodeMask constantMemory maxIPC maxRegistersPerBlock maxShmemPerBlock maxShmemPerBlockOptin "
        "maxShmemPerSm maxRegistersPerSm threadsPerWarp asyncEngines maxWarpsPerSm maxBlocksPerSm "
        "maxThreadsPerBlock maxBlockDimX maxBlockDimY maxBlockDimZ maxGridDimX maxGridDimY maxGridDimZ "
        "computeMajor computeMinor smMajor smMinor",
    ),
    _table(
        "TARGET_INFO_CUDA_GPU",
        "vmId name:text pciBusId:text globalMemoryBandwidth globalMemorySize constantMemorySize l2CacheSize "
        "numThreadsPerWarp coreClockRate numMemcpyEngines numMultiprocessors maxIPC maxWarpsPerMultiprocessor "
        "maxBlocksPerMultiprocessor maxRegistersPerBlock maxSharedMemoryPerBlock maxThreadsPerBlock "
        "maxBlockDimX maxBlockDimY maxBlockDimZ maxGridDimX maxGridDimY maxGridDimZ computeCapabilityMajor "
        "computeCapabilityMinor deviceId pid maxSharedMemoryPerMultiprocessor maxRegistersPerMultiprocessor",
    ),
    _table("TARGET_INFO_CUDA_DEVICE", "gpuId cudaId! pid! uuid:text numMultiprocessors", since=(2024, 6, 0)),
    _table(
        "TARGET_INFO_CUDA_CONTEXT_INFO",
        "nullStreamId! hwId! vmId! processId! deviceId! contextId! parentContextId isGreenContext "
        "numMultiprocessors numTpcs tpcMask:text workqueueResourceId workqueueConcurrencyLimit "
        "workqueueSharingScope",
        since=(2023, 4, 0),
    ),
    _table("TARGET_INFO_CUDA_STREAM", "streamId! hwId! vmId! processId! contextId! priority! flag!"),
    _table("TARGET_INFO_SESSION_START_TIME", "utcEpochNs utcTime:text localTime:text systemClockNs"),
    _table("ANALYSIS_DETAILS", "globalVid! duration! startTime! stopTime!"),
)

PROCESSES = _table("PROCESSES", "globalPid pid name:text")
STRINGS = _table("StringIds", "id! value:text!", key="id")
CAPTURE = _table("META_DATA_CAPTURE", "name:text! value:text")
EXPORT = _table("META_DATA_EXPORT", "name:text! value:text")

BY_NAME = {table.name: table for table in (*EVENT_LAYOUT, *TARGET_LAYOUT, PROCESSES, STRINGS, CAPTURE, EXPORT)}


def enumeration(name: str) -> LayoutTable:
    """Layout of a table of symbols."""
    return _table(name, "id! name:text label:text", key="id")
