"""The links of graphics devices in `lspci -vv`: what the device could do (LnkCap) and what was trained (LnkSta)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.formats.nvidia_smi import quantities as q
from doctor.readers.text.scanner import batch_of

_DEVICE = re.compile(
    r"(?:^|\s)((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ([A-Z][^:]{2,60}): (.{1,200})", re.IGNORECASE
)
_GRAPHICS = re.compile(r"VGA compatible controller|3D controller|Display controller|Processing accelerators")
_NVIDIA = re.compile(r"NVIDIA Corporation \S{2,20} \[([^\]]{2,60})\]")
_LINK = re.compile(r"(LnkCap|LnkSta):\s.{0,40}?Speed (\d{1,2}(?:\.\d)?)GT/s.{0,40}?Width x(\d{1,2})\b")
_GENERATIONS = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}
_MOST_LINE = 400
_MOST_DEVICES = 256


class LspciScanner:
    """Graphics devices of `lspci -vv`, numbered in their order."""

    kind = "topology"
    clues = ("VGA compatible controller", "3D controller", "LnkCap:", "LnkSta:")

    def __init__(self) -> None:
        self._devices: list[dict[str, Any]] = []
        self._device: dict[str, Any] | None = None
        self._is_over = False

    @property
    def is_open(self) -> bool:
        """Within the block of a graphics device: the next block ends it."""
        return self._device is not None

    def line(self, number: int, text: str) -> None:
        """The head of a device, or one of its links."""
        line = text[:_MOST_LINE]
        if (head := _DEVICE.search(line)) is not None and not line.startswith("\t"):
            self._begin(*head.groups())
        elif self._device is not None and (link := _LINK.search(line)) is not None:
            generation, lanes = _GENERATIONS.get(link.group(2).removesuffix(".0")), int(link.group(3))
            names = ("pcie_generation_max", "pcie_lanes_max_count")
            if link.group(1) == "LnkSta":
                names = ("pcie_generation", "pcie_lanes_count")
            if names[1] not in self._device and generation is not None and 0 < lanes <= 32:
                self._device |= {names[0]: generation, names[1]: lanes}

    def drain(self) -> Iterator[TableBatch]:
        """Devices whose link was told, once the text is over."""
        if self._is_over and (told := self._told()):
            yield batch_of("gpu_sample", told, self.kind)
            self._devices = []

    def facts(self) -> SourceFacts | None:
        """What was found."""
        self._device, self._is_over = None, True
        return SourceFacts(self.kind, "lspci", is_complete=True) if self._told() else None

    def _begin(self, bus: str, sort: str, words: str) -> None:
        self._device = None
        if _GRAPHICS.search(sort) is None or len(self._devices) >= _MOST_DEVICES:
            return
        product = _NVIDIA.search(words)
        if product is None:
            return
        self._device = {
            "look_id": 0,
            "device_id": len(self._devices),
            "pci_bus_id": q.bus_id(bus),
            "name": f"NVIDIA {product.group(1)}",
        }
        self._devices.append(self._device)

    def _told(self) -> list[dict[str, Any]]:
        return [device for device in self._devices if "pcie_lanes_count" in device]
