"""Typed reads of what a case holds about memory: failures, who holds the devices, copies by kind, allocation calls."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb


@dataclass(frozen=True)
class CopyGroup:
    """Copies of one direction between two kinds of memory; `rate_bytes_per_s` is None where they took no time."""

    direction: str
    src_kind: str
    dst_kind: str
    count: int
    size_bytes: int
    total_ns: int
    rate_bytes_per_s: float | None


@dataclass(frozen=True)
class AllocationCall:
    """Calls of one function that allocates or frees memory, by the host's time in it."""

    function: str
    count: int
    total_ns: int
    longest_ns: int


@dataclass(frozen=True)
class DeviceMemory:
    """One accelerator: its name and its memory in bytes, None where unknown."""

    device_id: int
    name: str
    memory_bytes: int | None


@dataclass(frozen=True)
class HeldPart:
    """A part of a device's memory and who holds it."""

    holder: str
    size_bytes: int


@dataclass(frozen=True)
class MemoryFailure:
    """An allocation that failed; figures in bytes, None where the text does not say.

    Attributes:
        device_id: as the failing process counts.
        tried_bytes: what was asked for.
        free_bytes: free on the device.
        total_bytes: size of the device.
        phase: what the process was doing.
        parts: who held the device, largest first.
    """

    device_id: int | None
    tried_bytes: int | None
    free_bytes: int | None
    total_bytes: int | None
    phase: str | None
    parts: tuple[HeldPart, ...]


@dataclass(frozen=True)
class DeviceHolder:
    """A process that held memory of a device when it was fullest."""

    device_id: int
    pid: int
    name: str
    memory_bytes: int | None


def memory_failures(connection: duckdb.DuckDBPyConnection) -> tuple[MemoryFailure, ...]:
    """Allocations that failed, in order of the evidence."""
    failures = []
    for device_id, tried, free, total, phase, *sizes in connection.execute(_FAILURES).fetchall():
        parts = [HeldPart(holder, size) for holder, size in zip(_HOLDERS, sizes, strict=True) if size]
        parts.sort(key=lambda part: -part.size_bytes)
        failures.append(MemoryFailure(device_id, tried, free, total, phase, tuple(parts)))
    return tuple(failures)


def device_holders(connection: duckdb.DuckDBPyConnection) -> tuple[DeviceHolder, ...]:
    """Processes on each device at the fullest look at it, most memory first."""
    return tuple(DeviceHolder(*row) for row in connection.execute(_DEVICE_HOLDERS).fetchall())


def copy_groups(connection: duckdb.DuckDBPyConnection) -> tuple[CopyGroup, ...]:
    """Copies of the whole recording by direction and kinds of memory, most time first."""
    return tuple(CopyGroup(*row) for row in connection.execute(_COPIES).fetchall())


def allocation_calls(connection: duckdb.DuckDBPyConnection) -> tuple[AllocationCall, ...]:
    """Allocating and freeing functions, most host time first."""
    return tuple(AllocationCall(*row) for row in connection.execute(_ALLOCATIONS).fetchall())


def device_memories(connection: duckdb.DuckDBPyConnection) -> tuple[DeviceMemory, ...]:
    """The accelerators of the case."""
    return tuple(DeviceMemory(*row) for row in connection.execute(_DEVICES).fetchall())


_HOLDERS = ("tensors of the process", "cached, in no tensor", "outside its allocator", "other processes", "free")

_FAILURES = """
SELECT device_id, tried_bytes, free_bytes, total_bytes, phase, allocated_bytes, unused_bytes, outside_bytes,
    foreign_bytes, free_bytes
FROM oom ORDER BY source_id, oom_event_id
"""

_DEVICE_HOLDERS = """
SELECT gpu_process.device_id, pid, coalesce(gpu_process.name, '(name hidden)'), max(memory_bytes) AS memory_bytes
FROM gpu_process JOIN device_holding USING (source_id, device_id, look_id)
GROUP BY ALL ORDER BY gpu_process.device_id, memory_bytes DESC NULLS LAST, pid
"""

_COPIES = """
SELECT coalesce(copy_kind::TEXT, '?'), coalesce(src_kind::TEXT, '?'), coalesce(dst_kind::TEXT, '?'), count(*),
    coalesce(sum(size_bytes), 0)::BIGINT, sum(end_ns - start_ns)::BIGINT AS total_ns,
    coalesce(sum(size_bytes), 0) * 1e9 / nullif(sum(end_ns - start_ns), 0)
FROM device_op WHERE kind = 'memcpy' GROUP BY ALL ORDER BY total_ns DESC, 1, 2, 3
"""

_ALLOCATIONS = """
SELECT base_name::TEXT, count(*), sum(end_ns - start_ns)::BIGINT AS total_ns, max(end_ns - start_ns)
FROM host_call WHERE call_class = 'alloc' GROUP BY base_name ORDER BY total_ns DESC, 1
"""

_DEVICES = """
SELECT DISTINCT coalesce(device_id, 0) AS device_id, coalesce(name, 'unknown device'), memory_bytes
FROM device JOIN timeline_source USING (source_id) ORDER BY device_id
"""
