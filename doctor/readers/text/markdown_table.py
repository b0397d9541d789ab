"""Tables of benchmark results as people paste them: `| batch | tok/s |`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.bench_columns import column_of
from doctor.readers.bench_rows import row_of
from doctor.readers.text.scanner import batch_of

MOST_TABLE_LINES = 2000
_RULE = re.compile(r"\s{0,8}\|?[\s|:+\-]{3,4000}\Z")


class MarkdownTableScanner:
    """A line of headings with figures of speed, a line of dashes, and lines of cells."""

    kind = "bench-table"
    clues = ("tok/s", "tokens/s", "hroughput", "TPOT", "TTFT", "atency", "req/s", "ITL")

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._names: list[str] | None = None
        self._count = 0
        self._lines = 0

    @property
    def is_open(self) -> bool:
        """True inside a table."""
        return self._names is not None

    def line(self, number: int, text: str) -> None:
        """Look at one line."""
        if self._names is None:
            self._begin(text)
        elif text.count("|") < 1 or self._lines >= MOST_TABLE_LINES:
            self._names = None
        elif not _RULE.match(text):
            self._lines += 1
            self._row(_cells(text))

    def drain(self) -> Iterator[TableBatch]:
        """Rows found since the last call."""
        rows, self._rows = self._rows, []
        if rows:
            yield batch_of("bench_row", rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """A table; None where the text holds none with figures of speed."""
        return SourceFacts(self.kind, "table", is_complete=True) if self._count else None

    def _begin(self, text: str) -> None:
        names = _cells(text) if text.count("|") >= 2 and len(text) < 4000 else []
        if sum(column_of(name) is not None for name in names) >= 2:
            self._names, self._lines = names, 0

    def _row(self, cells: list[str]) -> None:
        row = row_of(zip(self._names or (), cells, strict=False), "table")
        if row is not None:
            self._rows.append({"row_id": self._count, **row})
            self._count += 1


def _cells(text: str) -> list[str]:
    return [cell.strip(" \t*`~") for cell in text.strip().strip("|").split("|")]
