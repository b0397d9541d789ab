"""Latencies of single requests as people list them: `req 5 [11.5 s] 176.8` under a line that says what is what.

Also `idle 12 s -> 181 ms`, where every line says it itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.scanner import batch_of

_MOST_LINE = 300
_MOST_ROWS = 100_000
_FEWEST = 4
"""Fewer are a remark."""
_NS = {"ms": 10**6, "us": 10**3, "s": 10**9, "sec": 10**9, "secs": 10**9, "seconds": 10**9, "min": 60 * 10**9}
_WORD_OF_PAUSE = r"(?:pause|idle|gap|silence|quiet|sleep|slept|wait(?:ed|ing)?|since (?:the )?last)"
_WORD_OF_LATENCY = r"(?:latenc(?:y|ies)|ttft|response time|duration|took|inference time|time per request|took)"
_HEAD = re.compile(rf"(?=.{{0,250}}\b{_WORD_OF_PAUSE})(?=.{{0,250}}\b{_WORD_OF_LATENCY})", re.IGNORECASE)
_UNIT = r"(ms|us|secs|seconds|sec|s|min)\b"
_HEAD_PAUSE = re.compile(rf"\b{_WORD_OF_PAUSE}\w{{0,6}}\b[^,;()\n]{{0,24}}(?:\(\s?{_UNIT}\s?\))?", re.IGNORECASE)
_HEAD_LATENCY = re.compile(rf"\b{_WORD_OF_LATENCY}\b[^,;()\n]{{0,24}}(?:\(\s?{_UNIT}\s?\))?", re.IGNORECASE)
_INDEX = re.compile(
    r"[\s>*\-•]{0,8}(?:(?:req|request|call|query|run|step|inference|prompt|no|nr"
    r"|n)[ .#=:_]{0,3})?#?\d{1,6}(?:[:.)|\]]|(?=\s))",
    re.IGNORECASE,
)
_AMOUNT = re.compile(rf"([\[(]\s?)?(?<![\w.])(\d{{1,9}}(?:\.\d{{1,6}})?)\s?(?:{_UNIT})?", re.IGNORECASE)
_OWN_PAUSE = re.compile(
    rf"\b(?:{_WORD_OF_PAUSE}|after)\b[^\d\n]{{0,16}}(\d{{1,6}}(?:\.\d{{1,6}})?)\s?{_UNIT}", re.IGNORECASE
)
_OWN_LATENCY = re.compile(
    rf"(?:\b{_WORD_OF_LATENCY}\b[^\d\n]{{0,12}}|(?:->|=>|→|:)\s{{0,4}})(\d{{1,9}}(?:\.\d{{1,6}})?)\s?{_UNIT}",
    re.IGNORECASE,
)
_GAP_LINES = 3


class LatencyListScanner:
    """Lists of requests with the pause before each."""

    kind = "bench-table"
    clues = (
        "pause", "Pause", "idle", "Idle", "gap", "silence", "sleep", "slept", "wait", "after ", "since last",
    )  # fmt: skip

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._lines_left = 0
        self._latency_unit = 10**6
        self._pause_unit = 10**9
        self._is_pause_first = True
        self._is_given = False

    @property
    def is_open(self) -> bool:
        """Under a heading, as long as such lines follow."""
        return self._lines_left > 0

    def line(self, number: int, text: str) -> None:
        """A heading, or a request."""
        line = text[:_MOST_LINE]
        row = self._own(line) or (self._listed(line) if self._lines_left > 0 else None)
        if row is not None and len(self._rows) < _MOST_ROWS:
            self._lines_left = _GAP_LINES if self._lines_left > 0 else 0
            self._rows.append({"request_id": len(self._rows), **row})
        elif _HEAD.search(line) is not None and "," not in line.split(" ", 1)[0]:
            self._begin(line)
        else:
            self._lines_left = max(self._lines_left - 1, 0)

    def drain(self) -> Iterator[TableBatch]:
        """All rows at the end: a few lines are no list."""
        if self._is_given and self._rows:
            yield batch_of("request_latency", self._rows, self.kind)
            self._rows = []

    def facts(self) -> SourceFacts | None:
        """The list; None where there are too few."""
        self._is_given = len(self._rows) >= _FEWEST
        return SourceFacts(self.kind, "latency list", is_complete=True) if self._is_given else None

    def _begin(self, line: str) -> None:
        pause, latency = _HEAD_PAUSE.search(line), _HEAD_LATENCY.search(line)
        if pause is not None and latency is not None:
            self._lines_left = _GAP_LINES
            self._pause_unit = _NS[(pause[1] or "s").lower()]
            self._latency_unit = _NS[(latency[1] or "ms").lower()]
            self._is_pause_first = pause.start() < latency.start()

    def _own(self, line: str) -> dict[str, int] | None:
        pause, latency = _OWN_PAUSE.search(line), _OWN_LATENCY.search(line)
        if pause is None or latency is None or latency.start(1) == pause.start(1):
            return None
        return {
            "idle_ns": round(float(pause[1]) * _NS[pause[2].lower()]),
            "latency_ns": round(float(latency[1]) * _NS[latency[2].lower()]),
        }

    def _listed(self, line: str) -> dict[str, int] | None:
        """Two amounts and no third; the one in brackets, or the one in seconds beside milliseconds, is the pause."""
        found = list(_AMOUNT.finditer(_INDEX.sub("", line, count=1)))
        if len(found) != 2:
            return None
        first, second = found
        units = [(one[3] or "").lower() for one in found]
        is_first = self._is_pause_first
        if bool(first[1]) != bool(second[1]):
            is_first = bool(first[1])
        elif units[0] != units[1] and "ms" in units and all(units):
            is_first = units[0] != "ms"
        pause, latency = (first, second) if is_first else (second, first)
        return {
            "idle_ns": round(float(pause[2]) * _NS.get((pause[3] or "").lower(), self._pause_unit)),
            "latency_ns": round(float(latency[2]) * _NS.get((latency[3] or "").lower(), self._latency_unit)),
        }
