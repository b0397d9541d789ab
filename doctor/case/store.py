"""Create, open and check case files."""

from __future__ import annotations

from pathlib import Path

import duckdb
from duckdb_engine import Dialect
from sqlalchemy.schema import CreateTable

from doctor.case import schema
from doctor.errors import CaseError
from doctor.version import __version__

IN_MEMORY = ":memory:"


def create_case(path: str | Path = IN_MEMORY) -> duckdb.DuckDBPyConnection:
    """Create an empty case with all tables of `doctor.case.schema`.

    Raises:
        CaseError: the file exists already or cannot be written.
    """
    if path != IN_MEMORY and Path(path).exists():
        raise CaseError(f"{path} exists already: name another file or remove it first")
    try:
        connection = duckdb.connect(str(path))
        _create_tables(connection)
    except (duckdb.Error, OSError) as error:
        raise CaseError(f"cannot create the case file {path}: {_first_line(error)}") from error
    return connection


def open_case(path: str | Path) -> duckdb.DuckDBPyConnection:
    """Open a saved case read-only.

    Raises:
        CaseError: the file is missing, is not a case file, or was written by another version of the layout.
    """
    if not Path(path).is_file():
        raise CaseError(f"{path} is not a file: give a case saved with `doctor diagnose ... --save CASE.duckdb`")
    try:
        connection = duckdb.connect(str(path), read_only=True)
        rows = connection.execute("SELECT version FROM schema_version").fetchall()
    except (duckdb.Error, OSError) as error:
        raise CaseError(
            f"{path} is not a case file that `doctor diagnose ... --save` wrote: {_first_line(error)}"
        ) from error
    if rows != [(schema.SCHEMA_VERSION,)]:
        connection.close()
        raise CaseError(
            f"{path} has layout {rows[0][0] if rows else 'unknown'}, this doctor reads {schema.SCHEMA_VERSION}: "
            "diagnose the evidence again with --save"
        )
    return connection


def _create_tables(connection: duckdb.DuckDBPyConnection) -> None:
    dialect = Dialect()
    for table in schema.metadata.sorted_tables:
        connection.execute(str(CreateTable(table).compile(dialect=dialect)))
        _comment(connection, f'TABLE "{table.name}"', table.comment)
        for column in table.columns:
            _comment(connection, f'COLUMN "{table.name}"."{column.name}"', column.comment)
    connection.execute("INSERT INTO schema_version VALUES (?, ?)", [schema.SCHEMA_VERSION, __version__])


def _comment(connection: duckdb.DuckDBPyConnection, subject: str, comment: str | None) -> None:
    quoted = (comment or "").replace("'", "''")
    connection.execute(f"COMMENT ON {subject} IS '{quoted}'")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
