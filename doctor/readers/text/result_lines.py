"""Results told in a line of prose each: `- 1x A100 (TP=1): 0.58 requests/second, 6464 tokens/second`.

Only lines whose beginning names a setting are taken; with one such line there is nothing to compare.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.bench_labels import fields_of
from doctor.readers.bench_rows import row_of
from doctor.readers.text.scanner import batch_of

FIRST_ROW = 2_000_000
"""Behind the rows of tables and results of benchmarks that stand in the same text."""
MOST_LINES = 200
MOST_CHARACTERS = 240
_AMOUNT = re.compile(
    r"(?<![\w.,])(\d[\d,]{0,12}(?:\.\d{1,6})?)\s?(?:(output|total|generation|completion)\s)?(tokens?|toks?|t|requests?|reqs?)"
    r"(?:\s?/\s?|\sper\s)(?:s|sec|second)\b",
    re.IGNORECASE,
)
_LEAD = re.compile(r"[\s>*\-•\d.)]{0,12}")
_OTHERS = (
    "|",
    "Avg prompt throughput",
    "throughput (token/s)",
    "Throughput:",
    "thr (in/out)",
    "SpecDecoding",
    "est. speed",
)


class ResultLinesScanner:
    """Lines of a setting, a colon and figures of speed."""

    kind = "bench-table"
    clues = ("tokens/s", "tok/s", "token/s", "tokens per second", "t/s", "requests/s", "req/s")

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._is_given = False

    @property
    def is_open(self) -> bool:
        """Never: each line stands alone."""
        return False

    def line(self, number: int, text: str) -> None:
        """Look at one line."""
        if len(text) > MOST_CHARACTERS or len(self._rows) >= MOST_LINES or any(word in text for word in _OTHERS):
            return
        first = _AMOUNT.search(text)
        if first is None:
            return
        settings = list(fields_of(_LEAD.sub("", text[: first.start()], count=1)))
        row = row_of((*settings, *_figures(text)), "line") if any(name != "model" for name, _ in settings) else None
        if row is not None:
            self._rows.append({"row_id": FIRST_ROW + len(self._rows), **row})

    def drain(self) -> Iterator[TableBatch]:
        """All rows at the end: one line alone is no comparison."""
        if self._is_given:
            rows, self._rows = self._rows, []
            if rows:
                yield batch_of("bench_row", rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """The lines; None where fewer than two tell a result."""
        self._is_given = len(self._rows) > 1
        return SourceFacts(self.kind, "lines", is_complete=True) if self._is_given else None


def _figures(text: str) -> Iterator[tuple[str, str]]:
    for amount, what, unit in _AMOUNT.findall(text):
        if unit.lower().startswith("r"):
            yield "request throughput", amount
        elif what.lower() == "total":
            yield "total token throughput", amount
        else:
            yield "output throughput", amount
            return
