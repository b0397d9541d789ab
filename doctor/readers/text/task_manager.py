"""What Windows' Task Manager says of a GPU's memory: dedicated, and shared where what does not fit is put."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.oom_message import size_of
from doctor.readers.text.scanner import batch_of

_NUMBER = r"(\d{1,4}(?:[.,]\d{1,3})?)"
_AMOUNTS = re.compile(
    r"(Dedicated|Shared) (?:GPU|video) memory(?: usage)?\s{0,4}[:=]?\s{0,8}"
    rf"{_NUMBER}\s?(GB|MB)?\s?(?:/|of)\s?{_NUMBER}\s?(GB|MB)",
    re.IGNORECASE,
)
_SPILLED_BYTES = 2**30
"""Desktops keep some hundred MB of shared memory at any time."""


class TaskManagerScanner:
    """`Dedicated GPU memory usage: 11.8 / 12.0 GB` and `Shared GPU memory usage: 6.3 / 15.9 GB`."""

    kind = "nvidia-smi"
    clues = ("edicated GPU memory", "hared GPU memory", "edicated video memory", "hared video memory")

    def __init__(self) -> None:
        self._looks: list[dict[str, int]] = []
        self._is_given = False

    @property
    def is_open(self) -> bool:
        """Always false: a kind of memory is one line."""
        return False

    def line(self, number: int, text: str) -> None:
        """Look at one line."""
        for name, used, used_unit, total, unit in _AMOUNTS.findall(text[:400]):
            kind = name.lower()
            if not self._looks or kind in self._looks[-1]:
                self._looks.append({})
            self._looks[-1][kind] = size_of(used.replace(",", "."), used_unit or unit) or 0
            self._looks[-1][f"{kind}_total"] = size_of(total.replace(",", "."), unit) or 0

    def drain(self) -> Iterator[TableBatch]:
        """Looks, once the text has ended: shared memory stands below dedicated."""
        rows = [row for place, look in enumerate(self._looks) if (row := _row(place, look))]
        if self._is_given and rows:
            yield batch_of("gpu_sample", rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """What was found."""
        self._is_given = any("dedicated" in look for look in self._looks)
        return SourceFacts(self.kind, "Task Manager", is_complete=True) if self._is_given else None


def _row(place: int, look: dict[str, int]) -> dict[str, Any] | None:
    """A look at the device; only where memory was put into the host's is the driver's model a matter."""
    if "dedicated" not in look:
        return None
    is_spilled = look.get("shared", 0) >= _SPILLED_BYTES
    return {
        "look_id": place,
        "device_id": 0,
        "memory_used_bytes": look["dedicated"],
        "memory_total_bytes": look["dedicated_total"],
        "driver_model": "wddm" if is_spilled else None,
    }
