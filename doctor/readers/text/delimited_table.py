"""Tables of benchmark results within a text, cells parted by commas, tabs or spaces, behind a shell's commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.bench_rows import is_header, row_of
from doctor.readers.text.markdown_table import SPEED_CLUES
from doctor.readers.text.scanner import batch_of

_MOST_LINE = 2000
_MOST_CELLS = 40
_MOST_ROWS = 5000
_WIDE = re.compile(r"\t|\s{2,}")
_RULE = re.compile(r"[\s=+-]{3,}\Z")
_STATED = re.compile(r"\d[.:]\d|\d{4}|[=:]\s?\d")
"""Times, amounts and settings: a line of a log, not of headings."""
_REQUEST_LOG = re.compile(
    r"(?:^|[,;\t ])(?:idle|pause|silence|gap|timestamp|time|start(?:_time)?|sent_at|date)(?:_\w{1,12})?(?:[,;\t ]|$)",
    re.I,
)
"""Such a column makes a table one of single requests: `latency_table`."""


class DelimitedTableScanner:
    """Lines of as many cells as the line of headings above them."""

    kind = "bench-table"
    clues = (*SPEED_CLUES, "tok_s", "tokens_per", "tpot", "ttft", "rps", "RPS", "qps", "QPS", "_ms", "req_")

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._names: list[str] = []
        self._delimiter: str | None = None
        self._table = 0
        self._count = 0

    @property
    def is_open(self) -> bool:
        """True inside a table."""
        return bool(self._names)

    def line(self, number: int, text: str) -> None:
        """Look at one line."""
        if not self._names:
            self._begin(text)
        elif not _RULE.match(text[:_MOST_LINE]):
            cells = _cells(text, self._delimiter)
            if len(cells) == len(self._names) and self._count < _MOST_ROWS:
                self._row(cells)
            else:
                self._names = []
                self._begin(text)

    def drain(self) -> Iterator[TableBatch]:
        """Rows found since the last call."""
        rows, self._rows = self._rows, []
        if rows:
            yield batch_of("bench_row", rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """A table; None where the text holds none with figures of speed."""
        self._names = []
        return SourceFacts(self.kind, "table", is_complete=True) if self._count else None

    def _begin(self, text: str) -> None:
        """A line of headings, whatever parts them; a table that has bars is another reader's."""
        if len(text) > _MOST_LINE or "|" in text or _STATED.search(text) or _REQUEST_LOG.search(text):
            return
        for delimiter in (",", ";", None):
            names = _cells(text, delimiter)
            if 2 <= len(names) <= _MOST_CELLS and not any(_is_number(name) for name in names) and is_header(names):
                self._names, self._delimiter = names, delimiter
                self._table += 1
                return

    def _row(self, cells: list[str]) -> None:
        fields: list[tuple[str, Any]] = list(zip(self._names, cells, strict=True))
        row = row_of([*fields, ("table", str(self._table))] if self._table > 1 else fields, "table")
        if row is not None:
            self._rows.append({"row_id": self._count, **row})
            self._count += 1


def _cells(text: str, delimiter: str | None) -> list[str]:
    """The cells of a line; without a delimiter at tabs and wide gaps, or at every space where there are none."""
    if delimiter is not None:
        return [cell.strip().strip('"') for cell in text.split(delimiter)]
    plain = text.strip()
    wide = _WIDE.split(plain)
    return wide if len(wide) > 1 else plain.split(" ")


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() and cell.replace(".", "", 1).isdigit()
