"""The least that any tool has to do with a recording. Run: `python -m tests.benchmarks.plain_reference KIND FILE`.

sqlite: `sqlite3` of the standard library to Arrow to DuckDB, kernels and API calls, and one query for the gaps.
orjson: `orjson.loads` of the whole file, unpacked in memory where it is a gzip.
"""

from __future__ import annotations

import gzip
import sqlite3
import sys
from pathlib import Path

BATCH_ROWS = 100_000
GZIP_MAGIC = b"\x1f\x8b"
GAPS = """
SELECT sum(start_ns - until_ns) FROM (
    SELECT start_ns, max(end_ns) OVER (ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS until_ns
    FROM kernel)
WHERE start_ns > until_ns
"""


def load_export(export: Path) -> None:
    """Kernels and API calls into DuckDB in memory, and the gaps between kernels."""
    import duckdb
    import pyarrow as pa

    source, target = sqlite3.connect(export), duckdb.connect()
    target.execute(
        "CREATE TABLE kernel (start_ns BIGINT, end_ns BIGINT, stream_id BIGINT, correlation_id BIGINT, name_id BIGINT)"
    )
    target.execute(
        "CREATE TABLE api_call (start_ns BIGINT, end_ns BIGINT, tid BIGINT, correlation_id BIGINT, name_id BIGINT)"
    )
    for table, columns, into in (
        ("CUPTI_ACTIVITY_KIND_KERNEL", "start, end, streamId, correlationId, demangledName", "kernel"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "start, end, globalTid, correlationId, nameId", "api_call"),
    ):
        cursor = source.execute(f"SELECT {columns} FROM {table}")
        while rows := cursor.fetchmany(BATCH_ROWS):
            batch = pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=list("abcde"))
            target.register("batch", batch)
            target.execute(f"INSERT INTO {into} SELECT * FROM batch")
    target.execute(GAPS).fetchall()


def load_trace(trace: Path) -> None:
    """The whole trace as Python objects."""
    import orjson

    data = trace.read_bytes()
    orjson.loads(gzip.decompress(data) if data.startswith(GZIP_MAGIC) else data)


if __name__ == "__main__":
    {"sqlite": load_export, "orjson": load_trace}[sys.argv[1]](Path(sys.argv[2]))
