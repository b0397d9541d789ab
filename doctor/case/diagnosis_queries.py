"""Typed reads for the diagnosis: evidence files, window, vitals and bounded data for display."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np

from doctor.case.arrays.columns import Scan
from doctor.case.arrays.coverage import covered_between
from doctor.case.store import with_room

TIMELINE_BINS = 120
TOP_KERNELS = 15


@dataclass(frozen=True)
class SourceRow:
    """One evidence file.

    Attributes:
        is_passed_over: it holds device work but another recording stands for the case.
        clock_ahead_ns: how far its clock is ahead of the first rank's, where that was corrected on collectives.
    """

    path: str
    kind: str
    tool: str | None
    is_complete: bool
    notes: tuple[str, ...]
    is_passed_over: bool
    clock_ahead_ns: int | None


@dataclass(frozen=True)
class UnreadFile:
    """Evidence of which nothing could be read; `kind` is None where not even that could be told."""

    path: str
    kind: str | None
    reason: str


@dataclass(frozen=True)
class OtherRunFile:
    """Evidence of another run than the one in the case; `run_id` counts from 2."""

    path: str
    kind: str
    tool: str | None
    is_complete: bool
    run_id: int
    reason: str


@dataclass(frozen=True)
class WindowRow:
    """The steady window; `chosen_by` says how it and its steps were told."""

    start_ns: int
    end_ns: int
    chosen_by: str
    step_count: int


@dataclass(frozen=True)
class VitalsRow:
    """Figures of the window, None where nothing tells.

    Shares are means over devices. Figures of a step are means over the usual steps: those with about as much device
    work as most of their process, so without a prefill among decode steps.
    """

    gpu_busy: float | None
    exposed_communication: float | None
    exposed_copy: float | None
    launches_per_step: float | None
    kernel_median_us: float | None
    syncs_per_step: float | None
    step_seconds: float | None


@dataclass(frozen=True)
class KernelTotal:
    """One distinct kernel name in the window."""

    name: str
    family: str
    count: int
    total_ns: int
    median_ns: float


@dataclass(frozen=True)
class BinShares:
    """One bin of the coarse time-line of the busiest device; shares are 0 to 1."""

    start_ns: int
    compute_share: float
    communication_share: float
    copy_share: float


def rows_in(connection: duckdb.DuckDBPyConnection, table: str) -> bool:
    """Tell whether a table or view exists and holds a row."""
    try:
        return bool(connection.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchall())
    except duckdb.CatalogException:
        return False


def sources(connection: duckdb.DuckDBPyConnection) -> tuple[SourceRow, ...]:
    """Every evidence file of the case, in order of reading."""
    rows = connection.execute(_SOURCES).fetchall()
    return tuple(
        SourceRow(path, kind, tool, is_complete, tuple(json.loads(notes or "[]")), is_passed_over, ahead_ns)
        for path, kind, tool, is_complete, notes, is_passed_over, ahead_ns in rows
    )


def unread_files(connection: duckdb.DuckDBPyConnection) -> tuple[UnreadFile, ...]:
    """Every evidence file that could not be read, in order of trying."""
    return tuple(UnreadFile(*row) for row in connection.execute(_UNREAD_FILES).fetchall())


def other_runs(connection: duckdb.DuckDBPyConnection) -> tuple[OtherRunFile, ...]:
    """Every evidence file that was left out as one of another run, in order of runs and reading."""
    return tuple(OtherRunFile(*row) for row in connection.execute(_OTHER_RUNS).fetchall())


def window(connection: duckdb.DuckDBPyConnection) -> WindowRow | None:
    """The steady window, None where the case holds no device work."""
    rows = connection.execute(_WINDOW).fetchall()
    return WindowRow(*rows[0]) if rows else None


def vitals(connection: duckdb.DuckDBPyConnection) -> VitalsRow:
    """Busy and exposed shares and figures a step."""
    [row] = connection.execute(_VITALS).fetchall()
    return VitalsRow(*row)


def top_kernels(connection: duckdb.DuckDBPyConnection) -> tuple[KernelTotal, ...]:
    """Kernel names by total time in the window, longest first."""
    return tuple(KernelTotal(*row) for row in connection.execute(_TOP_KERNELS, {"most": TOP_KERNELS}).fetchall())


def kernel_time(connection: duckdb.DuckDBPyConnection) -> int:
    """Time of all kernels in the window, added up over devices, in ns."""
    [(total_ns,)] = connection.execute(_KERNEL_TIME).fetchall()
    return int(total_ns)


def timeline(connection: duckdb.DuckDBPyConnection) -> tuple[BinShares, ...]:
    """Shares of each bin of the window in which the busiest device computed, communicated or copied."""
    spans = connection.execute(_WINDOW_SPAN).fetchall()
    if not spans:
        return ()
    [(from_ns, until_ns)] = spans
    edges = np.asarray([from_ns + (until_ns - from_ns) * place // TIMELINE_BINS for place in range(TIMELINE_BINS + 1)])
    busiest = connection.execute(_BUSIEST_DEVICE).fetchall()
    of_device = "source_id = {:d} AND device_id = {:d}".format(*busiest[0]) if busiest else "false"
    rows = Scan(connection, "device_op", f"{of_device} AND end_ns > {from_ns:d} AND start_ns < {until_ns:d}")
    start, end = rows.column("start_ns", np.int64), rows.column("end_ns", np.int64)
    what = rows.column(_WHAT, np.int8)
    covered = [covered_between(start[what == one], end[what == one], edges) for one in range(3)]
    shares = np.stack(covered, axis=1) / np.maximum(np.diff(edges), 1)[:, np.newaxis]
    return tuple(BinShares(at, *of_bin) for at, of_bin in zip(edges.tolist(), shares.tolist(), strict=False))


def select(connection: duckdb.DuckDBPyConnection, sql: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Rows of a rule's SELECT.

    Raises:
        duckdb.Error: the SELECT is wrong.
    """
    rows = with_room(connection, lambda: connection.execute(sql, values).fetchall())
    # a literal such as 2.0 is DECIMAL in DuckDB; rules and JSON want plain numbers
    return [tuple(float(value) if isinstance(value, Decimal) else value for value in row) for row in rows]


_SOURCES = """
SELECT path, kind, tool, is_complete, notes,
    source_id NOT IN (SELECT source_id FROM timeline_source)
        AND source_id IN (SELECT source_id FROM kernel UNION SELECT source_id FROM graph_trace) AS is_passed_over,
    clock_offset.offset_ns
FROM source LEFT JOIN clock_offset USING (source_id)
ORDER BY source_id
"""

_UNREAD_FILES = "SELECT path, kind, reason FROM unread_file ORDER BY source_id"

_OTHER_RUNS = "SELECT path, kind, tool, is_complete, run_id, reason FROM other_run ORDER BY run_id, source_id"

_WINDOW = """
SELECT from_ns, until_ns,
    concat_ws('; ', steady_window.chosen_by, CASE WHEN step_count > 0 THEN 'steps by ' || step_chosen_by END),
    step_count
FROM steady_window, (  -- ranks take a step together
    SELECT coalesce(max(step_count), 0) AS step_count, any_value(chosen_by) AS step_chosen_by
    FROM (SELECT count(*) AS step_count, any_value(chosen_by) AS chosen_by FROM step GROUP BY source_id, pid)
)
"""

_VITALS = """
WITH share AS (
    SELECT avg(busy_ns / (until_ns - from_ns)) AS busy, avg(exposed_communication_ns / (until_ns - from_ns)) AS
    communication,
        avg(exposed_copy_ns / (until_ns - from_ns)) AS copy
    FROM device_busy, steady_window
),
per_step AS (
    SELECT count(*) FILTER (call_class IN ('launch', 'graph')) / nullif(count(DISTINCT step_id), 0) AS launches,
        count(*) FILTER (call_class = 'sync') / nullif(count(DISTINCT step_id), 0) AS syncs
    FROM thread_call WHERE step_kind = 'usual'
),
kernels AS (
    SELECT median(end_ns - start_ns) / 1e3 AS kernel_median_us
    FROM device_op, steady_window WHERE kind = 'kernel' AND start_ns >= from_ns AND start_ns < until_ns
),
usual AS (SELECT avg(end_ns - start_ns) / 1e9 AS step_seconds FROM usual_step)
SELECT busy, communication, copy, launches, kernel_median_us, syncs, step_seconds FROM share, per_step, kernels, usual
"""

_TOP_KERNELS = """
SELECT coalesce(text.text, '(unnamed)'), family, op_count, total_ns, median_ns
FROM (
    SELECT name_id, family, count(*) AS op_count, sum(end_ns - start_ns)::BIGINT AS total_ns,
        median(end_ns - start_ns) AS median_ns
    FROM device_op JOIN steady_window ON start_ns >= from_ns AND start_ns < until_ns
    WHERE kind = 'kernel'
    GROUP BY ALL
) LEFT JOIN text ON text_id = name_id
ORDER BY 4 DESC, 1
LIMIT $most
"""

_KERNEL_TIME = """
SELECT coalesce(sum(end_ns - start_ns), 0)::BIGINT
FROM device_op JOIN steady_window ON start_ns >= from_ns AND start_ns < until_ns WHERE kind = 'kernel'
"""

_BUSIEST_DEVICE = """
SELECT source_id, device_id FROM device_busy ORDER BY busy_ns DESC, source_id, device_id LIMIT 1
"""

_WINDOW_SPAN = "SELECT from_ns, until_ns FROM steady_window"

_WHAT = "CASE family WHEN 'collective' THEN 1 WHEN 'memcpy' THEN 2 WHEN 'memset' THEN 2 ELSE 0 END::TINYINT"
