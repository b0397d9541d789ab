"""Tables of benchmark results as people paste them: `| batch | tok/s |`, a run a line, a column or a cell.

Runs of two tables of one text are not compared: what was the same within each is told nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.bench_columns import column_of, word_column
from doctor.readers.bench_labels import fields_of, is_label
from doctor.readers.bench_rows import row_of
from doctor.readers.text.scanner import batch_of

MOST_TABLE_LINES = 2000
MOST_TURNED_LINES = 60
MOST_TURNED_CELLS = 24
MOST_LEAD_LINES = 16
SPEED_CLUES = (
    "tok/s", "tokens/s", "tok/sec", "hroughput", "TPOT", "TTFT", "atency", "req/s", "reqs/s", "requests/s", "ITL",
    "er second",
    "lapsed", "nsys", "profil", "Wall", "wall", "RPS", "QPS", "esponse time", "ompletion time",
)  # fmt: skip
"""Words of a line of headings, or of a first cell, that a figure of speed stands under or beside."""
_LETTER = re.compile(r"[A-Za-z]")
_RULE = re.compile(r"\s{0,8}\|?[\s|:+\-]{3,4000}\Z")
_QUOTE = re.compile(r"\A\s{0,8}(?:>\s?){1,8}")
_SPEED = re.compile(r"decode|decoding|generation|generated|output|throughput")
_BREAK = re.compile(r"<br\s?/?>|; ")
_CLOCK = re.compile(r"\d{1,4} ?m(?:in)? ?\d{1,2}(?:\.\d{1,6})? ?s?(?:ec)?")
_TAG = re.compile(r"<[^<>]{0,80}>")
_UNIT_COLUMNS = (("tok", "output tok/s"), ("req", "request throughput"), ("s", "latency"))
_TOKEN_RATE = re.compile(r"\d\s{0,4}tok(?:en)?s?/s", re.IGNORECASE)


class MarkdownTableScanner:
    """Lines of cells under a line of headings: either the headings name figures of speed, or the first cells do."""

    kind = "bench-table"
    clues = SPEED_CLUES
    lead_lines = MOST_LEAD_LINES

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._names: list[str] | None = None
        self._turned: list[list[str]] | None = None
        self._is_by_cell = False
        self._wants_rule = False
        self._table = 0
        self._count = 0
        self._lines = 0
        self._look_back: Callable[[], Sequence[str]] = tuple

    @property
    def is_open(self) -> bool:
        """True inside a table."""
        return self._names is not None or self._turned is not None

    def lead(self, look_back: Callable[[], Sequence[str]]) -> None:
        """Remember how to see the lines above."""
        self._look_back = look_back

    def line(self, number: int, text: str) -> None:
        """Look at one line."""
        text = _QUOTE.sub("", text, count=1) if ">" in text[:16] else text
        if self._wants_rule:
            self._wants_rule = False
            if not ("|" in text and _RULE.match(text)):
                self._names, self._turned = None, None
        if not self.is_open:
            self._begin(text)
        elif text.count("|") < 1 or self._lines >= (MOST_TURNED_LINES if self._names is None else MOST_TABLE_LINES):
            self._close()
        elif not _RULE.match(text):
            self._lines += 1
            if self._names is not None:
                self._row(zip(self._names, _cells(text), strict=False))
            elif self._turned is not None:
                self._turned.append(_cells(text)[:MOST_TURNED_CELLS])

    def drain(self) -> Iterator[TableBatch]:
        """Rows found since the last call."""
        rows, self._rows = self._rows, []
        if rows:
            yield batch_of("bench_row", rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """A table; None where the text holds none with figures of speed."""
        self._close()
        return SourceFacts(self.kind, "table", is_complete=True) if self._count else None

    def _begin(self, text: str) -> None:
        is_two = text.count("|") == 1 and not text.strip().startswith("|")
        names = _cells(text) if (text.count("|") >= 2 or is_two) and len(text) < 4000 else []
        self._lines = 0
        self._wants_rule = is_two  # two cells without bars around them are a table above a rule only
        known = sum(column_of(name) is not None for name in names)
        self._is_by_cell = False
        is_varied = any(word_column(name) is not None or (_LETTER.search(name) and is_label(name)) for name in names)
        if known >= 2 or (known == 1 and is_varied):
            self._names, self._table = names, self._table + 1
        elif len(names) >= 2:
            above = [line for line in _unquoted_table(self._look_back()) if not _RULE.match(line)]
            lines = [_cells(line)[:MOST_TURNED_CELLS] for line in (*above, text)]
            self._is_by_cell = sum(1 for name in lines[0] if _is_run(name)) >= 2
            if self._is_by_cell or column_of(_figure_name(names)) is not None:
                self._turned, self._table = lines, self._table + 1

    def _close(self) -> None:
        """A run a cell, where headings are labels of runs; a run a column, where first cells name two figures."""
        lines, self._turned, self._names = self._turned or [], None, None
        if lines and self._is_by_cell and not any(column_of(line[0]) for line in lines[1:]):
            self._close_cells(lines)
            return
        known = [line for line in lines if column_of(_figure_name(line)) is not None]
        if len(known) < 2:
            return
        for place, label in enumerate(lines[0][1:], start=1):
            cells = [(_figure_name(line), line[place]) for line in lines[1:] if len(line) > place]
            self._row([("label", label), *cells])

    def _close_cells(self, lines: list[list[str]]) -> None:
        """Each cell under a label is a run, with its figures told apart by their units."""
        names = lines[0]
        for line in lines[1:]:
            beside = [(name, cell) for name, cell in zip(names, line, strict=False) if not _is_run(name)]
            for name, cell in zip(names, line, strict=False):
                if _is_run(name):
                    self._row([*beside, ("label", name), *_amounts(cell)])

    def _row(self, fields: Iterable[tuple[str, Any]]) -> None:
        numbered = [*fields, ("table", str(self._table))] if self._table > 1 else fields
        row = row_of(numbered, "table")
        if row is not None:
            self._rows.append({"row_id": self._count, **row})
            self._count += 1


def _is_run(name: str) -> bool:
    """A heading such as `TP=4` or `no speculation`, in place of the name of a column."""
    return column_of(name) is None and next(fields_of(name), None) is not None


def _amounts(cell: str) -> Iterator[tuple[str, str]]:
    """`5.50s<br/>36.2tok/s` as columns and values."""
    for part in _BREAK.split(cell):
        plain = _TAG.sub("", part).strip()
        if _CLOCK.fullmatch(plain) is not None:
            yield "latency", plain
            continue
        unit = plain.lstrip("0123456789., ").lower()
        for known, column in _UNIT_COLUMNS:
            if unit.startswith(known) or (known == "s" and unit == "ms"):
                yield column, re.sub(r"(?<=[\d.])(?=[a-z])", " ", plain)
                break


def _unquoted_table(lines: Sequence[str]) -> list[str]:
    """The lines of cells that stand directly above, without quotation marks."""
    plain = [_QUOTE.sub("", line, count=1) for line in lines]
    start = max((place + 1 for place, line in enumerate(plain) if "|" not in line), default=0)
    return plain[start:]


def _figure_name(line: list[str]) -> str:
    """The first cell; where the unit stands beside the number only, with that unit."""
    name = line[0] if line else ""
    if column_of(name) is None and _SPEED.search(name.lower()) and any(_TOKEN_RATE.search(cell) for cell in line[1:]):
        return "output tok/s"
    return name


def _cells(text: str) -> list[str]:
    body = text.strip()
    inner = body.removeprefix("|").removesuffix("|")
    return [re.sub(r"[*`~]", "", cell).strip() for cell in inner.split("|")]
