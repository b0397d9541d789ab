"""What a program prints of PyTorch's allocator step by step.

`allocated 34.20 GiB` in a line of its own, `step 7 | mem 34.20 GiB`, a table with such a column, or bare levels
(`request 50: 16.02 GiB`) under a line that says of what they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.oom_message import size_of
from doctor.readers.text.scanner import batch_of

KIND = "memory-snapshot"
FEWEST_LINES = 8
"""Fewer make no series; a message about memory is none."""
_UNIT = r"([KMGT]i?B|[Bb]ytes|B)\b"
_NUMBER = r"(\d{1,15}(?:\.\d{1,9})?)"
_NAMED = r"(?:\(\)|_bytes)?['\"]?\s{0,4}[=:]?\s{0,4}" + _NUMBER + rf"\s{{0,2}}{_UNIT}"
_ALLOCATED = re.compile(rf"(?:allocated|(?:mem|memory|vram)_alloc){_NAMED}", re.IGNORECASE)
_RESERVED = re.compile(rf"(?:reserved|cached){_NAMED}", re.IGNORECASE)
_BARE = re.compile(r"memory_allocated(?:\(\))?['\"]?\s{0,4}[=:]\s{0,4}(\d{6,15})\b(?!\.)")
_OTHERS_WORDS = ("out of memory", "by PyTorch", "already allocated", "private pools", "ried to allocate")
_COLUMN = re.compile(
    r"^(?:(?:torch|cuda|gpu|vram|memory|mem)_){0,3}(alloc(?:ated)?|reserved)(?:_memory|_mem)?_?(?:\(|\[)?"
    r"(bytes|b|kb|kib|mb|mib|gb|gib)?(?:\)|\])?$"
)
_MEMORY = re.compile(
    r"^(?:(?:gpu|device|cuda|metal|unified|process)_){0,2}(?:memory|mem|vram)(?:_used|_usage|_in_use)?_?(?:\(|\[)?(mb|mib|gb|gib|bytes)(?:\)|\])?$"
)
_PLACE = re.compile(
    r"^(?:time|timestamp|elapsed|seconds|step|iter|iteration|t|i|phase|request|chunk)(?:_?[([]?\w{1,4}[)\]]?)?$"
)
_PLACES = (
    r"(?:iter|iteration|step|request|req|prompt|epoch|batch|chunk|sample|call|round|turn|image|file|doc|document|query"
    r"|question|item|loop|run|episode|generation|after)"
)
_SIZED = rf"(\d{{1,15}}(?:[.,]\d{{1,9}})?)\s{{0,2}}{_UNIT}"
_PLACED = re.compile(rf"\b{_PLACES}s?\b[^\w\n]{{0,4}}(?:no\.? ?)?\d", re.IGNORECASE)
_PLACED_LEVEL = re.compile(
    rf"\b(?:mem|memory|vram)(?:[ _](?:used|usage|in use|after))?(?:\(\))?[\s=:|]{{1,4}}{_SIZED}(?!\s?/s)", re.IGNORECASE
)
_HEADING = re.compile(
    r"memory_allocated|\ballocated\b|\b(?:memory|mem|vram)\b[^.\n]{0,40}\b(?:after|each|every|per|over time|by)\b",
    re.IGNORECASE,
)
_BARE_LEVEL = re.compile(
    r"[\s>*\-•\[(]{0,8}(?:[A-Za-z_]{1,20}[ .:=#_]{0,3})?#?(\d{1,9})(?:/\d{1,9})?[\])]?"
    rf"(?:\s{{0,8}}(?:[:=|,;]|->|=>|→)\s{{0,8}}|\s{{1,8}}){_SIZED}[\s.,;|]{{0,8}}\Z",
    re.IGNORECASE,
)
_NOT_ALLOCATED = re.compile(
    r"\b(?:reserved|cached|peak|max(?:imum)?|max_memory_\w{1,20}|rss|ram|host|cpu|free|left|available|nvidia-smi)\b",
    re.IGNORECASE,
)
_LENGTH = re.compile(
    r"\b(?:seq(?:uence)?[ _]?len(?:gth)?|tokens?|ctx|context(?:[ _]len(?:gth)?)?|(?:kv|past|prompt)[ _]?len|length)"
    r"[\s=:]{1,3}(\d{1,9})\b(?![.,]\d)|\b(\d{1,9}) ?(?:tok|tokens)\b",
    re.IGNORECASE,
)
_MOST_GAP = 3
_MOST_CELLS = 24
_MOST_LINE = 1000
_RULE = re.compile(r"[\s|:+-]{3,400}\Z")


class MemoryLevelsScanner:
    """Levels of the allocator, in the order printed."""

    kind = KIND
    clues = (
        "allocated", "Allocated", "alloc_", "_alloc", "memory_", "mem_", "vram_", "emory (", "emory [", "VRAM (",
        " mem", "|mem", "(mem", "mem:", "mem=", "vram", "VRAM", "emory after", "emory per",
        "emory at", "emory by", "emory=", "emory:",
    )  # fmt: skip

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._count = 0
        self._is_series = False
        self._columns: list[tuple[str, str] | None] = []
        self._lines_left = 0

    @property
    def is_open(self) -> bool:
        """True inside a table, and under a line that says of what bare levels are."""
        return bool(self._columns) or self._lines_left > 0

    def line(self, number: int, text: str) -> None:
        """Look at one line."""
        if self._columns:
            levels = self._cells(text)
            if levels is None and not _RULE.match(text):
                self._columns = []
        elif self._lines_left > 0 and (level := _BARE_LEVEL.match(text[:_MOST_LINE])) is not None:
            self._lines_left = _MOST_GAP
            levels = {"allocated_bytes": size_of(level[2].replace(",", "."), level[3])}
        else:
            self._columns = _header(text)
            is_other = bool(self._columns) or any(word in text for word in _OTHERS_WORDS)
            levels = None if is_other else _named(text.lower()) or _placed(text[:_MOST_LINE])
            is_heading = not is_other and levels is None and _HEADING.search(text[:_MOST_LINE]) is not None
            is_heading = is_heading and _NOT_ALLOCATED.search(text[:_MOST_LINE].rsplit(". ", 1)[-1]) is None
            self._lines_left = _MOST_GAP if is_heading else max(self._lines_left - 1, 0)
        if levels is not None and levels.get("allocated_bytes") is not None:
            self._rows.append({"step_id": self._count, **levels})
            self._count += 1
            self._is_series = self._is_series or self._count >= FEWEST_LINES

    def drain(self) -> Iterator[TableBatch]:
        """Rows so far, once they are enough for a series."""
        if self._is_series and self._rows:
            yield batch_of("allocator_level", self._rows, KIND)
            self._rows = []

    def facts(self) -> SourceFacts | None:
        """Facts of the source; None where nothing was printed step by step."""
        return SourceFacts(kind=KIND, tool="torch", is_complete=True) if self._is_series else None

    def _cells(self, text: str) -> dict[str, int | None] | None:
        cells = _split(text)
        if len(cells) != len(self._columns):
            return None
        levels: dict[str, int | None] = {}
        for column, cell in zip(self._columns, cells, strict=True):
            if column is not None:
                if re.fullmatch(_NUMBER, cell) is None:
                    return None
                levels[f"{column[0]}_bytes"] = size_of(cell, column[1])
        return levels


def _named(text: str) -> dict[str, int | None] | None:
    bare = _BARE.search(text)
    if bare is not None:
        return {"allocated_bytes": size_of(bare[1], "B")}
    allocated = _ALLOCATED.search(text)
    if allocated is None:
        return None
    reserved = _RESERVED.search(text)
    levels = {"allocated_bytes": size_of(allocated[1], allocated[2]), **_length(text)}
    return levels if reserved is None else {**levels, "reserved_bytes": size_of(reserved[1], reserved[2])}


def _placed(text: str) -> dict[str, int | None] | None:
    """A level behind the number of a step; levels of the host, of caches and peaks are others."""
    level = _PLACED_LEVEL.search(text)
    if level is None or _PLACED.search(text) is None or _NOT_ALLOCATED.search(text) is not None:
        return None
    return {"allocated_bytes": size_of(level[1].replace(",", "."), level[2]), **_length(text)}


def _length(text: str) -> dict[str, int | None]:
    """Tokens of the sequence, where the line tells them."""
    found = _LENGTH.search(text[:_MOST_LINE])
    return {} if found is None else {"token_count": int(found[1] or found[2])}


def _header(text: str) -> list[tuple[str, str] | None]:
    cells = _split(text)
    if not 1 < len(cells) <= _MOST_CELLS:
        return []
    plain = [cell.lower().replace(" ", "_").replace("_[", "[").replace("_(", "(") for cell in cells]
    memory = [_MEMORY.match(cell) for cell in plain]
    if sum(match is not None for match in memory) == 1 and any(map(_PLACE.match, plain)):
        return [None if match is None else ("allocated", match[1]) for match in memory]
    found = [_COLUMN.match(cell) for cell in plain]
    columns = [
        None if match is None else ("reserved" if match[1] == "reserved" else "allocated", match[2] or "B")
        for match in found
    ]
    return columns if any(column is not None and column[0] == "allocated" for column in columns) else []


def _split(text: str) -> list[str]:
    separator = next((mark for mark in ("|", "\t") if mark in text), ",")
    plain = text.strip().strip("|") if separator == "|" else text
    return [cell.strip().strip('"') for cell in plain.split(separator)][: _MOST_CELLS + 1]
