"""Processes in a text: tables of ps, /proc/PID/status, numastat -p, taskset -pc. Owners and arguments are not kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from doctor.formats.nvidia_smi import quantities as q
from doctor.readers.text.memory_table import MemoryTable, time_of


def _share_of_one_cpu(text: str) -> float | None:
    value = q.amount(text)
    return None if value is None or value < 0 else value / 100


_STATUS = re.compile(r"([A-Za-z_]{2,30}):\s{1,20}(\S.{0,400})$")
_STATUS_FIELDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "Name": ("name", q.program),
    "State": ("process_state", lambda text: text[:1]),
    "Pid": ("pid", q.whole),
    "PPid": ("parent_pid", q.whole),
    "Threads": ("thread_count", q.small),
    "VmRSS": ("resident_bytes", lambda text: q.size_bytes(text, "kb")),
    "Cpus_allowed_list": ("cpu_affinity", lambda text: text.strip()[:200]),
}
_PS_COLUMNS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "PID": ("pid", q.whole),
    "PPID": ("parent_pid", q.whole),
    "%CPU": ("cpu_share", _share_of_one_cpu),
    "RSS": ("resident_bytes", lambda text: q.size_bytes(text, "kb")),
    "STAT": ("process_state", lambda text: text[:1]),
    "S": ("process_state", lambda text: text[:1]),
    "NLWP": ("thread_count", q.small),
    "THCNT": ("thread_count", q.small),
}
_COMMANDS = frozenset({"COMMAND", "CMD", "COMM"})
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)$")
_TASKSET = re.compile(r"pid (\d{1,10})'s current affinity list: ([\d,-]{1,200})\s*$")
_NUMASTAT = re.compile(r"Per-node process memory usage \(in MBs\) for PID (\d{1,10})")
_MOST_ROWS = 100_000
_MOST_AFFINITY_PARTS = 256
_FEWEST_STATUS_FIELDS = 3


class ProcessLines:
    """Takes the lines of a text that tell of processes; `rows` are of the table `host_process`."""

    clues = (
        "Name:\t", "Name: ", "State:", "VmRSS:", "Threads:", "Cpus_allowed_list:", " PID ", "PID ", "affinity list:",
        "Per-node process memory usage", *MemoryTable.clues,
    )  # fmt: skip

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.count = 0
        self._status: dict[str, Any] = {}
        self._columns: list[str] = []
        self._numastat: int | None = None
        self._numastat_lines = 0
        self._table = MemoryTable()
        self._time_ns: int | None = None

    @property
    def is_open(self) -> bool:
        """Within a block."""
        return bool(self._status or self._columns) or self._numastat is not None or self._table.is_open

    def line(self, text: str) -> bool:
        """Take a line; True where it was one of these."""
        line = text.strip()
        if (numastat := _NUMASTAT.search(line)) is not None:
            self._numastat, self._numastat_lines = int(numastat.group(1)), 0
            return True
        if self._numastat is not None:
            return self._take_numastat(line)
        if (taskset := _TASKSET.search(line)) is not None:
            self._add({"pid": int(taskset.group(1)), **_affinity(taskset.group(2))})
            return True
        if self._table.is_open or ("," in line and "rss" in line.lower()) or "resident_bytes" in line:
            taken = self._table.take(line)
            if isinstance(taken, dict):
                self._add(taken)
            if taken is not False:
                return True
        return self._take_status(line) or self._take_ps(line)

    def close(self) -> None:
        """End an open block."""
        row, self._status = self._status, {}
        if row.get("pid") is not None or len(row) >= _FEWEST_STATUS_FIELDS:
            self._add(row | (_affinity(row["cpu_affinity"]) if row.get("cpu_affinity") else {}))
        self._columns, self._numastat = [], None

    def _add(self, row: dict[str, Any]) -> None:
        if self.count < _MOST_ROWS:
            self.count += 1
            self.rows.append({"time_ns": self._time_ns, **row} if self._time_ns is not None else row)

    def _take_status(self, line: str) -> bool:
        found = _STATUS.match(line)
        if found is None:
            if self._status:
                self.close()
            return False
        key, value = found.groups()
        if key not in _STATUS_FIELDS:
            return bool(self._status)
        name, read = _STATUS_FIELDS[key]
        if key == "Name" or name in self._status:
            self.close()
        if (taken := read(value)) is not None:
            self._status[name] = taken
        return True

    def _take_ps(self, line: str) -> bool:
        words = line.split()
        if "PID" in words and len(words) >= 3 and {"%CPU", "RSS", "STAT", "NLWP", "THCNT"} & set(words):
            self._columns = words
            return True
        if not self._columns:
            return False
        if (moment := time_of(" ".join(words))) is not None and len(words) > 1:
            self._time_ns = moment  # a date between two tables; the next header follows
            return True
        command_at = next((at for at, name in enumerate(self._columns) if name in _COMMANDS), None)
        if len(words) < len(self._columns) - (1 if command_at is not None else 0):
            self._columns = []
            return False
        row = self._ps_row(words, command_at)
        if row.get("pid") is None:
            self._columns = []
            return False
        self._add(row)
        return True

    def _ps_row(self, words: list[str], command_at: int | None) -> dict[str, Any]:
        row: dict[str, Any] = {}
        if (clock := _CLOCK.match(words[0])) is not None:  # pidstat
            hour, minute, second = (int(part) for part in clock.groups())
            row["time_ns"] = ((hour % 12 + 12 if words[1:2] == ["PM"] else hour) * 3600 + minute * 60 + second) * 10**9
        for column, word in zip(self._columns, words, strict=False):
            if column in _PS_COLUMNS:
                name, read = _PS_COLUMNS[column]
                row[name] = read(word)
        if command_at is not None and command_at < len(words):
            row["name"] = q.program(words[command_at])
        return row

    def _take_numastat(self, line: str) -> bool:
        self._numastat_lines += 1
        words = line.split()
        if words[:1] == ["Total"] and len(words) >= 3:
            amounts = [q.amount(word) for word in words[1:-1]]
            if None not in amounts:
                self._add(_spread(self._numastat, [amount or 0.0 for amount in amounts]))
            self._numastat = None
        elif self._numastat_lines > 12:
            self._numastat = None
        return True


def _spread(pid: int | None, megabytes: list[float]) -> dict[str, Any]:
    """Memory by node: what lies outside the node that holds most is remote."""
    total, most = sum(megabytes), max(megabytes, default=0.0)
    return {
        "pid": pid,
        "resident_bytes": round(total * 2**20),
        "resident_remote_bytes": round((total - most) * 2**20),
        "numa_node_id": megabytes.index(most) if megabytes else None,
    }


def _affinity(text: str) -> dict[str, Any]:
    return {"cpu_affinity": text.strip()[:200], "cpu_allowed_count": allowed_count(text)}


def allowed_count(ranges: str) -> int | None:
    """CPUs in a list such as `0-31,64-95`."""
    total = 0
    for part in ranges.strip().split(",")[:_MOST_AFFINITY_PARTS]:
        first, dash, last = part.partition("-")
        if not (first.isascii() and first.isdigit() and len(first) < 6):
            return None
        if dash and not (last.isascii() and last.isdigit() and len(last) < 6):
            return None
        total += int(last) - int(first) + 1 if dash else 1
    return total if total > 0 else None
