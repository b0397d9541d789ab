"""Create, open and check case files."""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import duckdb
from duckdb_engine import Dialect
from sqlalchemy.schema import CreateTable

from doctor.case import schema
from doctor.case.connection import IN_MEMORY, connect
from doctor.case.schema import Columns
from doctor.errors import CaseError
from doctor.version import __version__

_Result = TypeVar("_Result")

LARGE_EVIDENCE_BYTES = 16 * 2**20
"""From here on a case costs less in a file than in memory: DuckDB compresses files only."""
LEAST_MEMORY_BYTES = 2**29
"""What DuckDB may take for a large case before it spills; with half of it a rule over eight million calls failed."""


def create_case(path: str | Path = IN_MEMORY, left_out: Columns | None = None) -> duckdb.DuckDBPyConnection:
    """Create an empty case with all tables of `doctor.case.schema`.

    Args:
        path: its file.
        left_out: columns that it does without.

    Raises:
        CaseError: the file exists already or cannot be written.
    """
    if path != IN_MEMORY and Path(path).exists():
        raise CaseError(f"{path} exists already: name another file or remove it first")
    try:
        connection = connect(path)
        _create_tables(connection, left_out or {})
    except (duckdb.Error, OSError) as error:
        raise CaseError(f"cannot create the case file {path}: {_first_line(error)}") from error
    return connection


def create_working_case(evidence_bytes: int, left_out: Columns | None = None) -> duckdb.DuckDBPyConnection:
    """Create an empty case that nobody keeps: in memory, or in a temporary file that goes when the connection does.

    Args:
        evidence_bytes: size of what will be read into it.
        left_out: columns that it does without.

    Raises:
        CaseError: the temporary file cannot be written.
    """
    if evidence_bytes < LARGE_EVIDENCE_BYTES:
        return create_case(IN_MEMORY, left_out)
    try:
        folder = tempfile.mkdtemp(prefix="doctor-case-")
    except OSError as error:
        raise CaseError(f"cannot create a temporary case: {error}") from error
    try:
        connection = create_case(Path(folder, "case.duckdb"), left_out)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(connection, shutil.rmtree, folder, ignore_errors=True)
    _spare_the_disk(connection)
    limit_memory(connection, evidence_bytes)
    return connection


def _spare_the_disk(connection: duckdb.DuckDBPyConnection) -> None:
    """Do not wait until the disk has what nobody keeps: a derivation would wait two hundred times."""
    with suppress(duckdb.CatalogException):  # an older DuckDB always waits
        connection.execute("SET fsync_mode = 'NONE'")


@contextmanager
def naming_case_trouble() -> Iterator[None]:
    """Name a full disk, too little memory or a damaged case for what it is.

    Raises:
        CaseError: there is no room for what was to be written to the case, or it cannot be read.
    """
    try:
        yield
    except duckdb.Error as error:
        if isinstance(error, duckdb.OutOfMemoryException) or "No space left" in str(error):
            raise CaseError(
                f"there is no room for the case ({_first_line(error)}): make some, or set TMPDIR to a larger disk"
            ) from error
        if isinstance(error, duckdb.IOException | duckdb.FatalException) or "corrupt" in str(error).lower():
            raise CaseError(f"the case is damaged: diagnose the evidence again: {_first_line(error)}") from error
        raise


def is_case_file(path: Path) -> bool:
    """Tell by its first bytes whether a file is a DuckDB database, which a saved case is."""
    try:
        if not path.is_file():  # opening a pipe would wait for whoever writes it
            return False
        with path.open("rb") as file:
            return file.read(12)[8:] == b"DUCK"
    except OSError:
        return False


def copy_to_working_case(path: Path) -> duckdb.DuckDBPyConnection:
    """Open a copy of a saved case that may be written and goes when the connection does.

    Raises:
        CaseError: there is no room for the copy.
    """
    folder = tempfile.mkdtemp(prefix="doctor-case-")
    try:
        shutil.copyfile(path, Path(folder, "case.duckdb"))
        connection = connect(Path(folder, "case.duckdb"))
    except (duckdb.Error, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise CaseError(f"cannot make a working copy of {path}: {_first_line(error)}") from error
    weakref.finalize(connection, shutil.rmtree, folder, ignore_errors=True)
    _spare_the_disk(connection)
    limit_memory(connection, path.stat().st_size)
    shut_in(connection)
    return connection


def limit_memory(connection: duckdb.DuckDBPyConnection, evidence_bytes: int) -> None:
    """Let a case of large evidence spill to disk before it fills the machine."""
    if evidence_bytes >= LARGE_EVIDENCE_BYTES:
        most = max(LEAST_MEMORY_BYTES, evidence_bytes // 2)
        connection.execute(f"SET memory_limit = '{most // 2**20} MiB'")


def with_room(connection: duckdb.DuckDBPyConnection, query: Callable[[], _Result]) -> _Result:
    """Run a query; where it does not fit `limit_memory`, give DuckDB what it takes by itself and run it again.

    Raises:
        duckdb.Error: the query is wrong, or does not fit the machine either.
    """
    try:
        return query()
    except duckdb.OutOfMemoryException:
        with suppress(duckdb.Error):  # settings of a case that is shut in stay as they are
            connection.execute("RESET memory_limit")
        return query()


def shut_in(connection: duckdb.DuckDBPyConnection) -> None:
    """Let the case reach no other file, for good: it may come from a stranger, whose views name files of yours."""
    [(is_locked,)] = connection.execute("SELECT current_setting('lock_configuration')").fetchall()
    if not is_locked:  # another connection of this process may have the case open
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")


def open_case(path: str | Path) -> duckdb.DuckDBPyConnection:
    """Open a saved case read-only; a query on it reaches no other file.

    Raises:
        CaseError: the file is missing, is not a case file, or was written by another version of the layout.
    """
    if not Path(path).is_file():
        raise CaseError(f"{path} is not a file: give a case saved with `doctor diagnose ... --save CASE.duckdb`")
    if not is_case_file(Path(path)):
        raise CaseError(f"{path} is not a case file that `doctor diagnose ... --save` wrote")
    try:
        connection = connect(path, read_only=True)
        shut_in(connection)
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
    found = set(connection.execute(_COLUMNS).fetchall())
    missing = [name for name in _columns_of_a_case() if name not in found]
    if missing:
        connection.close()
        raise CaseError(
            f"{path} lacks {'.'.join(missing[0])}, which every case of this doctor has: "
            "diagnose the evidence again with --save"
        )
    return connection


def _columns_of_a_case() -> Iterator[tuple[str, str]]:
    for table in schema.metadata.sorted_tables:
        for column in table.columns:
            yield table.name, column.name


def _create_tables(connection: duckdb.DuckDBPyConnection, left_out: Columns) -> None:
    connection.begin()  # seven hundred small statements: each would go to the disk on its own
    connection.execute(";".join(_statements(left_out)))  # and be parsed on its own
    connection.execute("INSERT INTO schema_version VALUES (?, ?)", [schema.SCHEMA_VERSION, __version__])
    connection.commit()


def _statements(left_out: Columns) -> Iterator[str]:
    dialect = Dialect()
    for table in schema.metadata.sorted_tables:
        without = left_out.get(table.name, frozenset[str]())
        yield str(CreateTable(table).compile(dialect=dialect))
        yield _comment(f'TABLE "{table.name}"', table.comment)
        for column in table.columns:
            if column.name in without:
                yield f'ALTER TABLE "{table.name}" DROP COLUMN "{column.name}"'
            else:
                yield _comment(f'COLUMN "{table.name}"."{column.name}"', column.comment)


def _comment(subject: str, comment: str | None) -> str:
    quoted = (comment or "").replace("'", "''")
    return f"COMMENT ON {subject} IS '{quoted}'"


def _first_line(error: Exception) -> str:
    """What DuckDB says, without the folder that it adds to a file's name."""
    return re.sub(r'"/[^"]*/([^"/]+)"', r'"\1"', str(error).splitlines()[0]) if str(error) else type(error).__name__


_COLUMNS = "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = current_database()"
