"""Makes large recordings out of small real ones: the work repeated in time, with ids shifted so that joins hold."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sqlite3
from pathlib import Path

_SHIFTED_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "NVTX_EVENTS",
    "OSRT_API",
    "PROFILER_OVERHEAD",
)
"""What `replicate_report` repeats too: the two make the same recording."""
_NVTX_RANGES = (59, 60)
_EVENT_NUMBER = re.compile(r'"(ts|correlation|External id|id)": (-?\d+)(?:\.(\d+))?')


def replicate_sqlite(source: Path, target: Path, kernels: int) -> None:
    """Write an nsys SQLite export with at least so many kernels.

    Args:
        source: a real export, plain or gzip.
        target: file to write.
        kernels: wanted rows of CUPTI_ACTIVITY_KIND_KERNEL.
    """
    with (gzip.open if source.suffix == ".gz" else open)(source, "rb") as packed, target.open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    connection = sqlite3.connect(target, isolation_level=None)
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    (there,) = connection.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    there_are = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    tables = [table for table in _SHIFTED_TABLES if table in there_are]
    span = _span(connection, tables)
    (ids,) = connection.execute("SELECT max(correlationId) + 1 FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()
    shift = {"start": span, "end": span, "timestamp": span, "correlationId": ids}
    connection.execute("CREATE TEMP TABLE repetition (i)")
    connection.executemany("INSERT INTO repetition VALUES (?)", [(i,) for i in range(1, -(-kernels // there))])
    for table in tables:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        shifted = ", ".join(f'"{name}" + i * {shift[name]}' if name in shift else f'"{name}"' for name in columns)
        connection.execute(f"CREATE TEMP TABLE once AS SELECT * FROM {table} WHERE {_repeated(table)}")
        connection.execute(f"INSERT INTO main.{table} SELECT {shifted} FROM repetition CROSS JOIN once")
        connection.execute("DROP TABLE temp.once")
    connection.close()


def _repeated(table: str) -> str:
    """Condition on the rows that are repeated: domains of NVTX are made once."""
    return f"eventType IN {_NVTX_RANGES}" if table == "NVTX_EVENTS" else "true"


def _span(connection: sqlite3.Connection, tables: list[str]) -> int:
    """Nanoseconds from the first to the last time in some tables, and a little more."""
    starts, ends = [], []
    for table in tables:
        columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        if columns >= {"start", "end"}:
            query = f"SELECT min(start), max(end) FROM {table} WHERE {_repeated(table)}"
            start, end = connection.execute(query).fetchone()
            starts += [start] if start is not None else []
            ends += [end] if end is not None else []
    return int(max(ends) - min(starts) + 1000)


def replicate_kineto(source: Path, target: Path, events: int) -> None:
    """Write a plain Kineto trace with at least so many events.

    Args:
        source: a real trace as the profiler wrote it (events one below the other), plain or gzip.
        target: file to write.
        events: wanted elements of `traceEvents`.
    """
    with (gzip.open if source.suffix == ".gz" else open)(source, "rt") as packed:
        text = packed.read()
    start = text.index("[", text.index('"traceEvents"')) + 1
    _, behind = json.JSONDecoder().raw_decode(text, start - 1)  # the recorder's own messages may follow, in other lists
    end = behind - 1
    body = text[start:end].rstrip()
    there = body.count('"ph":')
    times = [int(found[2]) for found in _EVENT_NUMBER.finditer(body) if found[1] == "ts"]
    largest = max(int(found[2]) for found in _EVENT_NUMBER.finditer(body) if found[1] != "ts")
    span = max(times) - min(times) + 1000
    with target.open("w") as out:
        out.write(text[:start])
        for repetition in range(-(-events // there)):
            out.write("," if repetition else "")
            out.write(_shifted(body, repetition * span, repetition * (largest + 1)))
        out.write(text[end:])


def _shifted(body: str, microseconds: int, ids: int) -> str:
    def shifted(found: re.Match[str]) -> str:
        fraction = f".{found[3]}" if found[3] else ""
        return f'"{found[1]}": {int(found[2]) + (microseconds if found[1] == "ts" else ids)}{fraction}'

    return _EVENT_NUMBER.sub(shifted, body)
