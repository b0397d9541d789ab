"""Enumerations of an export in the words of the case file.

Newer exports carry their own tables of names (`ENUM_*`), and those decide: numbers have moved between versions. Where a
table is missing the numbers below hold, which every export seen that has the tables agrees with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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


_NAMELESS = ("UNKNOWN", "INVALID")
_NAME = re.compile(r"[A-Z0-9_]{1,60}")
_MOST_NAMED = 8


class Words(Mapping[int, str]):
    """Words of one enumeration; remembers the numbers that it was asked for and that are of a newer recorder."""

    def __init__(self, column: str, words: Mapping[int, str], names: Mapping[int, str]) -> None:
        self._column = column
        self._words = words
        self._names = names
        self._unknown: set[int] = set()

    def __getitem__(self, code: int) -> str:
        if code in self._words:
            return self._words[code]
        if not self._names.get(code, "").endswith(_NAMELESS):
            self._unknown.add(code)
        raise KeyError(code)

    def __iter__(self) -> Iterator[int]:
        return iter(self._words)

    def __len__(self) -> int:
        return len(self._words)

    def notes(self) -> tuple[str, ...]:
        """A line on numbers without a word, if there were any."""
        if not self._unknown:
            return ()
        named = [self._named(code) for code in self._unknown]
        more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        return (f"{self._column} holds kinds that are not known here: {', '.join(sorted(named)[:_MOST_NAMED])}{more}",)

    def _named(self, code: int) -> str:
        """The number, with its name in the file where that is plain."""
        name = self._names.get(code, "")
        return f"{code} ({name})" if _NAME.fullmatch(name) else str(code)


@dataclass(frozen=True)
class Codes:
    """Numbers to words, for one export.

    Attributes:
        memory_kinds: srcKind, dstKind and memKind to pageable, pinned, device, array, managed.
        copy_kinds: copyKind to htod, dtoh, dtod, htoh, ptop.
        sync_kinds: syncType to event, stream_wait, stream, context.
        memory_operations: memoryOperationType to allocate, free.
    """

    memory_kinds: Words
    copy_kinds: Words
    sync_kinds: Words
    memory_operations: Words

    def notes(self) -> tuple[str, ...]:
        """A line on each enumeration of which unknown numbers were met; final once all rows were converted."""
        return tuple(note for words in vars(self).values() for note in words.notes())


def read_codes(tables: ExportTables) -> Codes:
    """Read the enumerations that are needed, or fall back on the known numbers."""
    return Codes(
        memory_kinds=_read(tables, _MEMORY_KINDS),
        copy_kinds=_read(tables, _COPY_KINDS),
        sync_kinds=_read(tables, _SYNC_KINDS),
        memory_operations=_read(tables, _OPERATIONS),
    )


@dataclass(frozen=True)
class _Enumeration:
    """Where the names of one enumeration are, what they end in behind `mark`, and its numbers without such a table."""

    column: str
    table: str
    mark: str
    words: Mapping[str, str]
    fallback: Mapping[int, str]
    nameless: int


_MEMORY_KINDS = _Enumeration(
    "memKind", "ENUM_CUDA_MEM_KIND", "_MEMORY_KIND_", _MEMORY_WORDS, _MEMORY_FALLBACK, nameless=7
)
_COPY_KINDS = _Enumeration(
    "copyKind", "ENUM_CUDA_MEMCPY_OPER", "_MEMCPY_KIND_", _COPY_WORDS, _COPY_FALLBACK, nameless=0
)
_SYNC_KINDS = _Enumeration(
    "syncType", "ENUM_CUPTI_SYNC_TYPE", "_SYNCHRONIZATION_TYPE_", _SYNC_WORDS, _SYNC_FALLBACK, nameless=0
)
_OPERATIONS = _Enumeration(
    "memoryOperationType",
    "ENUM_CUDA_DEV_MEM_EVENT_OPER",
    "_EVENT_OPR_",
    {"ALLOCATION": "allocate", "DEALLOCATION": "free"},
    _OPERATION_FALLBACK,
    nameless=-1,
)


def _read(tables: ExportTables, one: _Enumeration) -> Words:
    names: dict[int, str] = {}
    for batch in tables.batches(ExportTable(one.table, ("id",), ("name",))):
        for code, name in zip(batch.column("id").to_pylist(), batch.column("name").to_pylist(), strict=True):
            if code is not None and name is not None:
                names[code] = name.partition(one.mark)[2]
    found = {code: one.words[name] for code, name in names.items() if name in one.words}
    return Words(one.column, found or one.fallback, names if found else {one.nameless: _NAMELESS[0]})
