"""SQLite exports of Nsight Systems: rows that are private go, texts lose their folders, the file is packed anew.

Nothing of what was deleted stays in free pages. Names of kernels, API functions, NVTX ranges and traced threads stay.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from doctor.errors import DamagedEvidenceError
from doctor.redact.masking import PATH, SYMBOL, hide_all, hide_folders
from doctor.redact.secrets import MASK, Secrets
from doctor.redact.sqlite_texts import treatment

_NAME_COLUMNS = ("demangledName", "shortName", "mangledName", "nameId", "textId")
_SYMBOL_COLUMNS = ("symbol", "module")
_PRIVATE_TABLES = ("ANALYSIS_FILE", "ProcessStreams")
_SETTINGS = ("META_DATA_CAPTURE", "META_DATA_EXPORT", "EXPORT_META_DATA")
_PRIVATE_SETTING = re.compile(
    r"ARGUMENT|ENVIRONMENT|COMMAND|WORKING_DIR|USER|HOST|DISPLAY_NAME|_FILE$|_PATH(_ABS)?$|PATH_ABS|OUTPUT|INPUT"
)
_PLAIN_VALUE = re.compile(r"[\w.:+ -]{0,40}")
_PUBLIC_PROPERTIES = (1, 2, 3, 5, 7, 13, 14, 101, 203, 205, 600, 601, 605, 611, 618)
_HOST_PROPERTY, _ENVIRONMENT_PROPERTY = 619, 610
_HEADER_BYTES, _SPARE_BYTES = 100, 64 << 20
_DISTINCT_TEXTS = 65_536
"""Of a column, treated once each."""
_THREAD_MASK = (1 << 24) - 1


def redact_sqlite(path: Path, target: Path) -> None:
    """Write a copy of an export without anything private.

    Raises:
        DamagedEvidenceError: SQLite cannot read all of it.
    """
    _check_size(path)
    shutil.copyfile(path, target)
    try:
        connection = sqlite3.connect(target, isolation_level=None)
        try:
            connection.text_factory = bytes
            connection.executescript(
                "PRAGMA trusted_schema = OFF; PRAGMA secure_delete = ON; PRAGMA journal_mode = OFF"
            )
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN")
            _Redaction(connection).run()
            connection.execute("COMMIT")
            connection.execute("VACUUM")
        finally:
            connection.close()
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite quotes damaged names in its messages
        raise DamagedEvidenceError(f"{path} is damaged ({error}): redact the whole export instead") from error


def _check_size(path: Path) -> None:
    """Refuse a file with much behind its last page before it is copied."""
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    page, pages = int.from_bytes(header[16:18], "big"), int.from_bytes(header[28:32], "big")
    told = pages * (65_536 if page == 1 else page)
    if told and path.stat().st_size > 2 * told + _SPARE_BYTES:
        raise DamagedEvidenceError(f"{path} is far longer than it says: redact the whole export instead")


@dataclass(frozen=True)
class _Table:
    name: str
    columns: tuple[str, ...]

    def has(self, *columns: str) -> bool:
        return set(columns) <= set(self.columns)


class _Redaction:
    """One open copy."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type IN ('trigger', 'view')"
        ).fetchall():
            for kind in ("TRIGGER", "VIEW"):
                connection.execute(f"DROP {kind} IF EXISTS {_quoted(name.decode())}")
        names = connection.execute(_TABLES)
        self._tables = {
            name: _Table(name, self._columns(name)) for name in (row[0].decode() for row in names.fetchall())
        }
        self._pattern = self._harvest().pattern()
        for name in self._rows("SELECT name FROM sqlite_master WHERE name LIKE 'sqlite\\_stat%' ESCAPE '\\'"):
            connection.execute(f"DROP TABLE {_quoted(_decoded(name[0]))}")  # they quote values of columns

    def run(self) -> None:
        """Take out everything private."""
        spoken = self._distinct(_NAME_COLUMNS, besides="ThreadNames")
        symbols = self._distinct(_SYMBOL_COLUMNS)
        traced = self._traced_processes()
        other_threads = self._untraced_thread_names(traced)
        spoken |= self._traced_thread_names(traced)
        self._drop_rows(traced)
        self._hide_strings(spoken, symbols - other_threads)
        self._hide_texts()

    def _columns(self, table: str) -> tuple[str, ...]:
        return tuple(row[1].decode() for row in self._connection.execute(f"PRAGMA table_info({_quoted(table)})"))

    def _rows(self, query: str) -> Iterator[tuple[object, ...]]:
        return iter(self._connection.execute(query).fetchall())

    def _distinct(self, columns: tuple[str, ...], besides: str = "") -> set[int]:
        found: set[int] = set()
        for table in self._tables.values():
            for column in set(columns) & set(table.columns):
                if table.name != besides:
                    query = f"SELECT DISTINCT {_quoted(column)} FROM {_quoted(table.name)}"
                    found.update(value for (value,) in self._rows(query) if isinstance(value, int))
        return found

    def _traced_processes(self) -> set[int]:
        found: set[int] = set()
        for table in self._tables.values():
            if table.name in {"ThreadNames", "PROCESSES", "DIAGNOSTIC_EVENT", *_PRIVATE_TABLES}:
                continue
            for column in {"globalPid", "globalTid"} & set(table.columns):
                query = f"SELECT DISTINCT {_quoted(column)} & ~{_THREAD_MASK} FROM {_quoted(table.name)}"
                found.update(value for (value,) in self._rows(query) if isinstance(value, int))
        return found

    def _thread_names(self) -> Iterator[tuple[int, int]]:
        table = self._tables.get("ThreadNames")
        if table is not None and table.has("nameId", "globalTid"):
            for name_id, thread in self._rows("SELECT nameId, globalTid FROM ThreadNames"):
                if isinstance(name_id, int) and isinstance(thread, int):
                    yield name_id, thread & ~_THREAD_MASK

    def _traced_thread_names(self, traced: set[int]) -> set[int]:
        return {name_id for name_id, process in self._thread_names() if process in traced}

    def _untraced_thread_names(self, traced: set[int]) -> set[int]:
        return {name_id for name_id, process in self._thread_names() if process not in traced}

    def _drop_rows(self, traced: set[int]) -> None:
        execute = self._connection.execute
        for name in _PRIVATE_TABLES:
            if name in self._tables:
                execute(f"DELETE FROM {_quoted(name)}")
        execute("CREATE TEMP TABLE traced (process INTEGER PRIMARY KEY)")
        self._connection.executemany("INSERT INTO traced VALUES (?)", [(process,) for process in traced])
        if "PROCESSES" in self._tables and self._tables["PROCESSES"].has("globalPid"):
            process = f"globalPid & ~{_THREAD_MASK}"
            execute(f"DELETE FROM PROCESSES WHERE globalPid IS NULL OR {process} NOT IN (SELECT process FROM traced)")
        if "TARGET_INFO_SYSTEM_ENV" in self._tables:
            kept = ", ".join(map(str, _PUBLIC_PROPERTIES))
            execute(f"DELETE FROM TARGET_INFO_SYSTEM_ENV WHERE nameEnum NOT IN ({kept})")
        for name in _SETTINGS:
            if name in self._tables:
                self._drop_settings(name)

    def _drop_settings(self, table: str) -> None:
        for row_id, name, value in self._rows(f"SELECT rowid, name, value FROM {table}"):
            words = value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
            name_text = name.decode("utf-8", "replace") if isinstance(name, bytes) else ""
            is_public = not _PRIVATE_SETTING.search(name_text) and _PLAIN_VALUE.fullmatch(words)
            if not is_public:
                self._connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (row_id,))

    def _hide_strings(self, spoken: set[int], symbols: set[int]) -> None:
        if "StringIds" not in self._tables:
            return
        for string_id, value in self._rows("SELECT id, CAST(value AS BLOB) FROM StringIds"):
            if string_id in spoken or not isinstance(value, bytes) or not isinstance(string_id, int):
                continue
            is_symbol = string_id in symbols and (PATH.fullmatch(value) or SYMBOL.fullmatch(value))
            hidden = self._hide(value) if is_symbol else hide_all(value)
            if hidden != value:
                self._connection.execute(
                    "UPDATE StringIds SET value = CAST(? AS TEXT) WHERE id = ?", (hidden, string_id)
                )

    def _hide_texts(self) -> None:
        for table in self._tables.values():
            for column in table.columns:
                if (table.name, column) != ("StringIds", "value"):
                    self._hide_column(table.name, column)

    def _hide_column(self, table: str, column: str) -> None:
        hide = treatment(table, column)
        if hide is None:
            return
        name, place = _quoted(column), _quoted(table)
        hidden = lru_cache(_DISTINCT_TEXTS)(lambda text: self._hide(hide(text)))
        self._connection.create_function("hidden", 1, hidden, deterministic=True)
        try:
            self._connection.execute(
                f"UPDATE {place} SET {name} = CAST(hidden(CAST({name} AS BLOB)) AS TEXT) WHERE typeof({name}) = 'text' "
                f"AND hidden(CAST({name} AS BLOB)) <> CAST({name} AS BLOB)"
            )
            self._connection.execute(
                f"UPDATE {place} SET {name} = zeroblob(length({name})) WHERE typeof({name}) = 'blob'"
            )
        except sqlite3.IntegrityError:  # texts of equal length are equal now, and the table allows no two such
            self._connection.execute(f"DELETE FROM {place}")

    def _hide(self, text: bytes) -> bytes:
        hidden = hide_folders(text)
        return hidden if self._pattern is None else self._pattern.sub(lambda match: MASK * len(match[0]), hidden)

    def _harvest(self) -> Secrets:
        secrets = Secrets()
        for table in _SETTINGS:
            if table in self._tables:
                for name, value in self._rows(f"SELECT name, CAST(value AS BLOB) FROM {table}"):
                    if isinstance(name, bytes) and isinstance(value, bytes):
                        _harvest_setting(secrets, name.decode("utf-8", "replace"), value)
        if "TARGET_INFO_SYSTEM_ENV" in self._tables:
            for number, value in self._rows("SELECT nameEnum, CAST(value AS BLOB) FROM TARGET_INFO_SYSTEM_ENV"):
                if number == _HOST_PROPERTY and isinstance(value, bytes):
                    secrets.add_name(value)
                elif number == _ENVIRONMENT_PROPERTY and isinstance(value, bytes):
                    secrets.add_environment(value)
        return secrets


def _harvest_setting(secrets: Secrets, name: str, value: bytes) -> None:
    if name.endswith(("_HOST", "_USER", "USER_NAME", "DISPLAY_NAME")):
        secrets.add_name(value)
    elif "ENVIRONMENT" in name:
        variable, _, content = value.partition(b"=")
        secrets.add_variable(variable, content.strip(b'"'))
    elif re.search("ARGUMENT|COMMAND|WORKING_DIR|PATH", name):
        secrets.add_value(value)


_TABLES = r"SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'"


def _decoded(name: object) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
