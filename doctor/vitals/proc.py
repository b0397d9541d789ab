"""What Linux says of processes, CPUs, quotas and pressure: /proc and the control groups. Never a command line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from doctor.vitals.reading import CgroupReading, HostProcess, HostReading, PressureReading

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""Number that Linux gives the first pid namespace (PROC_PID_INIT_INO in include/linux/proc_ns.h)."""
_PRESSURE = re.compile(r"(some|full) avg10=([\d.]+) avg60=([\d.]+) avg300=([\d.]+) total=(\d+)")
_MOST_TASKS = 2048
_NAME = re.compile(r"[^\w.+-]")


@dataclass(frozen=True)
class ProcessFacts:
    """A process as /proc tells it."""

    name: str | None
    process_state: str | None
    parent_pid: int | None


def process(pid: int) -> ProcessFacts | None:
    """Facts of a process; None where it is not in this /proc."""
    status = _status(pid)
    if status is None:
        return None
    return ProcessFacts(_program(pid, status), status.get("State", "")[:1] or None, _whole(status.get("PPid")))


def host_process(pid: int, *, is_recorded: bool = False) -> HostProcess | None:
    """A process with its threads, memory and CPUs; None where it is not in this /proc."""
    status = _status(pid)
    if status is None:
        return None
    cpus = status.get("Cpus_allowed_list")
    resident = _whole((status.get("VmRSS") or "").removesuffix(" kB").strip())
    return HostProcess(
        pid=pid,
        parent_pid=_whole(status.get("PPid")),
        name=_program(pid, status),
        process_state=status.get("State", "")[:1] or None,
        thread_count=_whole(status.get("Threads")),
        runnable_count=_runnable(pid),
        resident_bytes=None if resident is None else resident * 1024,
        cpu_affinity=cpus,
        cpu_allowed_count=None if cpus is None else len(_cpus_of(cpus)),
        numa_node_id=_node_of(cpus),
        is_recorded=is_recorded,
    )


def descendants(pid: int) -> tuple[int, ...]:
    """A process and everything it started that still lives."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        if entry.name.isdigit() and (parent := _parent(int(entry.name))) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += children.get(one, [])
    return tuple(found)


def cpu_seconds(pid: int) -> float | None:
    """CPU time that a process has used."""
    fields = _stat(pid)
    if fields is None:
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    return (int(fields[11]) + int(fields[12])) / ticks


def host() -> HostReading:
    """The machine, and the limits of this container."""
    memory = dict(re.findall(r"^(\w+):\s+(\d+) kB", _text(_PROC / "meminfo"), re.MULTILINE))
    total, available = _whole(memory.get("MemTotal")), _whole(memory.get("MemAvailable"))
    nodes = [entry for entry in _listed(Path("/sys/devices/system/node")) if re.fullmatch(r"node\d+", entry)]
    return HostReading(
        cpu_count=cpu_count(),
        cpu_allowed_count=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        numa_node_count=len(nodes) or None,
        memory_total_bytes=None if total is None else total * 1024,
        memory_used_bytes=None if total is None or available is None else (total - available) * 1024,
        memory_limit_bytes=_whole(_text(_CGROUP / "memory.max").strip()),
        operating_system="wsl" if "microsoft" in _text(_PROC / "version").lower() else "linux" if total else None,
    )


def cpu_count() -> int | None:
    """CPUs of the machine."""
    return os.cpu_count()


def cgroup() -> CgroupReading | None:
    """CPU control of this process's group, in either version of control groups; None where there is none."""
    folder = _group_folder()
    stat = dict(re.findall(r"^(\w+) (\d+)$", _text(folder / "cpu.stat"), re.MULTILINE))
    if not stat:
        return None
    quota, period = _quota(folder)
    throttled = _whole(stat.get("throttled_usec"))
    older = _whole(stat.get("throttled_time"))
    usage = _whole(stat.get("usage_usec"))
    return CgroupReading(
        period_count=_whole(stat.get("nr_periods")),
        throttled_count=_whole(stat.get("nr_throttled")),
        throttled_ns=throttled * 1000 if throttled is not None else older,
        usage_ns=None if usage is None else usage * 1000,
        quota_ns=quota,
        period_ns=period,
    )


def pressure() -> tuple[PressureReading, ...]:
    """Pressure of this container where it is kept apart, else of the machine."""
    found = []
    for resource in ("cpu", "memory", "io"):
        text = _text(_group_folder() / f"{resource}.pressure") or _text(_PROC / "pressure" / resource)
        for level, ten, sixty, more, total in _PRESSURE.findall(text):
            shares = (float(ten) / 100, float(sixty) / 100, float(more) / 100)
            found.append(PressureReading(resource, level, *shares, int(total) * 1000))
    return tuple(found)


def is_pid_namespace() -> bool | None:
    """True inside a pid namespace of its own, as in a container: pids of the host mean nothing here."""
    try:
        return str((_PROC / "self/ns/pid").readlink()) != _INITIAL_PID_NAMESPACE
    except OSError:
        return None


def numa_node_of_device(bus: str | None) -> int | None:
    """NUMA node of a PCI device, by its address."""
    if bus is None:
        return None
    domain, _, rest = bus.partition(":")
    node = _whole(_text(Path("/sys/bus/pci/devices") / f"{int(domain, 16):04x}:{rest}" / "numa_node").strip())
    return node if node is not None and node >= 0 else None


def as_ranges(numbers: Iterable[int]) -> str:
    """Numbers as a list of ranges: `0-31,64`."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _group_folder() -> Path:
    """Folder of this process's CPU control."""
    for line in _text(_PROC / "self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        base = _CGROUP if number == "0" and not controllers else _CGROUP / "cpu"
        if (number == "0" and not controllers) or "cpu" in controllers.split(","):
            own = base / path.lstrip("/")
            return own if (own / "cpu.stat").exists() else base
    return _CGROUP


def _quota(folder: Path) -> tuple[int | None, int | None]:
    """Quota and period in ns; a group inside a container is limited by the nearest group above that has a limit."""
    while True:
        newer = _text(folder / "cpu.max").split()
        if len(newer) == 2 and newer[0].isdigit():
            return int(newer[0]) * 1000, int(newer[1]) * 1000
        if folder in (_CGROUP, folder.parent):
            break
        folder = folder.parent
    quota, period = (_whole(_text(_CGROUP / "cpu" / f"cpu.cfs_{name}_us").strip()) for name in ("quota", "period"))
    if quota is not None and quota > 0 and period is not None:
        return quota * 1000, period * 1000
    return None, None


def _status(pid: int) -> dict[str, str] | None:
    text = _text(_PROC / str(pid) / "status")
    if not text:
        return None
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def _program(pid: int, status: dict[str, str]) -> str | None:
    """Base name of the executable; the name in `status` can be set by the program to anything."""
    try:
        name = (_PROC / str(pid) / "exe").readlink().name.removesuffix(" (deleted)")
    except OSError:
        name = _NAME.sub("_", status.get("Name", ""))
    return name[:64] or None


def _runnable(pid: int) -> int | None:
    """Threads that run or want to run."""
    tasks = _listed(_PROC / str(pid) / "task")[:_MOST_TASKS]
    if not tasks:
        return None
    return sum(_text(_PROC / str(pid) / "task" / task / "stat").rpartition(")")[2][1:2] == "R" for task in tasks)


def _parent(pid: int) -> int | None:
    fields = _stat(pid)
    return None if fields is None else int(fields[1])


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat behind the name, which may hold anything."""
    fields = _text(_PROC / str(pid) / "stat").rpartition(")")[2].split()
    return fields if len(fields) > 12 else None


def _cpus_of(ranges: str) -> set[int]:
    found: set[int] = set()
    for part in ranges.split(","):
        first, dash, last = part.strip().partition("-")
        if first.isdigit() and (last.isdigit() or not dash):
            found.update(range(int(first), int(last or first) + 1))
    return found


def _node_of(cpus: str | None) -> int | None:
    """The NUMA node that holds all of these CPUs; None where they are spread, or there is but one."""
    if cpus is None:
        return None
    wanted = _cpus_of(cpus)
    folder = Path("/sys/devices/system/node")
    nodes = [entry for entry in _listed(folder) if re.fullmatch(r"node\d+", entry)]
    if len(nodes) < 2:
        return None
    for entry in nodes:
        if wanted <= _cpus_of(_text(folder / entry / "cpulist").strip()):
            return int(entry[4:])
    return None


def _listed(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,18}", text) else None
