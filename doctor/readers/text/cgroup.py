"""What the kernel says of CPU quotas and pressure: cpu.stat, cpu.max, PSI, /proc/PID/status, ps, numastat, taskset.

These files name themselves rarely: a bare `600000 100000` is a quota only behind a line that mentions cpu.max, and a
line of pressure belongs to the resource that was mentioned last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.host_processes import ProcessLines
from doctor.readers.text.scanner import emptied

_STAT = re.compile(
    r"(?:^|[\s:])(nr_periods|nr_throttled|throttled_usec|throttled_time|usage_usec)[\s=:]{1,4}(\d{1,15})\b"
)
_MAX = re.compile(r"(?:^|[\s:])(max|\d{1,12}) (\d{4,9})\s*$")
_V1 = re.compile(r"cpu\.cfs_(quota|period)_us\D{0,8}?(-?\d{1,12})?\s*$")
_PRESSURE = re.compile(
    r"\b(some|full) avg10=(\d{1,3}\.\d{1,4}) avg60=(\d{1,3}\.\d{1,4}) avg300=(\d{1,3}\.\d{1,4})(?: total=(\d{1,15})\b)?"
)
_RESOURCE = re.compile(r"(?:pressure[/_.\s-]{1,2}(cpu|memory|io)\b|\b(cpu|memory|io)[._]pressure)")
_CPUS = re.compile(r"^(?:CPU\(s\):\s{1,40}|nproc[\s:=]{1,4})(\d{1,5})\s*$")
_NODES = re.compile(r"^NUMA node\(s\):\s{1,40}(\d{1,3})\s*$")
_TOTAL = re.compile(r"^\s{0,8}MemTotal:\s{1,40}(\d{1,15}) kB")
_LIMIT = re.compile(r"(?:^|[\s:])(max|\d{6,18})\s*$")
_NO_LIMIT = 2**60
"""Control groups of the first version write a number near 2**63 where there is no limit."""
_WSL = re.compile(r"microsoft-standard-WSL|Linux version [\w.-]{1,60}[mM]icrosoft")
_MOST_LINE = 2000
_MOST_ROWS = 100_000


class CgroupScanner:
    """CPU control, pressure and processes within a text."""

    kind = "cgroup"
    clues = (
        "nr_periods", "nr_throttled", "throttled_", "usage_usec", "cpu.max", "cpu.cfs_", "avg10=", "pressure",
        "CPU(s):", "nproc", "MemTotal:", "memory.max", "memory.limit_in_bytes", "NUMA node(s):",
        "microsoft-standard-WSL", *ProcessLines.clues,
    )  # fmt: skip

    def __init__(self) -> None:
        self._processes = ProcessLines()
        self._rows: dict[str, list[dict[str, Any]]] = {"pressure": [], "cgroup_cpu": [], "host_sample": []}
        self._control: dict[str, int] = {}
        self._quota: dict[str, int | None] = {}
        self._host: dict[str, Any] = {}
        self._resource: str | None = None
        self._awaits: str | None = None
        self._row_count = 0

    @property
    def is_open(self) -> bool:
        """Within a block of several lines, or right behind the name of a file whose content is bare."""
        return self._awaits is not None or self._processes.is_open

    def line(self, number: int, text: str) -> None:
        """One line."""
        line = text[:_MOST_LINE]
        if self._processes.line(line):
            return
        self._context(line)
        for name, value in _STAT.findall(line):
            self._take_stat(name, int(value))
        if (pressure := _PRESSURE.search(line)) is not None:
            self._take_pressure(*pressure.groups())

    def drain(self) -> Iterator[TableBatch]:
        """Rows so far."""
        yield from emptied({**self._rows, "host_process": self._processes.rows}, self.kind)

    def facts(self) -> SourceFacts | None:
        """Close what is open."""
        self._close_control()
        self._processes.close()
        if self._host:
            self._rows["host_sample"].append(self._host)
            self._host = {}
            self._row_count += 1
        found = self._row_count or self._processes.count
        return SourceFacts(self.kind, None, is_complete=True) if found else None

    def _context(self, line: str) -> None:
        """Which file the next bare line is from."""
        if (resource := _RESOURCE.search(line)) is not None:
            self._resource = resource.group(1) or resource.group(2)
        if (count := _CPUS.match(line)) is not None:
            self._host["cpu_count"] = int(count.group(1))
        elif (nodes := _NODES.match(line)) is not None:
            self._host["numa_node_count"] = int(nodes.group(1))
        elif (total := _TOTAL.match(line)) is not None:
            self._host["memory_total_bytes"] = int(total.group(1)) * 1024
        elif _WSL.search(line) is not None:
            self._host["operating_system"] = "wsl"
        if "memory.max" in line or "memory.limit_in_bytes" in line or self._awaits == "memory":
            self._take_limit(line)
        elif (old := _V1.search(line)) is not None:
            self._take_v1(old.group(1), old.group(2))
        elif "cpu.max" in line or self._awaits == "cpu.max":
            self._take_max(line)
        elif self._awaits is not None:
            self._take_v1(self._awaits, line.strip())

    def _take_max(self, line: str) -> None:
        found = _MAX.search(line)
        self._awaits = "cpu.max" if found is None and "cpu.max" in line else None
        if found is not None:
            quota, period = found.groups()
            self._quota = {"quota_ns": None if quota == "max" else int(quota) * 1000, "period_ns": int(period) * 1000}

    def _take_limit(self, line: str) -> None:
        found = _LIMIT.search(line)
        self._awaits = "memory" if found is None and "memory." in line else None
        if found is not None and found.group(1) != "max" and int(found.group(1)) < _NO_LIMIT:
            self._host["memory_limit_bytes"] = int(found.group(1))

    def _take_v1(self, which: str, value: str | None) -> None:
        self._awaits = which if value is None else None
        if value is None or re.fullmatch(r"-?\d{1,12}", value) is None:
            return
        number = int(value)
        self._quota[f"{which}_ns"] = number * 1000 if number > 0 else None

    def _take_stat(self, name: str, value: int) -> None:
        column, factor = {
            "nr_periods": ("period_count", 1),
            "nr_throttled": ("throttled_count", 1),
            "throttled_usec": ("throttled_ns", 1000),
            "throttled_time": ("throttled_ns", 1),
            "usage_usec": ("usage_ns", 1000),
        }[name]
        if column in self._control:
            self._close_control()
        self._control[column] = value * factor

    def _close_control(self) -> None:
        if (self._control or self._quota) and self._row_count < _MOST_ROWS:
            self._rows["cgroup_cpu"].append({**self._control, **self._quota})
            self._row_count += 1
        if self._control:
            self._control = {}
        else:
            self._quota = {}

    def _take_pressure(self, level: str, ten: str, sixty: str, more: str, total: str | None) -> None:
        if self._row_count >= _MOST_ROWS:
            return
        self._row_count += 1
        self._rows["pressure"].append(
            {
                "resource": self._resource,
                "level": level,
                "avg10_share": float(ten) / 100,
                "avg60_share": float(sixty) / 100,
                "avg300_share": float(more) / 100,
                "total_ns": int(total) * 1000 if total else None,
            }
        )
