"""The table that `nvidia-smi` prints without arguments: old and new layouts, MIG, many devices, `-l` loops.

A device takes two or three lines of three cells; what a cell holds is told by its form, not by its column, since the
columns moved three times. Times are those printed above a table; a paste often lacks them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.formats.nvidia_smi import quantities as q
from doctor.readers.text.scanner import emptied

_HEADER = re.compile(r"NVIDIA-SMI\s+([\d.]{1,20})")
_DRIVER = re.compile(r"Driver Version:\s*([\d.]{1,20})")
_CUDA = re.compile(r"CUDA Version:\s*([\d.]{1,10})")
_FRAMED = re.compile(r"[\s:]([|+].*[|+])$")
"""A line of the table behind what a log puts before each line: a time, the name of a container."""
_DATED = re.compile(r"(?:^|\s)(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\s[A-Z][a-z]{2}\s\d{1,2}\s[\d:]{8}\s\d{4}\s*$")
_NAME = re.compile(r"\s*(\d{1,3})\s+(\S.{0,60}?)\s+(On|Off|WDDM|TCC|MCDM|N/A)\s*$")
_MEMORY = re.compile(r"\s*(\d{1,9})\s?MiB\s*/\s*(\d{1,9})\s?MiB\s*$")
_POWER = re.compile(r"\s([\d.]{1,7})\s?W\s*/\s*([\d.]{1,7}|N/A)\s?W?")
_POWER_ALONE = re.compile(r"\s([\d.]{1,7})\s?W\s*/")
_TEMPERATURE = re.compile(r"(?:^|\s)(\d{1,3})C\s")
_STATE = re.compile(r"\sP(\d{1,2})\s")
_LOAD = re.compile(r"\s*(\d{1,3}%|N/A|ERR!)\s+(Default|E\. ?Process|E\. ?Thread|Prohibited|N/A)\s*$")
_SLICE = re.compile(
    r"\|\s{0,8}(\d{1,3})\s+(\d{1,3})\s+(\d{1,3})\s+(\d{1,3})\s*\|\s*(\d{1,9})MiB\s*/\s*(\d{1,9})MiB\s*\|\s*(\d{1,4})\s"
)
_PROCESS = re.compile(
    r"\|\s+(\d{1,3})\s+(?:(N/A|\d{1,3})\s+(N/A|\d{1,3})\s+)?(\d{1,10}|ERROR!)\s+(C\+G|M\+C|C|G)\s+(\S.{0,200}?)\s+"
    r"(N/A|[\d.]{1,9}\s?MiB|\d{1,9}\.{3}|\d{1,9}M?i?\.{3})?\s*\|"
)
_PATIENCE = 3
_MOST_LINE = 400
_MOST_DEVICES = 256
_MOST_PROCESSES = 4096


class NvidiaSmiTableScanner:
    """One or more tables of `nvidia-smi` within a text."""

    kind = "nvidia-smi"
    clues = ("NVIDIA-SMI ", "| Bus-Id ", "Process name ", "MiB |")

    def __init__(self) -> None:
        self._rows: dict[str, list[dict[str, Any]]] = {"gpu_sample": [], "gpu_process": [], "mig_instance": []}
        self._look = 0
        self._time_ns: int | None = None
        self._versions: dict[str, str] = {}
        self._device: dict[str, Any] | None = None
        self._devices: list[dict[str, Any]] = []
        self._slices: list[dict[str, Any]] = []
        self._processes: list[dict[str, Any]] = []
        self._in_processes = False
        self._strange = 0
        self._tool: str | None = None
        self._found = False
        self._open = False

    @property
    def is_open(self) -> bool:
        """Inside a table, and a few lines behind it: the next may follow."""
        return self._open

    def line(self, number: int, text: str) -> None:
        """Take a line of a table; anything else ends it after a while."""
        bare = _unprefixed(" ".join(text[:_MOST_LINE].lstrip("> \t").split()))
        if (dated := _DATED.search(bare)) is not None:
            self._close_look()
            self._time_ns = q.time_ns(dated.group(0).strip())
            return
        if not bare.startswith(("|", "+")):
            self._strange += 1
            if self._strange > _PATIENCE:
                self._open = False
            return
        self._strange, self._open = 0, True
        if bare.startswith("|"):
            self._table_line(bare)

    def drain(self) -> Iterator[TableBatch]:
        """Rows of every look that is closed."""
        yield from emptied(self._rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """Close the last table."""
        self._close_look()
        if not self._found:
            return None
        return SourceFacts(self.kind, self._tool, is_complete=True)

    def _table_line(self, line: str) -> None:
        header = _HEADER.search(line)
        if header is not None:
            self._close_look()
            self._tool = f"nvidia-smi {header.group(1)}"
            found = {"driver_version": _DRIVER.search(line), "cuda_version": _CUDA.search(line)}
            self._versions = {name: match.group(1) for name, match in found.items() if match is not None}
            return
        if "Processes:" in line:
            self._in_processes = True
            for device in self._devices:
                device["process_list"] = "empty"
        elif self._in_processes or _PROCESS.match(line):
            self._process_line(line)
        elif "MIG devices:" in line:
            self._device = None  # rows of slices look like second rows of a device
        elif (found_slice := _SLICE.match(line)) is not None:
            self._slice_line(found_slice)
        else:
            self._device_line(line)

    def _device_line(self, line: str) -> None:
        cells = line.strip("|").split("|")
        if len(cells) < 2:
            return
        named = _NAME.match(cells[0])
        if named is not None and (bus := q.bus_id(cells[1])) is not None:
            self._begin_device(named, bus, cells)
        elif self._device is not None:
            self._state_line(self._device, cells)

    def _begin_device(self, named: re.Match[str], bus: str, cells: list[str]) -> None:
        device_id, mode = int(named.group(1)), named.group(3)
        if any(device["device_id"] == device_id for device in self._devices) or len(self._devices) >= _MOST_DEVICES:
            self._close_look()  # a table pasted twice without its header
        self._device = {
            "device_id": device_id,
            "name": named.group(2),
            "pci_bus_id": bus,
            "is_persistence_on": q.truth(mode),
            "driver_model": q.driver_model(mode),
        }
        if len(cells) > 2:
            errors = cells[2].strip()
            count = q.whole(errors)
            self._device["is_ecc_on"] = True if count is not None else q.truth(errors)
            self._device["ecc_uncorrected_volatile_count"] = count
        self._devices.append(self._device)

    def _state_line(self, device: dict[str, Any], cells: list[str]) -> None:
        memory = _MEMORY.match(cells[1])
        if memory is not None:
            device["memory_used_bytes"], device["memory_total_bytes"] = (int(part) * 2**20 for part in memory.groups())
            device |= _of_first_cell(f" {cells[0]} ")
            load = _LOAD.match(cells[2]) if len(cells) > 2 else None
            if load is not None:
                device["busy_share"] = q.share(load.group(1))
                device["compute_mode"] = q.compute_mode(load.group(2))
        elif len(cells) > 2 and not cells[0].strip() and not cells[1].strip():
            device["is_mig_on"] = q.truth(cells[2])

    def _slice_line(self, found: re.Match[str]) -> None:
        device, gpu, compute, place, used, total, sms = (int(part) for part in found.groups())
        row = {
            "device_id": device,
            "gpu_instance_id": gpu,
            "compute_instance_id": compute,
            "mig_device_id": place,
            "memory_used_bytes": used * 2**20,
            "memory_total_bytes": total * 2**20,
            "sm_count": sms,
        }
        if len(self._slices) < _MOST_DEVICES:
            self._slices.append(row)

    def _process_line(self, line: str) -> None:
        if "No running processes found" in line:
            for device in self._devices:
                device["process_list"] = "none"
            return
        found = _PROCESS.match(line)
        if found is None or (pid := q.whole(found.group(4))) is None or len(self._processes) >= _MOST_PROCESSES:
            return
        device_id, gpu, compute, _, sort, name, memory = found.groups()
        row = {
            "device_id": int(device_id),
            "gpu_instance_id": q.small(gpu or ""),
            "compute_instance_id": q.small(compute or ""),
            "pid": pid,
            "process_type": sort.lower(),
            "name": q.program(name),
            "memory_bytes": q.size_bytes(memory or ""),
        }
        if memory and memory.endswith("..."):
            row["memory_bytes"] = _completed(memory, self._used_of(int(device_id)))
        self._processes.append(row)
        for device in self._devices:
            device["process_list"] = "listed"

    def _used_of(self, device_id: int) -> int | None:
        return next((d.get("memory_used_bytes") for d in self._devices if d["device_id"] == device_id), None)

    def _close_look(self) -> None:
        """Hand over one table; a new one begins a new look."""
        parts = {"gpu_sample": self._devices, "gpu_process": self._processes, "mig_instance": self._slices}
        if any(parts.values()):
            shared = {"look_id": self._look, "time_ns": self._time_ns}
            for table, rows in parts.items():
                versions = self._versions if table == "gpu_sample" else {}
                self._rows[table] += [shared | versions | row for row in rows]
            self._look += 1
            self._found = True
            self._time_ns = None
        self._devices, self._processes, self._slices = [], [], []
        self._device, self._in_processes = None, False


def _unprefixed(bare: str) -> str:
    """The line from the table's frame on; `smi-1 | | 0 NVIDIA ... |` has the bar of docker compose before it."""
    if bare.startswith(("|", "+")) or (framed := _FRAMED.search(bare)) is None:
        return bare
    return framed.group(1).removeprefix("| ") if framed.group(1).startswith(("| |", "| +")) else framed.group(1)


def _of_first_cell(cell: str) -> dict[str, Any]:
    """Temperature, state and power of the second line."""
    found: dict[str, Any] = {}
    if (heat := _TEMPERATURE.search(cell)) is not None:
        found["temperature_celsius"] = float(heat.group(1))
    if (state := _STATE.search(cell)) is not None:
        found["performance_state"] = int(state.group(1))
    if (power := _POWER.search(cell)) is not None:
        found["power_watts"] = q.amount(power.group(1))
        found["power_limit_watts"] = q.amount(power.group(2))
    elif (alone := _POWER_ALONE.search(cell)) is not None:
        found["power_watts"] = q.amount(alone.group(1))
    return found


def _completed(cut: str, used_bytes: int | None) -> int | None:
    """A figure that the layout cut (`12339...`): its digits, as many more as the device's use has room for."""
    digits = cut.rstrip(".Mi ")
    if used_bytes is None or not digits.isdigit():
        return None
    fitting = [int(digits) * 10**more * 2**20 for more in range(7)]
    return max((size for size in fitting if size <= used_bytes), default=None)
