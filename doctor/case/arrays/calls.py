"""API calls of the case in order of start; a driver call inside a runtime call belongs to the runtime call."""

from __future__ import annotations

from dataclasses import dataclass, replace

import duckdb
import numpy as np

from doctor.case.arrays.columns import (
    UNKNOWN,
    Code,
    Flag,
    Groups,
    Int,
    Scan,
    bounds_of,
    by_group,
    by_start,
    fetch,
    gather,
    in_groups,
    in_order,
    reached_before,
    scatter,
    whole,
)

_NAMES = """
SELECT name_id, base_name::VARCHAR AS base_name, call_class::VARCHAR AS call_class, is_blocking_copy
FROM call_name ORDER BY name_id
"""


@dataclass(frozen=True)
class Threads:
    """Threads that called the API, one element a thread, in order of source, process and thread id.

    Attributes:
        keys: source id, process id, thread id.
        process: number of the thread's (source id, process id).
        processes: source id and process id of each process.
        is_known: process and thread are recorded.
    """

    keys: tuple[tuple[int | None, ...], ...]
    process: Code
    processes: tuple[tuple[int | None, ...], ...]
    is_known: Flag

    @staticmethod
    def of(keys: tuple[tuple[int | None, ...], ...]) -> Threads:
        """Threads by their keys, which are in order."""
        processes = tuple(dict.fromkeys(key[:2] for key in keys))
        number = {process: at for at, process in enumerate(processes)}
        return Threads(
            keys,
            np.asarray([number[key[:2]] for key in keys], dtype=np.int32),
            processes,
            np.asarray([key[1] is not None and key[2] is not None for key in keys], dtype=np.bool_),
        )


@dataclass(frozen=True)
class CallNames:
    """Distinct API functions, in order of name id."""

    name_id: Int
    base_name: tuple[str, ...]
    call_class: tuple[str, ...]
    is_blocking_copy: tuple[bool, ...]

    def in_class(self, *wanted: str) -> Flag:
        """Of each function, whether it is of one of the classes."""
        return np.asarray([one in wanted for one in self.call_class], dtype=np.bool_)


@dataclass(frozen=True)
class HostCalls:
    """Outermost calls in order of start; the position of a call is its `host_call_id`.

    Attributes:
        threads: the threads.
        names: the functions.
        thread: of each call.
        name: of each call, a position in `names`.
        start: ns on the case's clock.
        end: likewise.
        silence: ns since the thread's earlier calls ended, `UNKNOWN` for its first.
        correlation: `UNKNOWN` where not recorded.
        inner_outer: of each nested call that can be told by its correlation id, the call that it is part of.
        inner_correlation: its correlation id.
    """

    threads: Threads
    names: CallNames
    thread: Code
    name: Code
    start: Int
    end: Int
    silence: Int
    correlation: Int
    inner_outer: Int
    inner_correlation: Int

    def times_alone(self) -> HostCalls:
        """The same without silences and correlation ids, once these are stored."""
        return replace(self, silence=self.silence[:0].copy(), correlation=self.correlation[:0].copy())


def read_calls(connection: duckdb.DuckDBPyConnection) -> HostCalls:
    """Read the calls of the diagnosed sources, on the case's clock."""
    shifts = connection.execute("SELECT source_id, shift_ns FROM timeline_source ORDER BY source_id").fetchall()
    sources = ", ".join(str(source_id) for source_id, _ in shifts)
    shift = f"CASE source_id {' '.join(f'WHEN {source_id:d} THEN {ns:d}' for source_id, ns in shifts)} END"
    rows = Scan(connection, "api_call", f"source_id IN ({sources}) AND start_ns IS NOT NULL" if shifts else "false")
    shift = shift if shifts else "0"
    names = _read_names(connection)
    groups = rows.groups("source_id", "pid", "tid")
    threads, thread = Threads.of(groups.keys), groups.code
    start = np.asarray(rows.column(f"start_ns + {shift}", np.int64))
    end = np.asarray(rows.column(f"coalesce(end_ns, start_ns) + {shift}", np.int64))
    correlation = rows.whole("correlation_id")
    name = _positions(names.name_id, rows.groups("name_id"))
    del groups
    order = by_start(start, lambda rows: (-end[rows], thread[rows]))  # of calls in one thread the longest first
    if (order[1:] < order[:-1]).any():  # most recordings lie in order
        start, end, thread = gather(start, order), gather(end, order), gather(thread, order)
        correlation, name = gather(correlation, order), gather(name, order)
    del order
    silence, is_outermost = _silences(start, end, thread, len(threads.keys))
    is_kept = is_outermost & (name >= 0)
    inner = np.flatnonzero(~is_outermost & (correlation != UNKNOWN) & gather(threads.is_known, thread))
    outer = _outer_calls(is_kept, thread, inner, len(threads.keys))
    inner, outer = inner[outer >= 0], outer[outer >= 0]
    dropped = np.flatnonzero(~is_kept)
    kept = is_kept if len(dropped) else slice(None)
    return HostCalls(
        threads,
        names,
        thread[kept],
        name[kept],
        start[kept],
        end[kept],
        silence[kept],
        correlation[kept],
        outer - np.searchsorted(dropped, outer),
        correlation[inner],
    )


def _read_names(connection: duckdb.DuckDBPyConnection) -> CallNames:
    rows = fetch(connection, _NAMES)
    words = (tuple(rows.column(name).to_pylist()) for name in ("base_name", "call_class", "is_blocking_copy"))
    return CallNames(whole(rows, "name_id"), *words)


def _positions(sorted_ids: Int, ids: Groups) -> Code:
    """Of each row, the position of its id among sorted ones, -1 where it is not there."""
    place = {one: at for at, one in enumerate(sorted_ids.tolist())}
    return gather(np.asarray([*(place.get(key, -1) for (key,) in ids.keys), -1], dtype=np.int32), ids.code)


def _silences(start: Int, end: Int, thread: Code, thread_count: int) -> tuple[Int, Flag]:
    """Time since the thread's earlier calls ended, `UNKNOWN` for its first; and which calls begin after them."""
    order = in_groups(thread, thread_count)
    busy_until = reached_before(in_order(end, order), bounds_of(in_order(thread, order), thread_count))
    if not isinstance(order, slice):
        by_thread, busy_until = busy_until, np.empty_like(busy_until)
        scatter(by_thread, order, into=busy_until)
    is_first = busy_until == UNKNOWN
    is_outermost = is_first | (start >= busy_until)
    np.subtract(start, busy_until, out=busy_until, where=~is_first)
    return busy_until, is_outermost


def _outer_calls(is_kept: Flag, thread: Code, inner: Int, thread_count: int) -> Int:
    """The last kept call of its thread before each nested one, -1 where there is none."""
    if not len(inner):
        return inner
    order = by_group(thread, thread_count)
    row = np.where(is_kept[order], order, -1)
    last = np.empty(len(order), dtype=np.int64)
    last[order] = np.maximum(reached_before(row, bounds_of(thread[order], thread_count)), -1)
    return last[inner]
