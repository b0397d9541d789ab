"""Makes the folders that `nsys export --type parquetdir` and `arrowdir` would write, out of a real SQLite export.

Column names and values are those of the export; types are as wide as Arrow writers choose them: unsigned ids,
dictionary texts.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def write_parquet_folder(export: Path, folder: Path) -> None:
    """Write one Parquet file a table."""
    folder.mkdir()
    for name, table in _tables(export):
        pq.write_table(table, folder / f"{name}.parquet")


def write_arrow_folder(export: Path, folder: Path) -> None:
    """Write one Arrow IPC file a table."""
    folder.mkdir()
    for name, table in _tables(export):
        with pa.OSFile(str(folder / f"{name}.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=1000)


def _tables(export: Path) -> list[tuple[str, pa.Table]]:
    with closing(sqlite3.connect(f"{export.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return [(name, _table(connection, name)) for name in names]


def _table(connection: sqlite3.Connection, name: str) -> pa.Table:
    described = connection.execute(f'SELECT name, type FROM pragma_table_info("{name}")').fetchall()
    rows = connection.execute(f'SELECT * FROM "{name}"').fetchall()
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(described)
    arrays = [_array(column, kind, values) for (column, kind), values in zip(described, columns, strict=True)]
    return pa.table(arrays, names=[column for column, _ in described])


def _array(column: str, kind: str, values: tuple[object, ...]) -> pa.Array:
    if kind == "TEXT":
        return pa.array(values, pa.string()).dictionary_encode()
    if kind == "REAL":
        return pa.array(values, pa.float64())
    return pa.array(values, pa.uint64() if column.startswith("global") and _fits(values) else pa.int64())


def _fits(values: tuple[object, ...]) -> bool:
    return all(value is None or (isinstance(value, int) and value >= 0) for value in values)
