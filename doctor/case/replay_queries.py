"""Typed reads for the replay: the main launching threads' calls and the device's operations inside a window.

Times come back in nanoseconds relative to the start of the window. Reads the views `host_call`, `call_name`,
`device_op`, `launch` and `launching_thread`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]
Real = npt.NDArray[np.float64]
Flag = npt.NDArray[np.bool_]

_PROCESSES = """
CREATE OR REPLACE TEMP TABLE _replay_process AS
SELECT row_number() OVER (ORDER BY source_id, pid) - 1 AS process, source_id, pid
FROM (SELECT DISTINCT source_id, coalesce(pid, -1) AS pid FROM device_op
      WHERE start_ns >= $start AND start_ns < $end)
"""

_STREAMS = """
CREATE OR REPLACE TEMP TABLE _replay_stream AS
SELECT row_number() OVER (ORDER BY process, device_id, stream_id) - 1 AS stream,
    dense_rank() OVER (ORDER BY process, device_id) - 1 AS device, *
FROM (SELECT DISTINCT op.source_id, process, op.pid, device_id, stream_id
      FROM device_op AS op JOIN _replay_process AS p
        ON op.source_id = p.source_id AND coalesce(op.pid, -1) = p.pid
      WHERE start_ns >= $start AND start_ns < $end)
"""

_CALLS = """
SELECT host_call_id, process, start_ns - $start AS start_ns, end_ns - $start AS end_ns,
    coalesce(correlation_id, -1) AS correlation_id, name_id
FROM host_call
JOIN (SELECT source_id, pid, tid, process
      FROM launching_thread JOIN _replay_process USING (source_id, pid) WHERE is_main) USING (source_id, pid, tid)
WHERE start_ns >= $start AND start_ns < $end
ORDER BY host_call_id
"""

_OPS = """
SELECT device_op_id, stream, start_ns - $start AS start_ns, end_ns - $start AS end_ns,
    coalesce(host_call_id, -1) AS host_call_id, kind = 'graph' OR graph_node_id IS NOT NULL AS is_graph,
    CASE kind WHEN 'kernel' THEN 0 WHEN 'memcpy' THEN 1 WHEN 'memset' THEN 2 ELSE 3 END AS kind,
    coalesce(copy_kind = 'dtoh' AND coalesce(dst_kind, 'pageable') = 'pageable', false)
        OR coalesce(copy_kind = 'htod' AND coalesce(src_kind, 'pageable') = 'pageable' AND size_bytes > $staged, false)
        AS holds_host,
    CASE WHEN family = 'collective' THEN coalesce(name_id, 0) ELSE -1 END AS collective
FROM device_op AS op
JOIN _replay_stream AS s ON op.source_id = s.source_id AND coalesce(op.pid, -1) = coalesce(s.pid, -1)
    AND op.device_id = s.device_id AND op.stream_id = s.stream_id
LEFT JOIN launch USING (device_op_id)
WHERE start_ns >= $start AND start_ns < $end
ORDER BY device_op_id
"""

_NAMES = """
SELECT name_id, base_name::VARCHAR AS base_name, call_class::VARCHAR AS call_class, is_blocking_copy
FROM call_name ORDER BY name_id
"""

STAGED_COPY_BYTES = 65536
"""Copies from pageable memory up to here are staged by the driver and do not hold the host (CUDA Runtime API, section
API synchronization behavior)."""


@dataclass(frozen=True)
class CallNames:
    """Distinct API functions, one element a function.

    Attributes:
        name_id: ascending.
        base_name: function without version suffixes.
        call_class: launch, graph, sync, copy, memset, alloc, module, capture, event, other.
        is_blocking_copy: copies that return only when done.
    """

    name_id: Int
    base_name: tuple[str, ...]
    call_class: tuple[str, ...]
    is_blocking_copy: Flag


@dataclass(frozen=True)
class RecordedCalls:
    """Outermost calls of the main launching thread of each process, in order of start.

    Attributes:
        host_call_id: of the view `host_call`.
        process: dense number of (source, process).
        start_ns: relative to the window's start.
        end_ns: likewise.
        correlation_id: -1 where unknown.
        name: index into `CallNames`.
    """

    host_call_id: Int
    process: Int
    start_ns: Real
    end_ns: Real
    correlation_id: Int
    name: Int


@dataclass(frozen=True)
class RecordedOps:
    """Device operations that started in the window, in order of start.

    Attributes:
        device_op_id: of the view `device_op`.
        stream: dense number of (source, process, device, stream).
        start_ns: relative to the window's start.
        end_ns: likewise; may lie after the window.
        host_call_id: the call that launched it, -1 where unknown.
        is_graph: part of a CUDA graph launch.
        kind: 0 kernel, 1 copy, 2 memory set, 3 whole graph.
        holds_host: a copy whose call returns only when it is done, by the kind of its memory.
        collective: a number for each name of a collective, -1 for everything else.
    """

    device_op_id: Int
    stream: Int
    start_ns: Real
    end_ns: Real
    host_call_id: Int
    is_graph: Flag
    kind: Int
    holds_host: Flag
    collective: Int


@dataclass(frozen=True)
class Recording:
    """What happened in the window.

    Attributes:
        calls: main threads.
        ops: all devices.
        names: functions that `calls.name` points into.
        stream_process: process of each stream.
        stream_device: device of each stream; devices of two processes are two.
    """

    calls: RecordedCalls
    ops: RecordedOps
    names: CallNames
    stream_process: Int
    stream_device: Int


def read_recording(connection: duckdb.DuckDBPyConnection, start_ns: int, end_ns: int) -> Recording:
    """Read the calls and operations that start in [`start_ns`, `end_ns`) of the case's clock."""
    cursor = connection.cursor()  # its temporary tables are its own: nothing is left behind in the case
    window = {"start": start_ns, "end": end_ns}
    cursor.execute(_PROCESSES, window)
    cursor.execute(_STREAMS, window)
    names = _read_names(cursor)
    calls = _read_calls(cursor, window, names)
    ops = _read_ops(cursor, window)
    streams = _columns(cursor, "SELECT process, device FROM _replay_stream ORDER BY stream", {})
    return Recording(calls, ops, names, _int(streams["process"]), _int(streams["device"]))


def read_rows(connection: duckdb.DuckDBPyConnection, sql: str, values: dict[str, Any]) -> tuple[Int, Real | None]:
    """Ids in the first column of `sql` and the numbers in its second, None where it has one column.

    A number that is NULL comes back as NaN.
    """
    columns = list(_columns(connection, sql, values).values())
    ids = np.ma.compressed(np.ma.asarray(columns[0])).astype(np.int64)
    if len(columns) < 2:
        return ids, None
    kept = ~np.ma.getmaskarray(np.ma.asarray(columns[0]))
    numbers = np.ma.filled(np.ma.asarray(columns[1], dtype=np.float64), np.nan)
    return ids, np.asarray(numbers[kept], dtype=np.float64)


def _read_names(cursor: duckdb.DuckDBPyConnection) -> CallNames:
    columns = _columns(cursor, _NAMES, {})
    return CallNames(
        _int(columns["name_id"]),
        tuple(str(name) for name in columns["base_name"]),
        tuple(str(name) for name in columns["call_class"]),
        np.asarray(columns["is_blocking_copy"], dtype=np.bool_),
    )


def _read_calls(cursor: duckdb.DuckDBPyConnection, window: dict[str, int], names: CallNames) -> RecordedCalls:
    columns = _columns(cursor, _CALLS, window)
    return RecordedCalls(
        _int(columns["host_call_id"]),
        _int(columns["process"]),
        _real(columns["start_ns"]),
        _real(columns["end_ns"]),
        _int(columns["correlation_id"]),
        np.searchsorted(names.name_id, _int(columns["name_id"])),
    )


def _read_ops(cursor: duckdb.DuckDBPyConnection, window: dict[str, int]) -> RecordedOps:
    columns = _columns(cursor, _OPS, {**window, "staged": STAGED_COPY_BYTES})
    return RecordedOps(
        _int(columns["device_op_id"]),
        _int(columns["stream"]),
        _real(columns["start_ns"]),
        _real(columns["end_ns"]),
        _int(columns["host_call_id"]),
        np.asarray(columns["is_graph"], dtype=np.bool_),
        _int(columns["kind"]),
        np.asarray(columns["holds_host"], dtype=np.bool_),
        _int(columns["collective"]),
    )


def _columns(cursor: duckdb.DuckDBPyConnection, sql: str, values: dict[str, Any]) -> dict[str, Any]:
    return cursor.execute(sql, values).fetchnumpy()


def _int(column: Any) -> Int:
    return np.asarray(column, dtype=np.int64)


def _real(column: Any) -> Real:
    return np.asarray(column, dtype=np.float64)
