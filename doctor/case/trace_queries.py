"""Everything of a derived case's time-line, in order, in batches: for writing it in another format.

All times are on the case's clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import duckdb

_BATCH_ROWS = 20_000
_SLICE_ROWS = 100_000


class DeviceRow(NamedTuple):
    """Work on a stream; `flow` joins it to the call that launched it."""

    source_id: int
    pid: int | None
    device_id: int
    stream_id: int
    start_ns: int
    end_ns: int
    name: str
    category: str
    flow: int | None
    size_bytes: int | None
    grid_blocks: int | None
    block_threads: int | None


class ThreadRow(NamedTuple):
    """Work on a thread: a call, a range or an operator."""

    source_id: int
    pid: int | None
    tid: int | None
    start_ns: int
    end_ns: int
    name: str
    category: str
    flow: int | None


class CounterRow(NamedTuple):
    """One value of a named counter; every source has its own."""

    source_id: int
    name: str
    time_ns: int
    value: int


class StepRow(NamedTuple):
    """One step of an engine."""

    step_id: int
    pid: int | None
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class ProcessNames:
    """Names for people, by what they name; a process or thread without a name is missing.

    Attributes:
        ranks: by source.
        processes: by source and pid.
        threads: by source, pid and tid.
        devices: by source and device.
        are_pids_unique: no process id stands for two processes.
    """

    ranks: dict[int, int]
    processes: dict[tuple[int, int | None], str]
    threads: dict[tuple[int, int | None, int | None], str]
    devices: dict[tuple[int, int], str]
    are_pids_unique: bool


def names(connection: duckdb.DuckDBPyConnection) -> ProcessNames:
    """Names of the sources on the time-line."""
    rows = connection.execute(_SOURCES_OF_PIDS).fetchall()
    return ProcessNames(
        dict(connection.execute(_RANKS).fetchall()),
        {(source, pid): name for source, pid, name in connection.execute(_PROCESSES).fetchall()},
        {(source, pid, tid): name for source, pid, tid, name in connection.execute(_THREADS).fetchall()},
        {(source, device): name for source, device, name in connection.execute(_DEVICES).fetchall()},
        all(count == 1 for _, count in rows),
    )


def earliest_ns(connection: duckdb.DuckDBPyConnection) -> int:
    """Start of the first work, range, call or counter."""
    [(earliest,)] = connection.execute(_EARLIEST).fetchall()
    return int(earliest or 0)


def device_rows(connection: duckdb.DuckDBPyConnection) -> Iterator[DeviceRow]:
    """All work of all streams, by start."""
    return (DeviceRow(*row) for row in _by_start(connection, _DEVICE_ROWS))


def call_rows(connection: duckdb.DuckDBPyConnection) -> Iterator[ThreadRow]:
    """All API calls of all threads, inner ones too, by start, outer ones first."""
    return (ThreadRow(*row) for row in _by_start(connection, _CALL_ROWS))


def range_rows(connection: duckdb.DuckDBPyConnection) -> Iterator[ThreadRow]:
    """Annotation ranges that ended, by start, outer ones first."""
    return (ThreadRow(*row) for row in _by_start(connection, _RANGE_ROWS))


def operator_rows(connection: duckdb.DuckDBPyConnection) -> Iterator[ThreadRow]:
    """Operators and Python functions of the framework, by start, outer ones first."""
    return (ThreadRow(*row) for row in _by_start(connection, _OPERATOR_ROWS))


def counter_rows(connection: duckdb.DuckDBPyConnection) -> Iterator[CounterRow]:
    """Memory as the recorder and the allocator tell it, and what NVML sampled, where its clock is known."""
    return (CounterRow(*row) for row in _rows(connection, _COUNTER_ROWS))


def step_rows(connection: duckdb.DuckDBPyConnection) -> Iterator[StepRow]:
    """The engine's steps in the window."""
    return (StepRow(*row) for row in _rows(connection, _STEP_ROWS))


def _by_start(connection: duckdb.DuckDBPyConnection, sql: str) -> Iterator[tuple[Any, ...]]:
    """Rows in order, a slice of time after the other: DuckDB holds a whole result, however it is fetched."""
    for low, high in _slices(connection, sql):
        bounds = {"low": low, "high": high}
        yield from connection.cursor().execute(f"SELECT * FROM ({sql}) {_SLICE}", bounds).fetchall()


def _slices(connection: duckdb.DuckDBPyConnection, sql: str) -> Iterator[tuple[int | None, int | None]]:
    """Bounds of slices of about `_SLICE_ROWS` rows; the first and the last are open."""
    [(count,)] = connection.execute(f"SELECT count(*) FROM ({sql})").fetchall()
    parts = count // _SLICE_ROWS + 1
    shares = [part / parts for part in range(1, parts)]
    edges: set[int] = set()
    if shares:
        [(found,)] = connection.execute(f"SELECT approx_quantile(start_ns, {shares}) FROM ({sql})").fetchall()
        edges = set(map(int, found))
    yield from pairwise([None, *sorted(edges), None])


def _rows(connection: duckdb.DuckDBPyConnection, sql: str) -> Iterator[tuple[Any, ...]]:
    cursor = connection.cursor()  # rows come while the caller asks other things
    cursor.execute(sql)
    while batch := cursor.fetchmany(_BATCH_ROWS):
        yield from batch


_SLICE = """
WHERE ($low IS NULL OR start_ns >= $low) AND ($high IS NULL OR start_ns < $high)
ORDER BY start_ns, end_ns DESC, source_id, pid
"""

_RANKS = "SELECT source_id, rank FROM source JOIN timeline_source USING (source_id) WHERE rank IS NOT NULL"

_PROCESSES = """
SELECT source_id, pid, any_value(name) FROM process JOIN timeline_source USING (source_id)
WHERE name IS NOT NULL GROUP BY source_id, pid
"""

_THREADS = """
SELECT source_id, pid, tid, any_value(name) FROM thread JOIN timeline_source USING (source_id)
WHERE name IS NOT NULL GROUP BY source_id, pid, tid
"""

_DEVICES = """
SELECT source_id, device_id, any_value(name) FROM device JOIN timeline_source USING (source_id)
WHERE name IS NOT NULL AND device_id IS NOT NULL GROUP BY source_id, device_id
"""

_SOURCES_OF_PIDS = """
SELECT pid, count(DISTINCT source_id) FROM (
    SELECT source_id, pid FROM host_call UNION SELECT source_id, pid FROM device_op
    UNION SELECT source_id, pid FROM nvtx_range JOIN timeline_source USING (source_id)
    UNION SELECT source_id, pid FROM host_op JOIN timeline_source USING (source_id)
)
WHERE pid IS NOT NULL GROUP BY pid ORDER BY pid
"""

_EARLIEST = """
SELECT min(start_ns) FROM (
    SELECT min(start_ns) AS start_ns FROM device_op
    UNION ALL SELECT min(start_ns + shift_ns) FROM api_call JOIN timeline_source USING (source_id)
    UNION ALL SELECT min(start_ns + shift_ns) FROM nvtx_range JOIN timeline_source USING (source_id)
    UNION ALL SELECT min(start_ns + shift_ns) FROM host_op JOIN timeline_source USING (source_id)
    UNION ALL SELECT min(time_ns + shift_ns) FROM gpu_memory_event JOIN timeline_source USING (source_id)
    UNION ALL SELECT min(time_ns + shift_ns) FROM allocator_event JOIN timeline_source USING (source_id)
)
"""

_DEVICE_ROWS = """
SELECT source_id, pid, device_id, stream_id, start_ns, end_ns,
    coalesce(text.text, concat_ws(' ', kind::TEXT, copy_kind::TEXT,
        CASE WHEN src_kind = 'pageable' OR dst_kind = 'pageable' THEN 'pageable' END)),
    family::TEXT, CASE WHEN correlation_id IS NOT NULL THEN hash(source_id, pid, correlation_id) END,
    size_bytes, grid_blocks, block_threads
FROM device_op LEFT JOIN text ON text_id = name_id
"""

_CALL_ROWS = """
SELECT source_id, pid, tid, api_call.start_ns + shift_ns AS start_ns,
    greatest(coalesce(end_ns, api_call.start_ns), api_call.start_ns) + shift_ns AS end_ns,
    coalesce(text.text, '(unnamed)'), coalesce(call_class::TEXT, 'other'),
    CASE WHEN call_class IN ('launch', 'graph', 'copy', 'memset') AND correlation_id IS NOT NULL
        THEN hash(source_id, pid, correlation_id) END
FROM api_call JOIN timeline_source USING (source_id)
LEFT JOIN call_name USING (name_id) LEFT JOIN text ON text_id = name_id
WHERE start_ns IS NOT NULL
"""

_RANGE_ROWS = """
SELECT source_id, pid, tid, nvtx_range.start_ns + shift_ns AS start_ns,
    greatest(end_ns, nvtx_range.start_ns) + shift_ns AS end_ns,
    coalesce(text.text, '(unnamed)'), coalesce(range_kind, 'range'), NULL
FROM nvtx_range JOIN timeline_source USING (source_id) LEFT JOIN text ON text_id = name_id
WHERE start_ns IS NOT NULL AND end_ns IS NOT NULL
"""

_OPERATOR_ROWS = """
SELECT source_id, pid, tid, host_op.start_ns + shift_ns AS start_ns,
    greatest(end_ns, host_op.start_ns) + shift_ns AS end_ns,
    coalesce(text.text, '(unnamed)'), coalesce(op_kind, 'operator'), NULL
FROM host_op JOIN timeline_source USING (source_id) LEFT JOIN text ON text_id = name_id
WHERE start_ns IS NOT NULL AND end_ns IS NOT NULL
"""

_STEP_ROWS = "SELECT step_id, pid, start_ns, end_ns FROM step ORDER BY start_ns, end_ns DESC, step_id"

_COUNTER_ROWS = """
WITH allocated AS (
    SELECT source_id, CASE WHEN device_id IS NULL THEN 'host' ELSE 'GPU ' || device_id END AS place,
        time_ns + shift_ns AS time_ns, allocated_bytes, reserved_bytes
    FROM allocator_event JOIN timeline_source USING (source_id)
),
sampled AS (
    SELECT source_id, 'GPU ' || device_id AS place, memory_used_bytes, busy_share, sm_clock_hz, power_watts,
        time_ns + source.clock_offset_ns
            - (SELECT min(clock_offset_ns) FROM source JOIN timeline_source USING (source_id)) AS time_ns
    FROM gpu_sample JOIN source USING (source_id)
)
SELECT source_id, name, time_ns, value FROM (
    SELECT source_id, concat('GPU ', coalesce(device_id, 0), ' ', coalesce(memory_kind, 'device'),
            ' memory by cudaMalloc (bytes)') AS name, time_ns + shift_ns AS time_ns,
        sum(CASE operation WHEN 'allocate' THEN size_bytes WHEN 'free' THEN -size_bytes END) OVER (
            PARTITION BY source_id, device_id, memory_kind ORDER BY time_ns ROWS UNBOUNDED PRECEDING)::BIGINT AS value
    FROM gpu_memory_event JOIN timeline_source USING (source_id)
    UNION ALL
    SELECT source_id, place || ' memory allocated by the framework (bytes)', time_ns, allocated_bytes FROM allocated
    UNION ALL
    SELECT source_id, place || ' memory reserved by the framework (bytes)', time_ns, reserved_bytes FROM allocated
    UNION ALL SELECT source_id, place || ' memory used, NVML (bytes)', time_ns, memory_used_bytes FROM sampled
    UNION ALL SELECT source_id, place || ' busy, NVML (%)', time_ns, round(100 * busy_share)::BIGINT FROM sampled
    UNION ALL SELECT source_id, place || ' SM clock, NVML (Hz)', time_ns, sm_clock_hz FROM sampled
    UNION ALL SELECT source_id, place || ' power, NVML (W)', time_ns, round(power_watts)::BIGINT FROM sampled
)
WHERE name IS NOT NULL AND time_ns IS NOT NULL AND value IS NOT NULL
ORDER BY source_id, name, time_ns
"""
