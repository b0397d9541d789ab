"""Typed reads of what a case holds about memory: copies by kind, allocation calls."""

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


def copy_groups(connection: duckdb.DuckDBPyConnection) -> tuple[CopyGroup, ...]:
    """Copies of the whole recording by direction and kinds of memory, most time first."""
    return tuple(CopyGroup(*row) for row in connection.execute(_COPIES).fetchall())


def allocation_calls(connection: duckdb.DuckDBPyConnection) -> tuple[AllocationCall, ...]:
    """Allocating and freeing functions, most host time first."""
    return tuple(AllocationCall(*row) for row in connection.execute(_ALLOCATIONS).fetchall())


def device_memories(connection: duckdb.DuckDBPyConnection) -> tuple[DeviceMemory, ...]:
    """The accelerators of the case."""
    return tuple(DeviceMemory(*row) for row in connection.execute(_DEVICES).fetchall())


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
