"""Tables of replicas at one moment: `replica | running | waiting | kv usage`, a replica a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.scanner import batch_of

UNKNOWN_ENGINE = "unknown"
_MOST_LINE = 1000
_MOST_CELLS = 24
_MOST_ROWS = 10_000
_RULE = re.compile(r"[\s|:+=-]{3,400}\Z")
_WIDE = re.compile(r"\t|\s{2,}")
_REPLICA = re.compile(
    r"(?:dp[_ ]?)?(?:replica|engine|instance|worker|pod|server|backend|endpoint|rank|dp)s?(?:[_ ](?:id"
    r"|name|no|index))?\Z"
)
_COLUMNS = (
    (
        "running_count",
        re.compile(
            r"(?:num[_ ]?)?(?:requests? )?(?:running|active|in[ _-]?flight|ongoing)(?:[_ ]?(?:reqs?"
            r"|requests?))?\Z|batch\Z"
        ),
    ),
    (
        "waiting_count",
        re.compile(
            r"(?:num[_ ]?)?(?:requests? )?(?:waiting|queued?|pending)(?:[_ ]?(?:reqs?|requests?|size|len(?:gth)?"
            r"|depth))?\Z"
        ),
    ),
    (
        "kv_usage_share",
        re.compile(
            r"(?:gpu )?(?:kv(?:[_ ]?cache)?|cache)(?:[_ ]?(?:usage|util(?:i[sz]ation)?|used|use|fill|occupancy"
            r"|share))?(?: ?[(\[]?%[)\]]?)?\Z|token usage\Z"
        ),
    ),
)
_NUMBER = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s?(%?)\s{0,2}(?:reqs?|requests?)?\Z")


class ReplicaTableScanner:
    """Lines of cells under headings that name a replica and what runs on it."""

    kind = "engine-log"
    clues = ("running", "Running", "active", "Active", "flight", "ongoing")

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._columns: list[str | None] = []
        self._count = 0
        self._is_percent = False

    @property
    def is_open(self) -> bool:
        """True inside a table."""
        return bool(self._columns)

    def line(self, number: int, text: str) -> None:
        """A heading or a row; anything else ends the table."""
        line = text[:_MOST_LINE]
        if _RULE.match(line) and self._columns:
            return
        cells = _cells(line)
        row = self._row(cells, number) if self._columns else None
        if row is None:
            self._columns = _columns(cells)
            self._is_percent = any("%" in cell for cell in cells)
        elif self._count < _MOST_ROWS:
            self._count += 1
            self._rows.append(row)

    def drain(self) -> Iterator[TableBatch]:
        """Rows so far."""
        rows, self._rows = self._rows, []
        if rows:
            yield batch_of("engine_sample", rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """A table; None where the text holds none."""
        return SourceFacts(self.kind, "table of replicas", is_complete=True) if self._count else None

    def _row(self, cells: list[str], number: int) -> dict[str, Any] | None:
        if len(cells) != len(self._columns):
            return None
        told: dict[str, float] = {}
        for column, cell in zip(self._columns, cells, strict=True):
            found = _NUMBER.match(cell) if column not in {None, "replica"} else None
            if column not in {None, "replica"} and found is None:
                return None
            if found is not None and column is not None:
                is_share = column == "kv_usage_share" and (bool(found[2]) or self._is_percent)
                told[column] = float(found[1]) / (100 if is_share else 1)
        if told.get("kv_usage_share", 0.0) > 1:
            told["kv_usage_share"] /= 100
        return {
            "engine": UNKNOWN_ENGINE,
            "replica_id": self._count,
            "line_id": number,
            "phase": "state",
            **told,
        }


def _columns(cells: list[str]) -> list[str | None]:
    plain = [cell.lower().strip(" *`_#") for cell in cells]
    columns: list[str | None] = [
        "replica" if _REPLICA.match(cell) else next((name for name, form in _COLUMNS if form.match(cell)), None)
        for cell in plain
    ]
    is_told = columns.count("replica") == 1 and columns.count("running_count") == 1
    return columns if is_told and len(columns) <= _MOST_CELLS else []


def _cells(line: str) -> list[str]:
    if "|" in line:
        return [cell.strip() for cell in line.strip().strip("|").split("|")]
    for mark in (";", ","):
        if line.count(mark) >= 2:
            return [cell.strip() for cell in line.split(mark)]
    plain = line.strip()
    wide = _WIDE.split(plain)
    return wide if len(wide) > 2 else plain.split()
