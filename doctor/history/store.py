"""Keeps diagnoses in a database and reads them back; any number of writers at once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, Row, Select, Table, create_engine, insert, inspect, select, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateTable, SetColumnComment, SetTableComment

from doctor.errors import HistoryError, ToolMissingError, UsageError
from doctor.formats.private_paths import without_folders
from doctor.history import tables
from doctor.history.address import file_of, parse_address, shown
from doctor.history.entries import HistoryEntry, HistoryFile, HistoryFinding
from doctor.version import __version__

Result = TypeVar("Result")
Part = TypeVar("Part", HistoryFile, HistoryFinding)
MOST_ENTRIES = 10_000
_PATIENCE_S = 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5
_LOCKED = "Could not set lock on file"
_ADVISORY_LOCK = 0x646F63746F72  # "doctor"


class History:
    """One history; a connection lasts as long as one call, so that others get their turn at a file."""

    def __init__(self, address: str) -> None:
        """Name a history; nothing is opened yet.

        Raises:
            UsageError: the address is neither a file nor a URL.
            ToolMissingError: the driver of that database is not installed.
        """
        self._url = parse_address(address)

    def add(self, entry: HistoryEntry) -> None:
        """Keep one diagnosis, whole or not at all; the tables are made where they are missing.

        Raises:
            HistoryError: the database refuses, holds something else, or is of another layout.
        """

        def write(connection: Connection) -> None:
            _prepare(connection, self._url)
            connection.execute(insert(tables.diagnosis), [_diagnosis_row(entry)])
            for table, rows in _dependent_rows(entry):
                if rows:
                    connection.execute(insert(table), rows)

        self._within(write, is_reading=False)

    def entries(self, most: int, evidence: str | None = None) -> tuple[HistoryEntry, ...]:
        """The newest diagnoses, oldest first.

        Args:
            most: at most so many, and never more than `MOST_ENTRIES`.
            evidence: only diagnoses of a file with this base name.

        Raises:
            HistoryError: there is no such history, or the database refuses.
        """
        file = file_of(self._url)
        if file is not None and not file.is_file():
            raise _none_yet(self._url)
        return self._within(lambda connection: _read(connection, self._url, most, evidence), is_reading=True)

    def _within(self, work: Callable[[Connection], Result], *, is_reading: bool) -> Result:
        deadline, pause = time.monotonic() + _PATIENCE_S, _FIRST_PAUSE_S
        while True:
            try:
                with _engine(self._url, is_reading=is_reading).begin() as connection:
                    return work(connection)
            except SQLAlchemyError as error:
                if _LOCKED not in str(error) or time.monotonic() > deadline:
                    raise HistoryError(f"the history {shown(self._url)} {self._reason(error)}") from error
            # DuckDB lets one process at a time write a file: the others come back, not all at once
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _reason(self, error: SQLAlchemyError) -> str:
        if _LOCKED in str(error):
            return f"is being written by another process for over {_PATIENCE_S:.0f} s: try again later"
        cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
        line = without_folders(" ".join(str(cause).split("\n")[0].split()))
        password = self._url.password
        return f"cannot be used: {line.replace(str(password), '***') if password else line}"


def _engine(url: URL, *, is_reading: bool) -> Engine:
    options: dict[str, Any] = {"read_only": True} if is_reading and file_of(url) is not None else {}
    try:
        return create_engine(url, poolclass=NullPool, connect_args=options)
    except ImportError as error:
        extra = ": pip install 'inference-doctor[postgresql]'" if "psycopg" in str(error) else ""
        raise ToolMissingError(f"the driver of {url.get_backend_name()} is not installed{extra}") from error
    except SQLAlchemyError as error:
        raise UsageError(f"no database is called {url.get_backend_name()}: give a file or postgresql://...") from error


def _prepare(connection: Connection, url: URL) -> None:
    """Make the tables once, whoever comes first."""
    if url.get_backend_name() == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _ADVISORY_LOCK})
    elif file_of(url) is not None:
        _refuse_foreign_file(connection, url)
    for table in tables.metadata.sorted_tables:
        connection.execute(CreateTable(table, if_not_exists=True))
    if not _versions(connection):
        _comment(connection)
        row = {"version": tables.LAYOUT_VERSION, "doctor_version": __version__}
        connection.execute(insert(tables.layout), [row])
    _refuse_other_layout(connection, url)


def _comment(connection: Connection) -> None:
    if connection.dialect.supports_comments:
        for table in tables.metadata.sorted_tables:
            connection.execute(SetTableComment(table))
            for column in table.columns:
                connection.execute(SetColumnComment(column))


def _none_yet(url: URL) -> HistoryError:
    return HistoryError(f"there is no history {shown(url)} yet: `doctor diagnose ... --history URL` begins one")


def _is_begun(connection: Connection, url: URL) -> bool:
    if file_of(url) is not None:
        return tables.layout.name in _table_names(connection)
    return inspect(connection).has_table(tables.layout.name)


def _table_names(connection: Connection) -> set[str]:
    """Of a DuckDB file, whose dialect knows no inspection."""
    return set(connection.execute(text("SELECT table_name FROM duckdb_tables() WHERE NOT internal")).scalars())


def _refuse_foreign_file(connection: Connection, url: URL) -> None:
    names = _table_names(connection)
    if names and tables.layout.name not in names:
        raise HistoryError(f"{shown(url)} is a DuckDB file of something else: name another file for the history")


def _refuse_other_layout(connection: Connection, url: URL) -> None:
    versions = _versions(connection)
    if versions != [tables.LAYOUT_VERSION]:
        told = versions[0] if versions else "unknown"
        raise HistoryError(
            f"the history {shown(url)} has layout {told}, this doctor writes {tables.LAYOUT_VERSION}: "
            "begin another one, or use the doctor that wrote it"
        )


def _versions(connection: Connection) -> list[int]:
    return list(connection.execute(select(tables.layout.c.version)).scalars())


def _diagnosis_row(entry: HistoryEntry) -> dict[str, Any]:
    return {column.name: getattr(entry, column.name) for column in tables.diagnosis.columns}


def _dependent_rows(entry: HistoryEntry) -> Iterable[tuple[Table, list[dict[str, Any]]]]:
    own = {"diagnosis_id": entry.diagnosis_id}
    yield tables.evidence, [own | {"place": place} | vars(file) for place, file in enumerate(entry.files)]
    yield tables.figure, [own | {"name": name, "value": value} for name, value in entry.figures.items()]
    yield tables.finding, [own | {"place": place} | vars(found) for place, found in enumerate(entry.findings)]


def _read(connection: Connection, url: URL, most: int, evidence: str | None) -> tuple[HistoryEntry, ...]:
    if file_of(url) is not None:
        _refuse_foreign_file(connection, url)
    if not _is_begun(connection, url):
        raise _none_yet(url)
    _refuse_other_layout(connection, url)
    chosen = select(tables.diagnosis).order_by(
        tables.diagnosis.c.recorded_ms.desc(), tables.diagnosis.c.diagnosis_id.desc()
    )
    if evidence is not None:
        of_file = select(tables.evidence.c.diagnosis_id).where(tables.evidence.c.name == evidence)
        chosen = chosen.where(tables.diagnosis.c.diagnosis_id.in_(of_file))
    rows = connection.execute(chosen.limit(min(most, MOST_ENTRIES))).all()
    ids = [row.diagnosis_id for row in rows]
    files = _by_diagnosis(connection, _of(tables.evidence, ids).order_by(tables.evidence.c.place))
    figures = _by_diagnosis(connection, _of(tables.figure, ids).order_by(tables.figure.c.name))
    findings = _by_diagnosis(connection, _of(tables.finding, ids).order_by(tables.finding.c.place))
    return tuple(
        HistoryEntry(
            **row._mapping,
            files=tuple(_made(HistoryFile, values) for values in files.get(row.diagnosis_id, ())),
            figures={values.name: values.value for values in figures.get(row.diagnosis_id, ())},
            findings=tuple(_made(HistoryFinding, values) for values in findings.get(row.diagnosis_id, ())),
        )
        for row in reversed(rows)
    )


def _made(kind: type[Part], row: Row[Any]) -> Part:
    return kind(**{field.name: getattr(row, field.name) for field in fields(kind)})


def _of(table: Table, ids: list[str]) -> Select[Any]:
    return select(table).where(table.c.diagnosis_id.in_(ids))


def _by_diagnosis(connection: Connection, query: Select[Any]) -> dict[str, list[Row[Any]]]:
    found: dict[str, list[Row[Any]]] = {}
    for row in connection.execute(query):
        found.setdefault(row.diagnosis_id, []).append(row)
    return found
