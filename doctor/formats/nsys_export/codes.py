"""Enumerations of an export in the words of the case file.

Newer exports carry their own tables of names (`ENUM_*`), and those decide: numbers have moved between versions. Where a
table is missing the numbers below hold, which every export seen that has the tables agrees with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from doctor.formats.nsys_export.tables import ExportTable, ExportTables

_MEMORY_WORDS = {
    "PAGEABLE": "pageable",
    "PINNED": "pinned",
    "DEVICE": "device",
    "ARRAY": "array",
    "MANAGED": "managed",
    "DEVICE_STATIC": "device",
    "MANAGED_STATIC": "managed",
}
_COPY_WORDS = {
    "HTOD": "htod",
    "DTOH": "dtoh",
    "HTOA": "htod",
    "ATOH": "dtoh",
    "ATOA": "dtod",
    "ATOD": "dtod",
    "DTOA": "dtod",
    "DTOD": "dtod",
    "HTOH": "htoh",
    "PTOP": "ptop",
    "UVM_HTOD": "htod",
    "UVM_DTOH": "dtoh",
    "UVM_DTOD": "dtod",
}
_SYNC_WORDS = {
    "EVENT_SYNCHRONIZE": "event",
    "STREAM_WAIT_EVENT": "stream_wait",
    "STREAM_SYNCHRONIZE": "stream",
    "CONTEXT_SYNCHRONIZE": "context",
}
_MEMORY_FALLBACK = dict(enumerate(("pageable", "pinned", "device", "array", "managed", "device", "managed")))
_COPY_FALLBACK = dict(enumerate(tuple(_COPY_WORDS.values()), start=1))
_SYNC_FALLBACK = {1: "event", 2: "stream_wait", 3: "stream", 4: "context"}
_OPERATION_FALLBACK = {0: "allocate", 1: "free"}

SEVERITIES: Mapping[int, str] = {1: "info", 2: "warning", 3: "error", 4: "info"}
RANGE_KINDS: Mapping[int, str] = {59: "push_pop", 60: "start_end", 34: "mark"}
NVTX_DOMAIN_CREATED = 75
APIS: Mapping[int, str] = {0: "runtime", 1: "driver", 13: "driver", 26: "runtime"}
NULL_STREAM_FLAG = 3
NO_ID = 0xFFFFFFFF
"""Stands for no event and for no stream."""


@dataclass(frozen=True)
class Codes:
    """Numbers to words, for one export.

    Attributes:
        memory_kinds: srcKind, dstKind and memKind to pageable, pinned, device, array, managed.
        copy_kinds: copyKind to htod, dtoh, dtod, htoh, ptop.
        sync_kinds: syncType to event, stream_wait, stream, context.
        memory_operations: memoryOperationType to allocate, free.
    """

    memory_kinds: Mapping[int, str]
    copy_kinds: Mapping[int, str]
    sync_kinds: Mapping[int, str]
    memory_operations: Mapping[int, str]


def read_codes(tables: ExportTables) -> Codes:
    """Read the enumerations that are needed, or fall back on the known numbers."""
    return Codes(
        memory_kinds=_by_suffix(tables, "ENUM_CUDA_MEM_KIND", "_MEMORY_KIND_", _MEMORY_WORDS) or _MEMORY_FALLBACK,
        copy_kinds=_by_suffix(tables, "ENUM_CUDA_MEMCPY_OPER", "_MEMCPY_KIND_", _COPY_WORDS) or _COPY_FALLBACK,
        sync_kinds=_by_suffix(tables, "ENUM_CUPTI_SYNC_TYPE", "_SYNCHRONIZATION_TYPE_", _SYNC_WORDS) or _SYNC_FALLBACK,
        memory_operations=_by_suffix(
            tables, "ENUM_CUDA_DEV_MEM_EVENT_OPER", "_EVENT_OPR_", {"ALLOCATION": "allocate", "DEALLOCATION": "free"}
        )
        or _OPERATION_FALLBACK,
    )


def _by_suffix(tables: ExportTables, table: str, mark: str, words: Mapping[str, str]) -> dict[int, str]:
    found: dict[int, str] = {}
    for batch in tables.batches(ExportTable(table, ("id",), ("name",))):
        for code, name in zip(batch.column("id").to_pylist(), batch.column("name").to_pylist(), strict=True):
            word = words.get((name or "").partition(mark)[2])
            if code is not None and word is not None:
                found[code] = word
    return found
