"""A query that a person typed: run read-only, shown in part, exported whole."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from doctor.errors import CaseError, UsageError

EXAMPLE_QUERY = """SELECT family, count(*) AS kernels, sum(end_ns - start_ns) / 1e6 AS ms
FROM device_op GROUP BY family ORDER BY ms DESC"""
"""Something to begin with: the time of each kind of device work."""
_CSV_ENDINGS = (".csv",)
_PARQUET_ENDINGS = (".parquet", ".pq")
_READING = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}
_ROWS_A_BATCH = 65_536


@dataclass(frozen=True)
class QueryResult:
    """The first rows of an answer; `has_more` where there are others."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    has_more: bool


@dataclass(frozen=True)
class TableNote:
    """One table of the case: how many rows it holds (None where that is not counted) and what it is."""

    name: str
    row_count: int | None
    comment: str


def run_query(connection: duckdb.DuckDBPyConnection, query: str, most: int) -> QueryResult:
    """The first `most` rows of one SELECT, SHOW, DESCRIBE or EXPLAIN.

    Raises:
        CaseError: the query fails, or does more than read.
    """
    try:
        relation = connection.sql(only_reading(query).query)  # a result fetched in part would block the connection
        columns = tuple(relation.columns)
        rows = relation.limit(most + 1).fetchall()
    except duckdb.Error as error:
        raise refused(error) from error
    return QueryResult(columns, tuple(rows[:most]), len(rows) > most)


def export_query(connection: duckdb.DuckDBPyConnection, query: str, target: Path) -> int:
    """Write all rows of a query to a new CSV or Parquet file and return their number.

    Raises:
        UsageError: the ending is neither .csv nor .parquet, or the file exists or cannot be written.
        CaseError: the query fails, or does more than read.
    """
    ending = target.suffix.lower()
    if ending not in _CSV_ENDINGS + _PARQUET_ENDINGS:
        raise UsageError(f"{target.name}: name a file that ends in .csv or .parquet")
    if target.exists():
        raise UsageError(f"{target} exists already: name another file")
    try:
        reader = connection.sql(only_reading(query).query).to_arrow_reader(_ROWS_A_BATCH)
        return _write_parquet(reader, target) if ending in _PARQUET_ENDINGS else _write_csv(reader, target)
    except duckdb.Error as error:
        raise refused(error) from error
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"cannot write {target}: {str(error).splitlines()[0]}") from error


def table_notes(connection: duckdb.DuckDBPyConnection) -> tuple[TableNote, ...]:
    """The tables of the case that hold rows, by name."""
    return tuple(TableNote(*row) for row in connection.execute(_TABLES).fetchall())


def first_rows_of(table: str) -> str:
    """A query for the first rows of a table."""
    quoted = table.replace('"', '""')
    return f'SELECT * FROM "{quoted}" LIMIT 100'


def only_reading(query: str) -> duckdb.Statement:
    """The one statement of a query.

    Raises:
        CaseError: there is none or another, or it does more than read.
        duckdb.Error: it is no SQL.
    """
    statements = duckdb.extract_statements(query)
    if len(statements) != 1:
        raise CaseError("give one statement" if statements else "there is no statement to run")
    if statements[0].type not in _READING:
        raise CaseError("the case is open for reading only: SELECT, SHOW, DESCRIBE, SUMMARIZE or EXPLAIN")
    return statements[0]


def _write_parquet(reader: pa.RecordBatchReader, target: Path) -> int:
    count = 0
    with pq.ParquetWriter(target, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _write_csv(reader: pa.RecordBatchReader, target: Path) -> int:
    """Row by row: Arrow's own writer refuses lists and structures."""
    count = 0
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(reader.schema.names)
        for batch in reader:
            writer.writerows(zip(*(column.to_pylist() for column in batch.columns), strict=True))
            count += batch.num_rows
    return count


def refused(error: duckdb.Error) -> CaseError:
    """What DuckDB says, in one line."""
    if isinstance(error, duckdb.InterruptException):
        return CaseError("the query was stopped")
    return CaseError(" ".join(str(error).split("\n\nLINE", maxsplit=1)[0].split()))


_TABLES = """
SELECT table_name, estimated_size, coalesce(comment, '') FROM duckdb_tables()
WHERE database_name = current_database() AND estimated_size > 0 AND table_name NOT LIKE '\\_%' ESCAPE '\\'
UNION ALL
SELECT view_name, NULL, coalesce(comment, '') FROM duckdb_views()
WHERE database_name = current_database() AND NOT internal
ORDER BY table_name
"""
