"""How long each rank or shard of one run took: `rank 7: 1250 requests, mean prompt 212 tokens, 4m01s`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.scanner import batch_of

ROW = 4_000_000
TOOL = "ranks"
_MOST_LINE = 300
_MOST_ROWS = 4096
_NAMED = re.compile(
    r"[\s>*\-•|\[(]{0,8}(?:dp[ _-]?)?(?:rank|worker|shard|replica|process|gpu"
    r"|split)[ _#:=-]{0,3}(\d{1,4})\b(?!\s?[%/])",
    re.IGNORECASE,
)
_CLOCK = re.compile(
    r"(?<![\w:.])(?:(?:(\d{1,3})\s?h\s?)?(\d{1,4})\s?m(?:in)?\s?(\d{1,2}(?:\.\d{1,3})?)\s?s(?:ec)?"
    r"|(\d{1,3}):([0-5]\d):([0-5]\d)|([0-5]?\d):([0-5]\d))(?![\w:])",
    re.IGNORECASE,
)
_PLAIN = re.compile(
    r"(?<![\w.])(\d{1,6}(?:\.\d{1,3})?)\s?(minutes|mins|min|seconds|secs|sec|hours|h|s)\b(?!\s?/)", re.IGNORECASE
)
_SCALES = {"h": 3600, "hours": 3600, "min": 60, "mins": 60, "minutes": 60}
_REQUESTS = re.compile(
    r"(?<![\w.,])(\d{1,9})\s(?:requests|reqs?|prompts|samples|examples|items|docs|documents|sequences)\b", re.IGNORECASE
)
_TOKENS = re.compile(
    r"\b(?:mean|avg|average|median)\b[^\d\n,;]{0,24}(\d{1,9}(?:\.\d{1,3})?)"
    r"|(?<![\w.,])(\d{1,9}(?:\.\d{1,3})?)\s(?:prompt |input |mean |avg )?tok(?:en)?s?\b(?!\s?/)",
    re.IGNORECASE,
)
_LEAST_NS = 10 * 10**9
"""Shorter ones are steps, whose ranks meet in each."""


class RankTimesScanner:
    """A line a rank, with the time that its share took."""

    kind = "bench-table"
    clues = ("rank", "Rank", "worker", "Worker", "shard", "Shard", "replica", "GPU ", "gpu ", "split")

    def __init__(self) -> None:
        self._rows: dict[int, dict[str, Any]] = {}
        self._is_given = False

    @property
    def is_open(self) -> bool:
        """Never: each line names its rank."""
        return False

    def line(self, number: int, text: str) -> None:
        """Take the figures of one rank."""
        line = text[:_MOST_LINE]
        named = _NAMED.match(line)
        if named is None or len(self._rows) >= _MOST_ROWS:
            return
        rest = line[named.end() :]
        took = _took_ns(rest)
        if took is None or took < _LEAST_NS:
            return
        requests, tokens = _REQUESTS.search(rest), _TOKENS.search(rest)
        row = {"latency_ns": took, "condition": f'{{"rank": "{named[1]}"}}'}
        row["completed_count"] = None if requests is None else float(requests[1])
        row["prompt_token_count"] = None if tokens is None else float(tokens[1] or tokens[2])
        self._rows.setdefault(int(named[1]), row)

    def drain(self) -> Iterator[TableBatch]:
        """All ranks at the end."""
        if self._is_given:
            rows, self._rows = self._rows, {}
            yield batch_of(
                "bench_row",
                [{"row_id": ROW + place, "tool": TOOL, **row} for place, row in enumerate(rows.values())],
                self.kind,
            )

    def facts(self) -> SourceFacts | None:
        """The ranks; None where there are fewer than two."""
        self._is_given = len(self._rows) > 1
        return SourceFacts(self.kind, "times of ranks", is_complete=True) if self._is_given else None


def _took_ns(text: str) -> int | None:
    """The time in a line, as a clock or as an amount; the last one where there are several."""
    if clocks := list(_CLOCK.finditer(text)):
        clock = clocks[-1]
        hour, minute = clock[1] or clock[4] or 0, clock[2] or clock[5] or clock[7] or 0
        second = clock[3] or clock[6] or clock[8] or 0
        return round((int(hour) * 3600 + int(minute) * 60 + float(second)) * 10**9)
    plain = list(_PLAIN.finditer(text))
    return round(float(plain[-1][1]) * _SCALES.get(plain[-1][2].lower(), 1) * 10**9) if plain else None
