"""The long report `nvidia-smi -q` as text: an indented tree of names and values, one block a device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.formats.nvidia_smi import quantities as q
from doctor.formats.nvidia_smi import report
from doctor.formats.nvidia_smi.device_report import DeviceReport
from doctor.readers.text.scanner import emptied

_DEVICE = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_EXTRACTS = ("Clocks Throttle Reasons", "Clocks Event Reasons")
"""Sections that people cut out with grep: the device is then not named."""
_MOST_LINE = 400
_MOST_DEPTH = 12
_PATIENCE = 5


class NvidiaSmiQueryScanner:
    """One or more long reports within a text."""

    kind = "nvidia-smi"
    clues = ("NVSMI LOG", "GPU 0000", "Attached GPUs", "Driver Version     ", "Timestamp      ", *_EXTRACTS)

    def __init__(self) -> None:
        self._rows: dict[str, list[dict[str, Any]]] = {"gpu_sample": [], "gpu_process": [], "mig_instance": []}
        self._look = -1
        self._shared: dict[str, Any] = {}
        self._report: DeviceReport | None = None
        self._bus: str | None = None
        self._seen: list[str] = []
        self._path: list[tuple[int, str]] = []
        self._strange = 0
        self._open = False

    @property
    def is_open(self) -> bool:
        """Inside a report."""
        return self._open

    def line(self, number: int, text: str) -> None:
        """Take a line of a report; other text ends it."""
        text = text[:_MOST_LINE]
        bare = text.strip()
        device = _DEVICE.match(bare)
        if "NVSMI LOG" in bare:
            self._begin_look()
        elif device is not None:
            self._begin_device(device.group(1))
        elif not bare:
            return
        elif self._report is None and bare in _EXTRACTS and text[:1].isspace():
            self._begin_extract()
            self._body_line(text, bare)
        elif self._report is None:
            self._head_line(bare)
        else:
            self._body_line(text, bare)

    def drain(self) -> Iterator[TableBatch]:
        """Rows of every device whose report has ended."""
        yield from emptied(self._rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """Close the last device."""
        self._close_device()
        if self._look < 0:
            return None
        version = self._shared.get("driver_version")
        return SourceFacts(self.kind, f"nvidia-smi of driver {version}" if version else "nvidia-smi", is_complete=True)

    def _begin_look(self) -> None:
        self._close_device()
        self._seen, self._shared = [], {}
        self._open, self._strange = True, 0

    def _begin_device(self, bus: str) -> None:
        self._close_device()
        self._bus = q.bus_id(bus)
        if self._bus is None:
            return
        if not self._seen or self._bus in self._seen:
            self._look += 1
            self._seen = []
        self._seen.append(self._bus)
        self._report, self._path = DeviceReport(), []
        self._open, self._strange = True, 0

    def _begin_extract(self) -> None:
        """A section without its device: the next of them, as far as can be told."""
        self._bus = None
        self._look = max(self._look, 0)
        self._seen.append(f"unnamed {len(self._seen)}")
        self._report, self._path = DeviceReport(), []
        self._open, self._strange = True, 0

    def _head_line(self, bare: str) -> None:
        name, colon, value = bare.partition(":")
        head = {"Driver Version": "driver_version", "CUDA Version": "cuda_version"}.get(name.strip())
        if not colon or (head is None and name.strip() not in ("Timestamp", "Attached GPUs")):
            self._strange += 1
            self._open = self._open and self._strange <= _PATIENCE
            return
        self._open, self._strange = True, 0
        if head is not None:
            self._shared[head] = q.word(value)
        elif name.strip() == "Timestamp":
            self._shared["time_ns"] = q.time_ns(" ".join(value.split()))

    def _body_line(self, text: str, bare: str) -> None:
        assert self._report is not None
        indent = len(text) - len(text.lstrip(" \t"))
        if indent == 0:
            self._strange += 1
            if self._strange > _PATIENCE:
                self._close_device()
                self._open = False
            return
        self._strange = 0
        name, colon, value = bare.partition(" : ")
        if not colon and bare.endswith(":"):
            name, colon = bare[:-1], ":"
        while self._path and self._path[-1][0] >= indent:
            self._path.pop()
        part = report.part(name)
        if not part or len(self._path) >= _MOST_DEPTH:
            return
        path = (*(above for _, above in self._path), part)
        if colon:
            self._report.leaf(path, value)
        else:
            self._report.section(path)
        self._path.append((indent, part))

    def _close_device(self) -> None:
        if self._report is None:
            return
        place = {"look_id": self._look, "time_ns": self._shared.get("time_ns"), "device_id": len(self._seen) - 1}
        figures = {**self._report.figures(), **self._shared, **place}
        self._rows["gpu_sample"].append(figures | {"pci_bus_id": self._bus})
        self._rows["gpu_process"] += [row | place for row in self._report.processes()]
        self._rows["mig_instance"] += [row | place for row in self._report.instances()]
        self._report = None
