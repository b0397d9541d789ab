"""Comma-separated output of `nvidia-smi --query-gpu` and `--query-compute-apps`, with or without header and units.

A header names the fields. Without one, columns are told by their units, as far as those leave no doubt; the note says
so. Numbers without header and unit could be anything and are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.formats.nvidia_smi import quantities as q
from doctor.formats.nvidia_smi.bare_cells import figures_of_cells
from doctor.formats.nvidia_smi.fields import COUNTERS, QUERY_APPS, QUERY_GPU, REASONS, Field, reasons_of_mask
from doctor.readers.text.scanner import emptied

_FIELD = re.compile(r"([a-z_0-9.]{2,60})(?:\s\[[^\]]{1,8}\])?$")
_REASON = re.compile(r"clocks_(?:event|throttle)_reasons\.(\w{1,40})$")
_COUNTER = re.compile(r"clocks_event_reasons_counters\.(\w{1,40})$")
_BARE_PROCESS = re.compile(r"(\d{1,10}), ([^,]{1,300}), (\d{1,9}) MiB$")
_DECIMAL_COMMA = re.compile(r"^(\d{1,9}),(\d{1,4})(?=\D{0,6}$)")
_MOST_LINE = 4000
_UUIDS = frozenset({"uuid", "gpu_uuid"})
_PLAIN_FIELDS = frozenset({"serial", "gpu_serial", "count", "fan.speed", "vbios_version"})
_FEWEST_FIELDS = 2
_MOST_DEVICES = 4096
_BETWEEN_LOOKS_NS = 90_000_000
"""Rows of one look are milliseconds apart; `nvidia-smi` looks again after 100 ms at the earliest."""


class NvidiaSmiCsvScanner:
    """Tables of `--query-gpu` and `--query-compute-apps`."""

    kind = "nvidia-smi"
    clues = (
        " MHz", " W,", " %,", " W;", " %;",
        "memory.used", "memory.total", "memory.free", "utilization.", "used_memory", "used_gpu_memory", "process_name",
        "clocks.", "clocks_", "power.", "pcie.link", "temperature.gpu", "ecc.", "remapped_rows", "pstate", " MiB",
    )  # fmt: skip

    def __init__(self) -> None:
        self._rows: dict[str, list[dict[str, Any]]] = {"gpu_sample": [], "gpu_process": []}
        self._columns: list[Field | str | None] = []
        self._is_of_processes = False
        self._look = -1
        self._seen: set[Any] = set()
        self._time_ns: int | None = None
        self._devices: dict[str, int] = {}
        self._is_numbered_here = False
        self._found = False
        self._without_process: list[dict[str, Any]] = []
        self._is_headless = False
        self._is_empty_list = False

    @property
    def is_open(self) -> bool:
        """Behind a header."""
        return bool(self._columns)

    def line(self, number: int, text: str) -> None:
        """A header or a row; anything else ends the table."""
        bare = text[:_MOST_LINE].strip()
        cells = _cells(bare)
        if self._header(cells):
            return
        if self._columns:
            if len(cells) == len(self._columns):
                self._row(cells)
            elif bare:
                self._columns = []
        elif (process := _BARE_PROCESS.match(bare)) is not None:
            self._look = max(self._look, 0)
            pid, name, memory = process.groups()
            self._process({"pid": int(pid), "name": q.program(name), "memory_bytes": int(memory) * 2**20})
        elif (figures := figures_of_cells(cells)) is not None:
            self._look, self._is_headless = max(self._look, 0), True
            self._sample(figures)

    def drain(self) -> Iterator[TableBatch]:
        """Rows so far."""
        yield from emptied(self._rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """What was found."""
        if self._is_empty_list and not self._found:
            self._rows["gpu_sample"].append({"look_id": 0, "process_list": "none"})
            note = "a table of processes without a row: none computes on any device"
            return SourceFacts(self.kind, "nvidia-smi --query", is_complete=True, notes=(note,))
        notes = ("a table without a header: its columns were told by their units",) if self._is_headless else ()
        if self._is_numbered_here:
            notes = (*notes, "devices are numbered in the order in which the table of processes names them")
        return SourceFacts(self.kind, "nvidia-smi --query", is_complete=True, notes=notes) if self._found else None

    def _header(self, cells: list[str]) -> bool:
        names = [match.group(1) if (match := _FIELD.match(cell)) else None for cell in cells]
        if len(cells) < _FEWEST_FIELDS or None in names:
            return False
        of_processes = "pid" in names
        fields = [_field(name or "", of_processes) for name in names]
        known = sum(field is not None for field in fields) + sum(name in _PLAIN_FIELDS for name in names)
        if known < max(_FEWEST_FIELDS, len(cells) / 2):
            return False
        self._columns, self._is_of_processes = fields, of_processes
        if of_processes:
            self._is_empty_list = "used_gpu_memory" in names or "used_memory" in names
            self._without_process = [row for row in self._rows["gpu_sample"] if row["look_id"] == self._look]
            for row in self._without_process:
                row["process_list"] = "none"  # a table that stays empty says so
        if not of_processes:
            self._look, self._seen = self._look + 1, set()
        self._look = max(self._look, 0)
        return True

    def _row(self, cells: list[str]) -> None:
        row: dict[str, Any] = {}
        for field, cell in zip(self._columns, cells, strict=True):
            if field == "mask":
                mask = int(cell, 16) if re.match(r"0x[0-9a-fA-F]{1,16}$", cell) else None
                row |= reasons_of_mask(mask) if mask is not None else {}
            elif field == "uuid":
                row["uuid"] = cell
            elif isinstance(field, tuple) and (value := field[1](cell)) is not None:
                row[field[0]] = value
        if self._is_of_processes:
            self._process(row)
        elif row:
            self._sample(row)

    def _sample(self, row: dict[str, Any]) -> None:
        uuid = row.pop("uuid", None)
        key = row.get("device_id", row.get("pci_bus_id", uuid))
        if key in self._seen or (key is None and self._is_later(row)):
            self._look, self._seen = self._look + 1, set()
        device_id = row.get("device_id", len(self._seen))
        self._seen.add(key if key is not None else len(self._seen))
        for name in (row.get("pci_bus_id"), uuid):
            if name is not None and len(self._devices) < _MOST_DEVICES:
                self._devices[name] = device_id
        self._rows["gpu_sample"].append({"look_id": self._look, **row, "device_id": device_id})
        self._found = True

    def _is_later(self, row: dict[str, Any]) -> bool:
        """Tell by its time that a row without the name of its device belongs to the next look."""
        time_ns, before_ns = row.get("time_ns"), self._time_ns
        self._time_ns = time_ns
        return time_ns is not None and before_ns is not None and time_ns - before_ns >= _BETWEEN_LOOKS_NS

    def _process(self, row: dict[str, Any]) -> None:
        while self._without_process:
            self._without_process.pop().pop("process_list", None)
        self._is_empty_list = False
        if row.get("pid") is None:
            return
        names = (row.pop("pci_bus_id", None), row.pop("uuid", None))
        device_id = next((self._devices[name] for name in names if name in self._devices), None)
        name = next((name for name in names if name is not None), None)
        if device_id is None and name is not None and not self._seen and len(self._devices) < _MOST_DEVICES:
            device_id = self._devices[name] = len(self._devices)  # nvidia-smi lists device by device
            self._is_numbered_here = True
        if names == (None, None) and len(self._seen) == 1:  # there is no other device
            device_id = next(iter(self._seen)) if isinstance(next(iter(self._seen)), int) else 0
        self._rows["gpu_process"].append({"look_id": self._look, "process_type": "c", "device_id": device_id, **row})
        self._found = True


def _cells(line: str) -> list[str]:
    """Cells of a line; where semicolons part them, commas part decimals."""
    if line.count(";") > line.count(","):
        return [_DECIMAL_COMMA.sub(r"\1.\2", cell.strip()) for cell in line.split(";")]
    return [cell.strip() for cell in line.split(",")]


def _field(name: str, of_processes: bool) -> Field | str | None:
    """What reads the cells of a column; `mask` for the bit mask of reasons, None for what is not kept."""
    if name in _UUIDS:
        return "uuid"
    if of_processes:
        return QUERY_APPS.get(name)
    if (reason := _REASON.match(name)) is not None:
        known = REASONS.get(reason.group(1))
        return (known, q.truth) if known is not None else ("mask" if reason.group(1) == "active" else None)
    if (counter := _COUNTER.match(name)) is not None:
        known = COUNTERS.get(counter.group(1))
        return (known, q.duration_ns) if known is not None else None
    return QUERY_GPU.get(name)
