"""Devices, processes, threads, rank and clock, out of a trace's header and metadata events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from doctor.formats.kineto.columns import trailing_number, whole_numbers
from doctor.formats.kineto.events import TraceEvent
from doctor.formats.kineto.times import nanoseconds
from doctor.formats.private_paths import executable_name
from doctor.formats.recorder_words import recorder_message

_EPOCH_FROM_NS = 10**18
"""Times beyond this are nanoseconds since the epoch (2001 and later); a machine's uptime stays far below."""


@dataclass
class HostNames:
    """Names of processes and threads, gathered from metadata events.

    Attributes:
        processes: process id to name; processes that are labelled as a GPU are left out.
        threads: process and thread id to name.
    """

    processes: dict[int, str | None] = field(default_factory=dict)
    threads: dict[tuple[int, int], str] = field(default_factory=dict)
    _devices: set[int] = field(default_factory=set)

    def take(self, event: TraceEvent) -> None:
        """Take one metadata event."""
        pid = event.pid
        if type(pid) is not int:
            return
        if event.name == "process_name":
            self.processes[pid] = executable_name(event.args.name if isinstance(event.args.name, str) else None)
        elif event.name == "process_labels" and str(event.args.labels).startswith("GPU"):
            self._devices.add(pid)
        elif event.name == "thread_name" and isinstance(event.args.name, str):
            tid = trailing_number(event.tid)
            if tid is not None:
                self.threads[pid, tid] = event.args.name.strip()

    def process_rows(self, pids: set[int]) -> pa.RecordBatch:
        """Rows of `process` for the processes that work was seen of; a GPU that Python functions claim is none."""
        known = sorted(pids - self._devices)
        names = [self.processes.get(pid) for pid in known]
        return pa.RecordBatch.from_pydict({"pid": pa.array(known, pa.int64()), "name": pa.array(names, pa.string())})

    def thread_rows(self, pids: set[int]) -> pa.RecordBatch:
        """Rows of `thread` of the same processes."""
        known = [(pid, tid, name) for (pid, tid), name in self.threads.items() if pid in pids - self._devices]
        return pa.RecordBatch.from_pydict(
            {
                "pid": pa.array([row[0] for row in known], pa.int64()),
                "tid": pa.array([row[1] for row in known], pa.int64()),
                "name": pa.array([row[2] for row in known], pa.string()),
            }
        )


def devices(header: Mapping[str, Any]) -> pa.RecordBatch:
    """Rows of `device` out of `deviceProperties`; AMD leaves names empty."""
    listed = header.get("deviceProperties")
    found = [device for device in listed if isinstance(device, dict)] if isinstance(listed, list) else []
    is_rocm = any(key.startswith(("hip_", "roctracer_")) for key in header)
    names = [device["name"] if isinstance(device.get("name"), str) and device["name"] else None for device in found]
    return pa.RecordBatch.from_pydict(
        {
            "device_id": whole_numbers([device.get("id") for device in found]),
            "name": pa.array(names, pa.string()),
            "vendor": pa.array([_vendor(name, is_rocm=is_rocm) for name in names], pa.string()),
            "sm_count": whole_numbers([device.get("numSms") for device in found]),
            "memory_bytes": whole_numbers([device.get("totalGlobalMem") for device in found]),
            "compute_major": whole_numbers([device.get("computeMajor") for device in found]),
            "compute_minor": whole_numbers([device.get("computeMinor") for device in found]),
        }
    )


def diagnostics(header: Mapping[str, Any]) -> pa.RecordBatch:
    """Rows of `diagnostic` out of the profiler's own warnings and errors, in words that recorders are known to use."""
    found = [
        (severity, recorder_message(line))
        for key, severity in (("WARNING", "warning"), ("ERROR", "error"))
        for line in (header[key] if isinstance(header.get(key), list) else ())
        if isinstance(line, str)
    ]
    return pa.RecordBatch.from_pydict(
        {
            "severity": pa.array([severity for severity, _ in found], pa.string()),
            "message": pa.array([line for _, line in found], pa.string()),
        }
    )


def _vendor(name: str | None, *, is_rocm: bool) -> str | None:
    words = (name or "").lower()
    if is_rocm or any(mark in words for mark in ("amd", "radeon", "instinct")):
        return "amd"
    if any(mark in words for mark in ("nvidia", "tesla", "geforce", "quadro", "titan", "rtx")):
        return "nvidia"
    return "other" if name else None


@dataclass(frozen=True)
class TraceFacts:
    """What a trace says about the recording as a whole.

    Attributes:
        tool: recorder and the versions beside it; the trace does not hold torch's own.
        clock_offset_ns: nanoseconds since the epoch of the trace's time 0; None where its clock is unknown.
        rank: rank of the process in its job.
        world_size: ranks in the job.
    """

    tool: str
    clock_offset_ns: int | None
    rank: int | None
    world_size: int | None


def trace_facts(header: Mapping[str, Any], latest_ns: int | None) -> TraceFacts:
    """Read the facts of a trace; `latest_ns` is its latest time."""
    distributed = header.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    return TraceFacts(
        tool=_tool(header),
        clock_offset_ns=_clock_offset(header.get("baseTimeNanoseconds"), latest_ns),
        rank=trailing_number(distributed.get("rank")),
        world_size=trailing_number(distributed.get("world_size")),
    )


def window(event: TraceEvent) -> tuple[int, int] | None:
    """Start and end of the profiler's window, out of its `Trace` event."""
    start, duration = nanoseconds(bytes(event.ts)), nanoseconds(bytes(event.dur))
    return None if start is None or duration is None else (start, start + duration)


def _clock_offset(base: Any, latest_ns: int | None) -> int | None:
    if latest_ns is not None and latest_ns >= _EPOCH_FROM_NS:
        return 0
    return base if type(base) is int and abs(base) < 1 << 63 else None


def _tool(header: Mapping[str, Any]) -> str:
    versions = [
        f"{label} {header[key]}"
        for key, label in (
            ("cuda_runtime_version", "CUDA runtime"),
            ("cupti_version", "CUPTI"),
            ("hip_runtime_version", "HIP runtime"),
            ("roctracer_version", "roctracer"),
        )
        if isinstance(header.get(key), int | float)
    ]
    return f"PyTorch profiler ({', '.join(versions)})" if versions else "PyTorch profiler"
