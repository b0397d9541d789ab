"""The running tables of `nvidia-smi dmon` and `nvidia-smi pmon`: a header that names columns, then a line a device."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.formats.nvidia_smi import quantities as q
from doctor.formats.nvidia_smi.fields import CELSIUS, WATTS
from doctor.readers.text.scanner import emptied

_DEVICE_COLUMNS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "gpu": ("device_id", q.small),
    "pwr": ("power_watts", WATTS),
    "gtemp": ("temperature_celsius", CELSIUS),
    "temp": ("temperature_celsius", CELSIUS),
    "sm": ("busy_share", q.share),
    "mem": ("memory_busy_share", q.share),
    "mclk": ("memory_clock_hz", q.clock_hz),
    "pclk": ("sm_clock_hz", q.clock_hz),
    "tviol": ("is_throttled_sw_thermal", {"0": False, "1": True}.get),
    "pviol": ("is_throttled_power_cap", lambda text: None if q.whole(text) is None else q.whole(text) != 0),
    "fb": ("memory_used_bytes", q.size_bytes),
}
_PROCESS_COLUMNS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "gpu": ("device_id", q.small),
    "pid": ("pid", q.whole),
    "type": ("process_type", lambda text: text.lower() if text.lower() in ("c", "g", "c+g", "m+c") else None),
    "sm": ("sm_share", q.share),
    "fb": ("memory_bytes", q.size_bytes),
    "command": ("name", q.program),
}
_MOST_LINE = 400
_DATE = re.compile(r"\d{8}$")
_CLOCK = re.compile(r"\d\d:\d\d:\d\d$")


class NvidiaSmiMonitorScanner:
    """Samples of devices (`dmon`) and of processes (`pmon`)."""

    kind = "nvidia-smi"
    clues = ("# gpu ", "#gpu ", "#Date ", "# Date ")

    def __init__(self) -> None:
        self._rows: dict[str, list[dict[str, Any]]] = {"gpu_sample": [], "gpu_process": []}
        self._columns: list[str] = []
        self._is_of_processes = False
        self._look = -1
        self._last_device = -1
        self._date: str | None = None
        self._found = False

    @property
    def is_open(self) -> bool:
        """Behind a header."""
        return bool(self._columns)

    def line(self, number: int, text: str) -> None:
        """A header, a line of units, or a sample; anything else ends the table."""
        words = text[:_MOST_LINE].split()
        if words and words[0].startswith("#"):
            self._header(words)
        elif self._columns and words and not self._sample(words):
            self._columns = []

    def drain(self) -> Iterator[TableBatch]:
        """Samples so far."""
        yield from emptied(self._rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """What was found."""
        return SourceFacts(self.kind, "nvidia-smi dmon or pmon", is_complete=True) if self._found else None

    def _header(self, words: list[str]) -> None:
        names = [name for name in (words[0][1:], *words[1:]) if name]
        lowered = [name.lower() for name in names]
        if "gpu" in lowered and ("pid" in lowered or "pwr" in lowered or "sm" in lowered or "fb" in lowered):
            self._columns = lowered
            self._is_of_processes = "pid" in lowered

    def _sample(self, words: list[str]) -> bool:
        known = _PROCESS_COLUMNS if self._is_of_processes else _DEVICE_COLUMNS
        row: dict[str, Any] = {}
        stamp = ["", ""]
        for column, word in zip(self._columns, words, strict=False):
            if column == "date":
                stamp[0] = word if _DATE.match(word) else ""
            elif column == "time":
                stamp[1] = word if _CLOCK.match(word) else ""
            elif column in known:
                name, read = known[column]
                row[name] = read(word)
        device_id = row.get("device_id")
        if device_id is None or (self._is_of_processes and len(words) < 3):
            return False
        if not self._is_of_processes and len(words) < len(self._columns):
            return False
        self._place(row, device_id, " ".join(stamp).strip())
        return True

    def _place(self, row: dict[str, Any], device_id: int, stamp: str) -> None:
        """A device that comes again begins a new look."""
        if device_id <= self._last_device and not (self._is_of_processes and device_id == self._last_device):
            self._look += 1
        self._look = max(self._look, 0)
        self._last_device = device_id
        self._found = True
        row |= {"look_id": self._look, "time_ns": q.time_ns(stamp) if stamp else None}
        if not self._is_of_processes:
            self._rows["gpu_sample"].append(row)
        elif row.get("pid") is not None:
            self._rows["gpu_process"].append(row)
