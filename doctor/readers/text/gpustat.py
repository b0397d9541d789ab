"""The screen of gpustat: one line a device, with who holds its memory.

Owners and the name of the machine are not kept. A program is named only where the line names owner and program, since
one word alone may be either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.formats.nvidia_smi import quantities as q
from doctor.readers.text.scanner import emptied

_MOST_LINE = 4000
_MOST_PROCESSES = 200
_DEVICE = re.compile(r"\s{0,8}\[(\d{1,3})\]\s(.{1,60}?)\s{0,20}$")
_TEMPERATURE = re.compile(r"(\d{1,3})\s?['°]?\s?C\b")
_SHARE = re.compile(r"(\d{1,3})\s{0,3}%")
_POWER = re.compile(r"(\d{1,4})\s{0,3}/\s{0,3}(\d{1,4})\s{0,3}W\b")
_MEMORY = re.compile(r"\s{0,8}(\d{1,8})\s{0,3}/\s{0,3}(\d{1,8})\s{0,3}MB\b")
_PROCESS = re.compile(r"(?:([^\s:/(]{1,40})(:))?([^\s/(]{1,60})?(?:/(\d{1,10}))?\((\d{1,8}|\?)M\)")
_FEWEST_CELLS = 3


class GpustatScanner:
    """Lines such as `[0] NVIDIA A100 | 65'C, 98 % | 71002 / 81920 MB | python/3099(70000M)`."""

    kind = "nvidia-smi"
    clues = (" MB |", " MB|", "'C,", "°C,")

    def __init__(self) -> None:
        self._rows: dict[str, list[dict[str, Any]]] = {"gpu_sample": [], "gpu_process": []}
        self._look = 0
        self._seen: set[int] = set()
        self._found = False

    @property
    def is_open(self) -> bool:
        """Always false: a device is one line."""
        return False

    def line(self, number: int, text: str) -> None:
        """Look at one line."""
        cells = text[:_MOST_LINE].split("|")
        device = _DEVICE.match(cells[0])
        if device is None or len(cells) < _FEWEST_CELLS:
            return
        place = next((at for at, cell in enumerate(cells) if _MEMORY.match(cell)), None)
        if place is None:
            return
        device_id = int(device[1])
        if device_id in self._seen:
            self._look, self._seen = self._look + 1, set()
        self._seen.add(device_id)
        processes = None if place + 1 == len(cells) else list(_processes(cells[place + 1]))
        where = {"look_id": self._look, "device_id": device_id}
        state = {**_state(cells[1:place]), **_memory(cells[place]), "process_list": _list_of(processes)}
        self._rows["gpu_sample"].append(where | {"name": device[2]} | state)
        self._rows["gpu_process"] += [where | process for process in processes or ()]
        self._found = True

    def drain(self) -> Iterator[TableBatch]:
        """Rows so far."""
        yield from emptied(self._rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """What was found."""
        return SourceFacts(self.kind, "gpustat", is_complete=True) if self._found else None


def _state(cells: list[str]) -> dict[str, Any]:
    """Temperature, busy share and power; of several shares the fan's stands first."""
    text = ",".join(cells)
    temperature, shares, power = _TEMPERATURE.search(text), _SHARE.findall(text), _POWER.search(text)
    return {
        "temperature_celsius": float(temperature[1]) if temperature else None,
        "busy_share": int(shares[-1]) / 100 if shares else None,
        "power_watts": float(power[1]) if power else None,
        "power_limit_watts": float(power[2]) if power else None,
    }


def _memory(cell: str) -> dict[str, int]:
    found = _MEMORY.match(cell)
    assert found is not None
    used, total = (int(amount) * 2**20 for amount in found.groups())
    return {"memory_used_bytes": used, "memory_total_bytes": total, "memory_free_bytes": max(total - used, 0)}


def _processes(cell: str) -> Iterator[dict[str, Any]]:
    for _, colon, word, pid, memory in _PROCESS.findall(cell)[:_MOST_PROCESSES]:
        yield {
            "pid": int(pid) if pid else None,
            "name": q.program(word) if colon and word else None,
            "process_type": "c",
            "memory_bytes": None if memory == "?" else int(memory) * 2**20,
        }


def _list_of(processes: list[dict[str, Any]] | None) -> str | None:
    """An empty list is no proof that nobody runs: gpustat shows the same where it may not see."""
    if processes is None:
        return None
    return "listed" if processes else "empty"
