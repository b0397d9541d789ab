"""When a line was logged, and by which replica: the prefixes that engines, Docker and Kubernetes put before it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

YEAR_LEFT_OUT = 2000
LEAST_YEAR, MOST_YEAR = 1970, 2200
"""A clock told nothing else; far outside of them nanoseconds do not fit into 64 bits."""
_HEAD_CHARACTERS = 160

_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<part>\d{1,9}))?"
_STAMPS = (
    # INFO 11-29 12:00:00 [file.py:1], DEBUG 04/20 04:20:30
    re.compile(rf"\b(?:INFO|WARNING|ERROR|DEBUG)\s+(?P<month>\d\d)[-/](?P<day>\d\d) {_TIME}"),
    # [2025-04-22 21:28:53 DP1 TP0], 2024-08-08T07:50:19.123456Z, 2025-01-01 12:00:00,123 - lmdeploy
    re.compile(rf"\b(?P<year>\d{{4}})-(?P<month>\d\d)-(?P<day>\d\d)[T ]{_TIME}"),
    # [01/16/2026-06:20:17] [TRT-LLM] [I]
    re.compile(rf"\[(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>\d{{4}})-{_TIME}"),
    # [14:12:33 TP0]
    re.compile(rf"\[{_TIME}(?: |\])"),
)
_SAME_SECOND = ("Decode batch", "Prefill batch")
_REPLICA = re.compile(r"\bEngine (\d{1,4}):|\bDP(\d{1,4})\b|\[gpu=(\d{1,3})\]|\bEngineCore_DP(\d{1,4})\b")
_RANK = re.compile(r"\b(?:TP|rank=|RANK )(\d{1,4})\b|Worker_TP(\d{1,4})\b|VllmWorker rank=(\d{1,4})")


class Stamp(NamedTuple):
    """Where a line belongs.

    Attributes:
        line_id: place in the text, from 1.
        time_ns: since the epoch, as if the clock were UTC; a year left out is 2000, a date left out its first day.
        replica_id: engine index or data-parallel rank.
        rank: tensor-parallel rank.
    """

    line_id: int
    time_ns: int | None
    replica_id: int | None
    rank: int | None


def stamp_of(number: int, text: str) -> Stamp:
    """The stamp of a line, from its first characters."""
    if text.startswith("[") and (end := text.find("] ", 0, 64)) > 0 and text.startswith(_SAME_SECOND, end + 2):
        return Stamp(number, *_placed(text[: end + 1]))  # many such lines a second
    return Stamp(number, *_found(text[:_HEAD_CHARACTERS]))


def _found(head: str) -> tuple[int | None, int | None, int | None]:
    return _time_ns(head), _first_number(_REPLICA, head), _first_number(_RANK, head)


_placed = lru_cache(maxsize=1024)(_found)


def _time_ns(head: str) -> int | None:
    for form in _STAMPS:
        found = form.search(head)
        if found is not None:
            parts = found.groupdict()
            second = _second(
                parts.get("year"), parts.get("month"), parts.get("day"), found["hour"], found["minute"], found["second"]
            )
            part = parts.get("part")
            return None if second is None else second * 10**9 + (int(part.ljust(9, "0")) if part else 0)
    return None


@lru_cache(maxsize=4096)
def _second(*parts: str | None) -> int | None:
    year, month, day, hour, minute, second = (int(part) if part else None for part in parts)
    try:
        moment = datetime(
            year or YEAR_LEFT_OUT, month or 1, day or 1, hour or 0, minute or 0, min(second or 0, 59), tzinfo=UTC
        )
    except ValueError:  # month 13: no stamp at all
        return None
    return int(moment.timestamp()) if LEAST_YEAR <= moment.year <= MOST_YEAR else None


def _first_number(form: re.Pattern[str], head: str) -> int | None:
    found = form.search(head)
    return None if found is None else next(int(group) for group in found.groups() if group is not None)
