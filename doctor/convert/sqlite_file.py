"""The export as an SQLite file."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from doctor.convert import layout
from doctor.convert.layout import LayoutTable
from doctor.errors import UsageError
from doctor.formats.nsys_report.report import TableRows

_CHUNK_ROWS = 20_000


def write_sqlite(parts: Iterable[TableRows], path: Path) -> dict[str, int]:
    """Write every batch into a new file and return the rows of each table.

    The file appears under its name only when it is whole.

    Raises:
        UsageError: the file exists or cannot be written.
    """
    if path.exists():
        raise UsageError(f"{path} exists already: name a new file, or remove it first")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    counts: dict[str, int] = {}
    try:
        connection = sqlite3.connect(unfinished, isolation_level=None)
        try:
            connection.executescript(
                "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536; BEGIN"
            )
            for part in parts:
                _insert(connection, counts, part)
            connection.execute("COMMIT")
        finally:
            connection.close()
        unfinished.rename(path)
    except (sqlite3.Error, OSError) as error:
        raise UsageError(f"{path} cannot be written: {error}") from error
    finally:
        with contextlib.suppress(OSError):  # on a disk that takes no writing there is nothing to remove
            unfinished.unlink(missing_ok=True)
    return counts


def _insert(connection: sqlite3.Connection, counts: dict[str, int], part: TableRows) -> None:
    table = layout.BY_NAME.get(part.table) or layout.enumeration(part.table)
    if part.table not in counts:
        connection.execute(create_statement(table))
        counts[part.table] = 0
    places = ", ".join("?" for _ in table.columns)
    statement = f'INSERT INTO "{table.name}" VALUES ({places})'
    for start in range(0, part.rows.num_rows, _CHUNK_ROWS):
        connection.executemany(statement, _tuples(part.rows.slice(start, _CHUNK_ROWS)))
    counts[part.table] += part.rows.num_rows


def _tuples(rows: pa.RecordBatch) -> Iterable[tuple[object, ...]]:
    return zip(*(column.to_pylist() for column in rows.columns), strict=True)


def create_statement(table: LayoutTable) -> str:
    """The statement that makes a table of the layout."""
    lines = []
    for column in table.columns:
        words = [f'"{column.name}"', column.sql_type]
        words += ["NOT NULL"] if column.is_required else []
        words += ["PRIMARY KEY"] if column.name == table.key else []
        lines.append("    " + " ".join(words))
    return f'CREATE TABLE "{table.name}" (\n' + ",\n".join(lines) + "\n)"
