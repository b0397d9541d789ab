"""Typed reads for the replay: the launching threads' calls and the device's operations inside a window.

Times come back in nanoseconds relative to the start of the window. Reads the views `host_call`, `call_name`,
`device_op`, `launch` and `launcher`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from doctor.case.arrays.columns import SLICE_ROWS, Scan, fetch, whole
from doctor.case.store import with_room

Int = npt.NDArray[np.signedinteger]
Real = npt.NDArray[np.float64]
Flag = npt.NDArray[np.bool_]

_NAMES = """
SELECT name_id, base_name::VARCHAR AS base_name, call_class::VARCHAR AS call_class, is_blocking_copy
FROM call_name ORDER BY name_id
"""

_HOLDS_HOST = """
coalesce(copy_kind = 'dtoh' AND coalesce(dst_kind, 'pageable') = 'pageable', false)
    OR coalesce(copy_kind = 'htod' AND coalesce(src_kind, 'pageable') = 'pageable' AND size_bytes > {staged:d}, false)
"""
_KIND = "CASE kind WHEN 'kernel' THEN 0 WHEN 'memcpy' THEN 1 WHEN 'memset' THEN 2 ELSE 3 END::TINYINT"

STAGED_COPY_BYTES = 65536
"""Copies from pageable memory up to here are staged by the driver and do not hold the host (CUDA Runtime API, section
API synchronization behavior)."""
_NO_ID = np.iinfo(np.int32).max
"""No case has so many rows."""
NO_PROCESS = -1
"""Stands for a process id that is not recorded."""
HOST_PROBE = "cuKernelGetName"
"""A call that does next to nothing, so that its time tells how fast the host was."""


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
    """Outermost calls of each process's launching threads, in order of start.

    Columns that are functions are read when asked for, one at a time: there may be ten million calls.

    Attributes:
        host_call_id: of the view `host_call`.
        launcher: dense number of a thread, or of threads that take turns. The main one of each process has the number
            of the process, others follow.
        launcher_process: process of each launcher.
        start_ns: relative to the window's start.
        end_ns: likewise.
        correlation_id: -1 where unknown, and everywhere in a recording without `HOST_PROBE`, since nobody asks then.
        name: index into `CallNames`.
    """

    host_call_id: Callable[[], Int]
    launcher: Int
    launcher_process: Int
    start_ns: Callable[[], Real]
    end_ns: Callable[[], Real]
    correlation_id: Callable[[], Int]
    name: Callable[[], Int]


@dataclass(frozen=True)
class RecordedOps:
    """Device operations that started in the window, in order of start; columns as in `RecordedCalls`.

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
    start_ns: Callable[[], Real]
    end_ns: Callable[[], Real]
    host_call_id: Callable[[], Int]
    is_graph: Callable[[], Flag]
    kind: Callable[[], Int]
    holds_host: Callable[[], Flag]
    collective: Callable[[], Int]


@dataclass(frozen=True)
class Recording:
    """What happened in the window. Calls and operations are read when asked for, since both at once fill the memory.

    Attributes:
        calls: reads those of the launching threads.
        ops: reads those of all devices.
        names: functions that `calls.name` points into.
        stream_process: process of each stream.
        stream_device: device of each stream; devices of two processes are two.
    """

    calls: Callable[[], RecordedCalls]
    ops: Callable[[], RecordedOps]
    names: CallNames
    stream_process: Int
    stream_device: Int


@dataclass(frozen=True)
class _Streams:
    """Streams that work in the window: the processes, and of each stream its process and device."""

    processes: tuple[tuple[int, int], ...]
    process: Int
    device: Int

    @staticmethod
    def of(keys: list[tuple[int, int, int, int]]) -> _Streams:
        """Out of (source, process, device, stream) of each stream, in order."""
        processes = tuple(sorted({key[:2] for key in keys}))
        devices = sorted({key[:3] for key in keys})
        return _Streams(
            processes,
            np.asarray([processes.index(key[:2]) for key in keys], dtype=np.int32),
            np.asarray([devices.index(key[:3]) for key in keys], dtype=np.int32),
        )


class _Window(Scan):
    """Rows of one table that start in the window."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, table: str, start_ns: int, end_ns: int) -> None:
        super().__init__(cursor, table, f"start_ns >= {start_ns:d} AND start_ns < {end_ns:d}")
        self._start_ns = start_ns

    def time(self, column: str) -> Real:
        """A time in ns from the start of the window, of every row."""
        return np.asarray(self.column(f"{column} - {self._start_ns:d}", np.float64))


def read_recording(connection: duckdb.DuckDBPyConnection, start_ns: int, end_ns: int) -> Recording:
    """The calls and operations that start in [`start_ns`, `end_ns`) of the case's clock."""
    cursor = connection.cursor()
    names = _read_names(cursor)
    of_devices = _Window(cursor, "device_op", start_ns, end_ns)
    of_host = _Window(cursor, "host_call", start_ns, end_ns)
    groups = of_devices.groups("source_id", f"coalesce(pid, {NO_PROCESS:d})", "device_id", "stream_id")
    keys = [tuple(value or 0 for value in key) for key in groups.keys]
    streams = _Streams.of([(key[0], key[1], key[2], key[3]) for key in keys])
    return Recording(
        lambda: _read_calls(cursor, of_host, streams.processes, names),
        lambda: _read_ops(cursor, of_devices, groups.code),
        names,
        streams.process,
        streams.device,
    )


def read_rows(connection: duckdb.DuckDBPyConnection, sql: str, values: dict[str, Any]) -> tuple[Int, Real | None]:
    """Ids in the first column of `sql` and the numbers in its second, None where it has one column.

    Rows come part by part, since a cure may be for each of ten million calls. A row without an id is left out; a number
    that is NULL comes back as NaN.
    """

    def read() -> list[tuple[Int, Real | None]]:
        return [_ids_and_numbers(part) for part in connection.sql(sql, params=values).to_arrow_reader(SLICE_ROWS)]

    parts = with_room(connection, read)
    ids = np.concatenate([part for part, _ in parts]) if parts else np.zeros(0, dtype=np.int32)
    numbers = [part for _, part in parts if part is not None]
    return ids, np.concatenate(numbers) if numbers else None


def _ids_and_numbers(rows: pa.RecordBatch) -> tuple[Int, Real | None]:
    rows = rows.filter(pc.is_valid(rows.column(0))) if rows.column(0).null_count else rows
    ids = np.clip(rows.column(0).cast(pa.int64()).to_numpy(), -1, _NO_ID).astype(np.int32)
    if rows.num_columns < 2:
        return ids, None
    return ids, rows.column(1).cast(pa.float64()).to_numpy(zero_copy_only=False)


def _read_names(cursor: duckdb.DuckDBPyConnection) -> CallNames:
    rows = fetch(cursor, _NAMES)
    return CallNames(
        whole(rows, "name_id"),
        tuple(rows.column("base_name").to_pylist()),
        tuple(rows.column("call_class").to_pylist()),
        np.asarray(rows.column("is_blocking_copy").to_pylist(), dtype=np.bool_),
    )


def _read_calls(
    cursor: duckdb.DuckDBPyConnection, window: _Window, processes: tuple[tuple[int, int], ...], names: CallNames
) -> RecordedCalls:
    """Calls of every launching thread of each process."""
    place: dict[tuple[int | None, ...], int] = {process: at for at, process in enumerate(processes)}
    rows = cursor.execute("SELECT source_id, pid, launcher_id, tid FROM launcher ORDER BY ALL").fetchall()
    launchers = [(*process, 0) for process in processes]
    launchers += sorted({row[:3] for row in rows if row[2] > 0 and row[:2] in place})
    number = {key: at for at, key in enumerate(launchers)}
    of_thread = {(*row[:2], row[3]): number.get(row[:3], NO_PROCESS) for row in rows}
    threads = window.groups("source_id", "pid", "tid")
    of_group = np.asarray([of_thread.get(key, NO_PROCESS) for key in threads.keys], dtype=np.int32)
    launcher = of_group[threads.code] if len(threads.keys) else threads.code
    del threads
    kept = np.flatnonzero(launcher >= 0) if (launcher < 0).any() else slice(None)
    position = np.zeros(int(names.name_id.max(initial=-1)) + 1, dtype=np.int32)
    position[names.name_id] = np.arange(len(names.name_id))
    correlation = "coalesce(correlation_id, -1)" if HOST_PROBE in names.base_name else "-1::TINYINT"
    return RecordedCalls(
        lambda: window.column("host_call_id::INTEGER", np.int32)[kept],
        launcher[kept],
        np.asarray([place[key[:2]] for key in launchers], dtype=np.int32),
        lambda: window.time("start_ns")[kept],
        lambda: window.time("end_ns")[kept],
        lambda: window.column(correlation, np.int64 if HOST_PROBE in names.base_name else np.int8)[kept],
        lambda: position[window.column("name_id", np.int32)[kept]],
    )


def _read_ops(cursor: duckdb.DuckDBPyConnection, window: _Window, stream: Int) -> RecordedOps:
    device_op_id = window.column("device_op_id::INTEGER", np.int32)
    return RecordedOps(
        device_op_id,
        stream,
        lambda: window.time("start_ns"),
        lambda: window.time("end_ns"),
        lambda: _read_launches(cursor, device_op_id),
        lambda: window.column("kind = 'graph' OR graph_node_id IS NOT NULL", np.bool_),
        lambda: window.column(_KIND, np.int8),
        lambda: window.column(_HOLDS_HOST.format(staged=STAGED_COPY_BYTES), np.bool_),
        lambda: window.column(
            "CASE WHEN family = 'collective' THEN coalesce(name_id, 0) ELSE -1 END::INTEGER", np.int32
        ),
    )


def _read_launches(cursor: duckdb.DuckDBPyConnection, device_op_id: Int) -> Int:
    """Of each operation the call that launched it, -1 where unknown. Ids in a window follow each other."""
    launching = np.full(len(device_op_id), -1, dtype=np.int32)
    if not len(device_op_id):
        return launching
    first, last = int(device_op_id[0]), int(device_op_id[-1])
    rows = fetch(
        cursor,
        "SELECT device_op_id::INTEGER AS device_op_id, host_call_id::INTEGER AS host_call_id FROM launch"
        f" WHERE device_op_id BETWEEN {first:d} AND {last:d}",
    )
    launching[rows.column("device_op_id").to_numpy() - first] = rows.column("host_call_id").to_numpy()
    return launching
