"""The list of devices and slices that `nvidia-smi -L` prints; identifiers are not kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.formats.nvidia_smi import quantities as q
from doctor.readers.text.scanner import batch_of

_DEVICE = re.compile(r"\s{0,8}GPU (\d{1,3}): (\S.{0,60}?) \(UUID: ")
_SLICE = re.compile(r"\s{0,8}MIG (?:\dc\.)?(\d)g\.(\d{1,4})gb\S{0,8}\s{1,20}Device\s{1,8}(\d{1,3}): \(UUID: MIG-")
_MOST_LINE = 400
_MOST_DEVICES = 1024


class NvidiaSmiListScanner:
    """Devices with their names, and the slices of divided ones."""

    kind = "nvidia-smi"
    clues = ("(UUID: GPU-", "(UUID: MIG-")
    is_open = False

    def __init__(self) -> None:
        self._devices: list[dict[str, Any]] = []
        self._slices: list[dict[str, Any]] = []
        self._is_over = False

    def line(self, number: int, text: str) -> None:
        """A device, or a slice of the device above it."""
        text = text[:_MOST_LINE]
        if len(self._devices) >= _MOST_DEVICES or len(self._slices) >= _MOST_DEVICES:
            return
        if (device := _DEVICE.match(text)) is not None:
            self._devices.append({"device_id": int(device.group(1)), "name": q.word(device.group(2))})
        elif (part := _SLICE.match(text)) is not None and self._devices:
            self._devices[-1]["is_mig_on"] = True
            device_id = self._devices[-1]["device_id"]
            gigabytes, place = int(part.group(2)), int(part.group(3))
            self._slices.append(
                {"device_id": device_id, "mig_device_id": place, "memory_total_bytes": gigabytes * 2**30, "look_id": 0}
            )

    def drain(self) -> Iterator[TableBatch]:
        """Everything, once the text is over: a device's slices stand behind it."""
        if not self._is_over:
            return
        for table, rows in (("gpu_sample", self._devices), ("mig_instance", self._slices)):
            if rows:
                yield batch_of(table, rows, self.kind)
        self._devices, self._slices = [], []

    def facts(self) -> SourceFacts | None:
        """What was found."""
        self._is_over = True
        return SourceFacts(self.kind, "nvidia-smi -L", is_complete=True) if self._devices else None
