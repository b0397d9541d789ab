"""Makes large recordings out of small real ones: the work repeated in time, with ids shifted so that joins hold."""

from __future__ import annotations

import gzip
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
)
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
    span, ids = connection.execute(
        "SELECT max(end) - min(start) + 1000, max(correlationId) + 1 FROM CUPTI_ACTIVITY_KIND_RUNTIME"
    ).fetchone()
    shift = {"start": span, "end": span, "correlationId": ids}
    connection.execute("CREATE TEMP TABLE repetition (i)")
    connection.executemany("INSERT INTO repetition VALUES (?)", [(i,) for i in range(1, -(-kernels // there))])
    for table in _SHIFTED_TABLES:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        shifted = ", ".join(f'"{name}" + i * {shift[name]}' if name in shift else f'"{name}"' for name in columns)
        connection.execute(f"CREATE TEMP TABLE once AS SELECT * FROM {table}")
        connection.execute(f"INSERT INTO main.{table} SELECT {shifted} FROM repetition CROSS JOIN once")
        connection.execute("DROP TABLE temp.once")
    connection.close()


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
    end = text.rindex("]")
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
