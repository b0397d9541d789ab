"""Tables of a process' resident memory over time: comma-separated, as scripts write them beside a server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from doctor.formats.nvidia_smi import quantities as q

_TIMES: Mapping[str, int] = {
    "time": 10**9, "timestamp": 10**9, "date": 10**9, "time_s": 10**9, "seconds": 10**9, "elapsed_s": 10**9,
    "elapsed": 10**9, "time_min": 60 * 10**9, "minutes": 60 * 10**9, "hours": 3600 * 10**9, "time_h": 3600 * 10**9,
}  # fmt: skip
_SIZES: Mapping[str, int] = {
    "rss": 2**10, "rss_kb": 2**10, "rss_kib": 2**10, "vmrss_kb": 2**10, "rss_mb": 2**20, "rss_mib": 2**20,
    "rss_gb": 2**30, "rss_gib": 2**30, "rss_bytes": 1, "resident_bytes": 1,
}  # fmt: skip
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?$")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d:\d\d:\d\d)(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?$")
_MOST_CELLS = 12
_MOST = 2**62


class MemoryTable:
    """One such table; `take` a header, then rows."""

    clues = ("rss", "RSS", "resident_bytes")

    def __init__(self) -> None:
        self._columns: list[str] = []

    @property
    def is_open(self) -> bool:
        """Behind a header."""
        return bool(self._columns)

    def take(self, line: str) -> dict[str, Any] | bool:
        """A row of `host_process`; True for a header; False for anything else, which ends the table."""
        cells = [cell.strip() for cell in line.split(",")]
        if not 2 <= len(cells) <= _MOST_CELLS:
            self._columns = []
            return False
        names = [cell.lower().replace(" ", "_").replace("(", "").replace(")", "") for cell in cells]
        if set(names) & _TIMES.keys() and set(names) & _SIZES.keys():
            self._columns = names
            return True
        row = self._row(cells) if len(cells) == len(self._columns) else None
        if row is None:
            self._columns = []
            return False
        return row

    def _row(self, cells: list[str]) -> dict[str, Any] | None:
        row: dict[str, Any] = {}
        for name, cell in zip(self._columns, cells, strict=True):
            if name in _TIMES:
                row["time_ns"] = time_of(cell, _TIMES[name])
            elif name in _SIZES and _NUMBER.match(cell):
                row["resident_bytes"] = round(min(float(cell) * _SIZES[name], _MOST))
            elif name == "pid":
                row["pid"] = q.whole(cell)
            elif name in ("name", "process", "command"):
                row["name"] = q.program(cell)
        return row if row.get("time_ns") is not None and row.get("resident_bytes") is not None else None


def time_of(text: str, unit_ns: int = 10**9) -> int | None:
    """A moment: a date with its time, or a number of `unit_ns` since any beginning."""
    if (iso := _ISO.match(text)) is not None:
        year, month, day, clock = iso.groups()
        return q.time_ns(f"{year}/{month}/{day} {clock}")
    if _NUMBER.match(text):
        moment = round(float(text) * unit_ns)
        return moment if moment < _MOST else None
    return q.time_ns(text)
