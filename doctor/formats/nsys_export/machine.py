"""GPUs, streams, processes and threads, in the words of the case file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from doctor.formats.nsys_export.codes import NULL_STREAM_FLAG
from doctor.formats.nsys_export.identifiers import process_ids, thread_ids
from doctor.formats.nsys_export.names import StringTable
from doctor.formats.nsys_export.tables import (
    CUDA_CONTEXT,
    CUDA_DEVICE,
    CUDA_GPU,
    CUDA_NULL_STREAM,
    CUDA_STREAM,
    GPU,
    PROCESSES,
    THREAD_NAMES,
    ExportTable,
    ExportTables,
)
from doctor.formats.private_paths import executable_name

_LEAST_CLOCK_HZ = 10**8
_LEAST_BANDWIDTH_BYTES_PER_S = 10**10
_INT32 = 1 << 32


@dataclass(frozen=True)
class _Device:
    device_id: int | None
    name: str | None
    vendor: str
    sm_count: int | None
    memory_bytes: int | None
    memory_rate_bytes_per_s: float | None
    clock_hz: float | None
    compute_major: int | None
    compute_minor: int | None


def devices(tables: ExportTables) -> pa.RecordBatch:
    """Rows of `device`: the GPUs that CUDA programs of the recording could see, by CUDA ordinal.

    The list of GPUs holds those of other vendors too; a row of TARGET_INFO_CUDA_DEVICE says which of them is which CUDA
    device. Exports that lack it number NVIDIA's in the order of the list. Processes that see different GPUs under one
    ordinal share one row.
    """
    found = [_modern_device(row) for row in _rows(tables, GPU)]
    if not found:
        found = [_early_device(row) for row in _rows(tables, CUDA_GPU)]
    gpu_of_ordinal: dict[int, int] = {}
    for row in _rows(tables, CUDA_DEVICE):
        gpu_id, ordinal = row["gpuId"], row["cudaId"]
        if gpu_id is not None and ordinal is not None:
            gpu_of_ordinal[ordinal] = min(gpu_id, gpu_of_ordinal.get(ordinal, gpu_id))
    if gpu_of_ordinal:
        by_gpu = {device.device_id: device for device in found}
        found = [
            _Device(**{**vars(by_gpu[gpu_id]), "device_id": ordinal})
            for ordinal, gpu_id in sorted(gpu_of_ordinal.items())
            if gpu_id in by_gpu
        ]
    else:
        found = [device for device in found if device.vendor == "nvidia"]
    return _record_batch(_Device, [vars(device) for device in found])


def _modern_device(row: dict[str, Any]) -> _Device:
    return _Device(
        device_id=row["id"],
        name=row["name"],
        vendor=_vendor(row["name"]),
        sm_count=_amount(row["smCount"]),
        memory_bytes=_amount(row["totalMemory"]),
        memory_rate_bytes_per_s=_in_base_unit(row["memoryBandwidth"], 1),
        clock_hz=_in_base_unit(row["clockRate"], 1),
        compute_major=row["computeMajor"] or None,
        compute_minor=row["computeMinor"] if row["computeMajor"] else None,
    )


def _early_device(row: dict[str, Any]) -> _Device:
    return _Device(
        device_id=row["deviceId"],
        name=row["name"],
        vendor="nvidia",
        sm_count=_amount(row["numMultiprocessors"]),
        memory_bytes=_amount(row["globalMemorySize"]),
        memory_rate_bytes_per_s=_in_base_unit(row["globalMemoryBandwidth"], _LEAST_BANDWIDTH_BYTES_PER_S),
        clock_hz=_in_base_unit(row["coreClockRate"], _LEAST_CLOCK_HZ),
        compute_major=row["computeCapabilityMajor"] or None,
        compute_minor=row["computeCapabilityMinor"] if row["computeCapabilityMajor"] else None,
    )


def _amount(value: int | None) -> int | None:
    """What can be counted; zero and less is unknown."""
    return value if value is not None and value > 0 else None


def _in_base_unit(value: int | None, least: int) -> float | None:
    """CUPTI counts kHz and kB/s; a value that no GPU is slow enough for is in thousands."""
    if value is None or value <= 0:
        return None
    return float(value if value >= least else value * 1000)


def _vendor(name: str | None) -> str:
    words = (name or "").lower()
    if any(mark in words for mark in ("nvidia", "tesla", "geforce", "quadro", "titan", "rtx")):
        return "nvidia"
    return "amd" if any(mark in words for mark in ("amd", "radeon", "instinct")) else "other"


def streams(tables: ExportTables) -> pa.RecordBatch:
    """Rows of `stream`. Null streams stand with the contexts; before 2022 in a table of their own or under a flag."""
    contexts = {(row["processId"], row["contextId"]): row for row in _rows(tables, CUDA_CONTEXT)}
    null_streams = {(*key, row["nullStreamId"]) for key, row in contexts.items() if row["nullStreamId"] is not None}
    null_streams |= {(row["processId"], row["contextId"], row["streamId"]) for row in _rows(tables, CUDA_NULL_STREAM)}
    rows: list[dict[str, Any]] = []
    for row in _rows(tables, CUDA_STREAM):
        key = (row["processId"], row["contextId"], row["streamId"])
        is_null = key in null_streams or row["flag"] == NULL_STREAM_FLAG
        null_streams.discard(key)
        rows.append(_stream(key, contexts, _signed(row["priority"]), is_null=is_null))
    known = sorted(key for key in null_streams if None not in key)
    rows += [_stream(key, contexts, None, is_null=True) for key in known]
    return pa.RecordBatch.from_pylist(rows, schema=_STREAM_SCHEMA)


_STREAM_SCHEMA = pa.schema(
    [
        ("pid", pa.int64()),
        ("device_id", pa.int64()),
        ("context_id", pa.int64()),
        ("stream_id", pa.int64()),
        ("priority", pa.int64()),
        ("is_null_stream", pa.bool_()),
    ]
)


def _stream(
    key: tuple[int, int, int], contexts: dict[tuple[int, int], dict[str, Any]], priority: int | None, *, is_null: bool
) -> dict[str, Any]:
    pid, context_id, stream_id = key
    return {
        "pid": pid,
        "device_id": contexts.get((pid, context_id), {}).get("deviceId"),
        "context_id": context_id,
        "stream_id": stream_id,
        "priority": priority,
        "is_null_stream": is_null,
    }


def _signed(value: int | None) -> int | None:
    """Priorities are 32-bit numbers that the export writes without their sign."""
    return value - _INT32 if value is not None and value >= _INT32 // 2 else value


def processes(tables: ExportTables, strings: StringTable, seen_pids: Iterable[int]) -> pa.RecordBatch:
    """Rows of `process` for the processes that the recording has work of; the export lists the whole machine's."""
    names = {row["pid"]: row["name"] for row in _rows(tables, PROCESSES)}
    main_threads = {pid: name for pid, tid, name in _thread_names(tables, strings) if pid == tid}
    pids = sorted(seen_pids)
    words = [executable_name(names.get(pid) or main_threads.get(pid)) for pid in pids]
    return pa.RecordBatch.from_pydict({"pid": pa.array(pids, pa.int64()), "name": pa.array(words, pa.string())})


def threads(tables: ExportTables, strings: StringTable, seen_pids: Iterable[int]) -> pa.RecordBatch:
    """Rows of `thread` of the same processes."""
    wanted = set(seen_pids)
    rows = [row for row in _thread_names(tables, strings) if row[0] in wanted]
    pids, tids, names = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.RecordBatch.from_pydict(
        {
            "pid": pa.array(pids, pa.int64()),
            "tid": pa.array(tids, pa.int64()),
            "name": pa.array(names, pa.string()),
        }
    )


def _thread_names(tables: ExportTables, strings: StringTable) -> Iterator[tuple[int, int, str | None]]:
    for batch in tables.batches(THREAD_NAMES):
        pids, tids = process_ids(batch.column("globalTid")), thread_ids(batch.column("globalTid"))
        names = strings.look_up(batch.column("nameId"))
        yield from zip(pids.to_pylist(), tids.to_pylist(), names.to_pylist(), strict=True)


def _rows(tables: ExportTables, table: ExportTable) -> Iterator[dict[str, Any]]:
    for batch in tables.batches(table):
        yield from batch.to_pylist()


def _record_batch(shape: type[_Device], rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    types = {
        "name": pa.string(),
        "vendor": pa.string(),
        "memory_rate_bytes_per_s": pa.float64(),
        "clock_hz": pa.float64(),
    }
    fields = [(field, types.get(field, pa.int64())) for field in shape.__dataclass_fields__]
    return pa.RecordBatch.from_pylist(list(rows), schema=pa.schema(fields))


def distinct_pids(pids: pa.Array) -> set[int]:
    """Process ids that occur in a column."""
    return {pid for pid in pc.unique(pids).to_pylist() if pid is not None}
