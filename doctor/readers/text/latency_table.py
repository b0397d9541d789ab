"""A client's log of single requests as a table: when each began, or the silence before it, and how long it took."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.memory_table import time_of
from doctor.readers.text.scanner import batch_of

_IDLE = re.compile(r"(?:idle|pause|silence|gap)(?:_before)?_?(s|sec|seconds|ms)$|(?:seconds|s)_idle$")
_LATENCY = re.compile(r"(?:latency|ttft|duration|elapsed|inference|response|e2e)(?:_time)?_?(s|sec|seconds|ms|us)$")
_BEGIN = frozenset({"timestamp", "time", "start", "start_s", "start_time", "sent_at", "date"})
_UNITS: Mapping[str, int] = {"s": 10**9, "sec": 10**9, "seconds": 10**9, "ms": 10**6, "us": 10**3}
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,9})?$")
_STAMP = re.compile(r"[\[(]?(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)")
_TOOK = re.compile(
    r"\b(?:inference|request|generation|response|prediction|predict|infer|forward|latency|action)\b[^\n]{0,40}?"
    r"(?:took|latency|time|duration|elapsed|in)?[ :=]{1,4}(\d{1,9}(?:\.\d{1,6})?) ?(ms|s|sec|seconds)\b",
    re.IGNORECASE,
)
_MOST_LINE = 1000
_MOST_CELLS = 16
_MOST_ROWS = 1_000_000
_MOST = 2**62


class LatencyTableScanner:
    """Tables of requests that followed each other."""

    kind = "bench-table"
    clues = ("latency", "ttft", "duration", "elapsed", "inference", "nference", "response_", "e2e", " took ")

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._columns: list[tuple[str, int] | None] = []
        self._done_ns: int | None = None
        self._count = 0

    @property
    def is_open(self) -> bool:
        """Behind a header."""
        return bool(self._columns)

    def line(self, number: int, text: str) -> None:
        """A header or a row; anything else ends the table."""
        if not self._columns and self._said(text[:_MOST_LINE]):
            return
        cells = [cell.strip().strip('"') for cell in text[:_MOST_LINE].split(",")]
        if not 2 <= len(cells) <= _MOST_CELLS or (not self._header(cells) and self._columns and not self._row(cells)):
            self._columns = []

    def drain(self) -> Iterator[TableBatch]:
        """Rows so far."""
        if self._rows:
            yield batch_of("request_latency", self._rows, self.kind)
            self._rows = []

    def facts(self) -> SourceFacts | None:
        """What was found."""
        return SourceFacts(self.kind, "latency log", is_complete=True) if self._count else None

    def _said(self, text: str) -> bool:
        """A line of a log that says when, and how long one request took; it is written when the request is done."""
        stamp, took = _STAMP.match(text), _TOOK.search(text)
        moment = None if stamp is None else time_of(stamp[1].replace(",", "."), 10**9)
        if took is None or moment is None or self._count >= _MOST_ROWS:
            return False
        latency = _amount(took[1], _UNITS[took[2].lower()])
        if latency is None:
            return False
        began = moment - latency
        idle = None if self._done_ns is None else max(began - self._done_ns, 0)
        self._rows.append({"request_id": self._count, "time_ns": began, "latency_ns": latency, "idle_ns": idle})
        self._done_ns = moment
        self._count += 1
        return True

    def _header(self, cells: list[str]) -> bool:
        columns = [_column(cell.lower().replace(" ", "_").replace("(", "").replace(")", "")) for cell in cells]
        names = {column[0] for column in columns if column is not None}
        if "latency_ns" not in names or not names & {"idle_ns", "time_ns"}:
            return False
        self._columns, self._done_ns = columns, None
        return True

    def _row(self, cells: list[str]) -> bool:
        if len(cells) != len(self._columns) or self._count >= _MOST_ROWS:
            return False
        row: dict[str, Any] = {}
        for column, cell in zip(self._columns, cells, strict=True):
            if column is not None and column[0] not in row:
                row[column[0]] = time_of(cell, column[1]) if column[0] == "time_ns" else _amount(cell, column[1])
        latency = row.get("latency_ns")
        if latency is None:
            return False
        began = row.get("time_ns")
        if row.get("idle_ns") is None and began is not None and self._done_ns is not None:
            row["idle_ns"] = max(began - self._done_ns, 0)
        self._done_ns = None if began is None else began + latency
        self._rows.append({"request_id": self._count, **row})
        self._count += 1
        return True


def _column(name: str) -> tuple[str, int] | None:
    """Which figure a column holds, and its unit in ns."""
    if name in _BEGIN:
        return "time_ns", 10**9
    if (idle := _IDLE.match(name)) is not None:
        return "idle_ns", _UNITS[idle.group(1) or "s"]
    if (latency := _LATENCY.match(name)) is not None:
        return "latency_ns", _UNITS[latency.group(1)]
    return None


def _amount(cell: str, unit_ns: int) -> int | None:
    if not _NUMBER.match(cell):
        return None
    return round(min(float(cell) * unit_ns, _MOST))
