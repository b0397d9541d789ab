"""Servers that watch their memory themselves and end a request above a limit, such as those on unified memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.oom_message import size_of
from doctor.readers.text.scanner import batch_of

_FIRST_ID = 1_000_000
"""Apart from the failures that an allocator tells in the same text."""
_MOST_EVENTS = 1000
_MOST_LINE = 1000
_SIZE = r"(\d{1,9}(?:\.\d{1,6})?)\s?([KMGT]i?B)\b"
_OVER = re.compile(
    rf"\bmem(?:ory)?\b[^\d]{{0,60}}?{_SIZE}[^\d]{{0,30}}?(?:exceed\w*|over|above|beyond|>=?|/)[^\d]{{0,40}}?{_SIZE}",
    re.IGNORECASE,
)
_ENDED = re.compile(r"\b(?:abort|kill|reject|evict|terminat|stopped|stopping|exceed|fail)\w*", re.IGNORECASE)
_LEVEL = re.compile(rf"\bmem(?:ory)?\b[^\d]{{0,40}}?{_SIZE}", re.IGNORECASE)
_LIMIT_FIRST = re.compile(r"\b(?:limit|ceiling|cap|budget|threshold|maximum)\b", re.IGNORECASE)
_PREFILL = re.compile(r"prefill|prompt processing|\bchunk\b", re.IGNORECASE)
_MOST_LINES_BETWEEN = 12
"""Between a line on a piece of a prefill and the failure in the next one."""
_PHASES = (
    ("prefill", re.compile(r"prefill|prompt processing|chunk", re.I)),
    ("load", re.compile(r"\bload(?:ing)?\b", re.I)),
)
_STAYS = 0.85
"""Of the level at the failure: a cache stays, a peak falls back."""


class MemoryGuardScanner:
    """Lines such as `active memory 42.8 GB exceeds the ceiling of 42.0 GB during prefill, aborting request`."""

    kind = "oom-text"
    clues = ("memory ", "emory:", "emory=", "memory (", " mem ", " mem:", " mem=", "prefill", "Prefill", "chunk ")

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._count = 0
        self._prefill_line = -_MOST_LINES_BETWEEN

    @property
    def is_open(self) -> bool:
        """Always false: everything is said in one line."""
        return False

    def line(self, number: int, text: str) -> None:
        """Look at one line."""
        text = text[:_MOST_LINE]
        if _PREFILL.search(text) is not None:
            self._prefill_line = number
        if ("mem" not in text and "Mem" not in text) or "out of memory" in text or "PyTorch" in text:
            return
        found = _OVER.search(text)
        if found is not None and _ENDED.search(text) and self._count < _MOST_EVENTS:
            self._add(number, text, found)
        elif self._rows and (level := _LEVEL.search(text)) is not None:
            size, last = size_of(level[1], level[2]), self._rows[-1]
            if size is not None and size >= _STAYS * last["allocated_bytes"]:
                last["phase"] = None

    def drain(self) -> Iterator[TableBatch]:
        """Failures so far; the last is kept back, since what memory falls back to is told below it."""
        rows, self._rows = self._rows[:-1], self._rows[-1:]
        if rows:
            yield batch_of("oom_event", rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """What was found."""
        if self._rows:
            self._rows.append({})  # nothing comes below the last
        return SourceFacts(self.kind, None, is_complete=True) if self._count else None

    def _add(self, number: int, text: str, found: re.Match[str]) -> None:
        level, limit = size_of(found[1], found[2]), size_of(found[3], found[4])
        if level is not None and limit is not None and level < limit and _LIMIT_FIRST.search(text[: found.start(1)]):
            level, limit = limit, level
        if level is None or limit is None or level < limit:
            return
        phase = next((name for name, form in _PHASES if form.search(text)), None)
        if phase is None and number - self._prefill_line <= _MOST_LINES_BETWEEN:
            phase = "prefill"
        self._rows.append(
            {
                "oom_event_id": _FIRST_ID + self._count,
                "line_id": number,
                "text_form": "guard",
                "phase": phase,
                "total_bytes": limit,
                "free_bytes": 0,
                "allocated_bytes": level,
            }
        )
        self._count += 1
