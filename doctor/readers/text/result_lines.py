"""Results told in a line of prose each: `- 1x A100 (TP=1): 0.58 requests/second, 6464 tokens/second`.

Only lines whose beginning names a setting are taken; with one such line there is nothing to compare.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.bench_labels import fields_of, is_baseline
from doctor.readers.bench_rows import row_of
from doctor.readers.text.scanner import batch_of

FIRST_ROW = 2_000_000
"""Behind the rows of tables and results of benchmarks that stand in the same text."""
MOST_LINES = 200
MOST_CHARACTERS = 240
MOST_PARTS = 8
_AMOUNT = re.compile(
    r"(?<![\w.,])(\d[\d,]{0,12}(?:\.\d{1,6})?)\s?(?:(output|total|generation|completion)\s)?(tokens?"
    r"|toks?|t|requests?|reqs?)"
    r"(?:\s?/\s?|\sper\s)(?:s|sec|second)\b",
    re.IGNORECASE,
)
_LEAD = re.compile(r"[\s>*\-•\d.)]{0,12}")
_PAIR = re.compile(
    r"[\s>*\-•]{0,12}([^|:=→]{2,60}|[^|:→]{2,60}?)\s{0,4}(?:\||:|=|->|=>|→)\s{0,4}[~≈]?"
    r"(\d{1,3}m\d{1,2}(?:\.\d{1,3})?(?=s)|\d[\d.,]{0,12})\s?(tok(?:en)?s?/s(?:ec)?|t/s|tps"
    r"|requests?/s(?:ec)?|reqs?/s(?:ec)?|rps|qps|seconds|secs?|s|ms|minutes|mins?)"
    r"(?:\s?\(?(?:p\d\d|mean|avg|median|total|per request)\)?)?[\s.;,*`]{0,4}\Z",
    re.IGNORECASE,
)
"""`TP4 | 6.4 s`, `with --enforce-eager: 11.2 tok/s`: nothing else stands in the line."""
_PARTS = re.compile(r"[.;,](?=\s{1,4}[A-Za-z\d\-`])(?!\s{1,4}\d{1,3}(?:[.,]\d|\s?%))|\.\s{0,4}\Z")
"""Between the results of one line: `eager: 11 tok/s; graphs: 45 tok/s`."""
_BEHIND = re.compile(
    r"[\s>*\-•]{0,12}(?:[^:\n]{0,24}:\s{1,4})?[~≈]?(\d{1,3}m\d{1,2}(?:\.\d{1,3})?(?=s)|\d[\d.,]{0,12})"
    r"\s?(tok(?:en)?s?/s(?:ec)?|t/s|tps|requests?/s(?:ec)?|reqs?/s(?:ec)?|rps|qps|seconds|secs?|s|ms|minutes|mins?)"
    r"\s((?:with|without|w/o|when|after|before|under|using|in|at)\s[^|:→\d]{2,50}|(?:no|plain"
    r"|default)\s[^|:→\d]{2,50})[\s.;,*`]{0,4}\Z",
    re.IGNORECASE,
)
"""`5m29s without nsys`: the label behind its figure."""
_TIMES = frozenset({"seconds", "secs", "sec", "s", "ms", "minutes", "mins", "min"})
_MOST_GAP = 3
_SETTINGS = (
    "TP1", "TP2", "TP4", "TP8", "TP=", "TP ", "tp=", "tp ", "PP1", "PP2", "PP4", "PP8", "PP=", "pp=", "eager",
    "no flag", "--quantization", "aseline", "ithout", "EPLB", "eplb", "nsys", "draft",
)  # fmt: skip
"""Words of a label whose figure may be a time: `6.4 s` alone is no clue."""
_OTHERS = (
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
    clues = ("tokens/s", "tok/s", "token/s", "tokens per second", "t/s", "requests/s", "req/s", *_SETTINGS)

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._is_given = False
        self._list: list[dict[str, Any]] = []
        self._names_setting = False
        self._last_line = 0

    @property
    def is_open(self) -> bool:
        """Never: each line stands alone."""
        return False

    def line(self, number: int, text: str) -> None:
        """Look at one line."""
        if len(text) > MOST_CHARACTERS or len(self._rows) >= MOST_LINES or any(word in text for word in _OTHERS):
            return
        parts = _PARTS.split(text) if _PARTS.search(text) is not None else [text]
        taken = [self._take_pair(number, part) or self._take_behind(number, part) for part in parts[:MOST_PARTS]]
        if any(taken):
            return
        first = _AMOUNT.search(text)
        if first is None or "|" in text:
            return
        settings = list(fields_of(_LEAD.sub("", text[: first.start()], count=1)))
        row = row_of((*settings, *_figures(text)), "line") if any(name != "model" for name, _ in settings) else None
        if row is not None:
            self._rows.append({"row_id": FIRST_ROW + len(self._rows), **row})

    def _take_behind(self, number: int, text: str) -> bool:
        """A figure and what it is of, in the other order."""
        found = _BEHIND.match(text)
        return found is not None and self._take_told(number, found[3], found[1], found[2])

    def _take_pair(self, number: int, text: str) -> bool:
        """A label and one figure and no more; the lines of a list stand together, and some of them name a setting."""
        found = _PAIR.match(text)
        return found is not None and self._take_told(number, found[1], found[2], found[3])

    def _take_told(self, number: int, label: str, amount: str, unit: str) -> bool:
        label = label.strip("\"'`* ")
        settings = list(fields_of(label))
        names_setting = any(name != "model" for name, _ in settings)
        if not names_setting and not is_baseline(label):
            return False
        if number - self._last_line > _MOST_GAP:
            self._forget_list()
        column = (
            "latency"
            if unit.lower() in _TIMES
            else "request throughput"
            if unit.lower()[0] in "rq"
            else "output throughput"
        )
        row = row_of(
            [
                *settings,
                (column, f"{amount}{unit}" if "m" in amount else f"{amount} {unit}" if column == "latency" else amount),
            ],
            "line",
        )
        if row is None:
            return False
        self._last_line = number
        self._list.append(row)
        self._names_setting = self._names_setting or names_setting
        return True

    def _forget_list(self) -> None:
        """Keep a list of two and more, one of which names a setting."""
        if len(self._list) > 1 and self._names_setting:
            room = MOST_LINES - len(self._rows)
            start = FIRST_ROW + len(self._rows)
            self._rows += [{"row_id": start + place, **row} for place, row in enumerate(self._list[:room])]
        self._list, self._names_setting = [], False

    def drain(self) -> Iterator[TableBatch]:
        """All rows at the end: one line alone is no comparison."""
        if self._is_given:
            rows, self._rows = self._rows, []
            if rows:
                yield batch_of("bench_row", rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """The lines; None where fewer than two tell a result."""
        self._forget_list()
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
