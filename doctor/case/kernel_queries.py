"""Typed reads of the kernels of a case: totals by name and by family."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb


@dataclass(frozen=True)
class KernelGroup:
    """Kernels of one name, or of one family.

    Attributes:
        name: of the kernel; of a family, how many names it has.
        family: `gemm`, `attention`, ...
        count: kernels.
        total_ns: added up over streams and devices.
        median_ns: of one kernel.
        longest_ns: the longest one.
        share: of the time of all kernels, 0 to 1.
    """

    name: str
    family: str
    count: int
    total_ns: int
    median_ns: int
    longest_ns: int
    share: float


def kernels_by_name(
    connection: duckdb.DuckDBPyConnection, span_ns: tuple[int, int] | None = None
) -> tuple[KernelGroup, ...]:
    """Every distinct kernel name, most time first; `span_ns` counts only kernels that begin inside it."""
    return _groups(connection, _BY_NAME, span_ns)


def kernels_by_family(
    connection: duckdb.DuckDBPyConnection, span_ns: tuple[int, int] | None = None
) -> tuple[KernelGroup, ...]:
    """Every family of kernels, most time first; `span_ns` counts only kernels that begin inside it."""
    return _groups(connection, _BY_FAMILY, span_ns)


def _groups(
    connection: duckdb.DuckDBPyConnection, sql: str, span_ns: tuple[int, int] | None
) -> tuple[KernelGroup, ...]:
    start_ns, end_ns = span_ns if span_ns is not None else (-(2**62), 2**62)
    rows = connection.execute(sql, {"start": start_ns, "end": end_ns}).fetchall()
    whole = max(sum(row[3] for row in rows), 1)
    return tuple(
        KernelGroup(name, family, count, total_ns, median_ns, longest_ns, total_ns / whole)
        for name, family, count, total_ns, median_ns, longest_ns in rows
    )


_TOTALS = """count(*), sum(end_ns - start_ns)::BIGINT AS total_ns, median(end_ns - start_ns)::BIGINT,
    max(end_ns - start_ns)
FROM device_op LEFT JOIN text ON text_id = name_id
WHERE kind = 'kernel' AND start_ns >= $start AND start_ns < $end"""

_BY_NAME = f"""
SELECT coalesce(text, '(unnamed)') AS name, family::TEXT AS family, {_TOTALS}
GROUP BY name_id, name, family ORDER BY total_ns DESC, name
"""

_BY_FAMILY = f"""
SELECT count(DISTINCT name_id) || CASE WHEN count(DISTINCT name_id) = 1 THEN ' name' ELSE ' names' END,
    family::TEXT AS family, {_TOTALS}
GROUP BY family ORDER BY total_ns DESC, family
"""
