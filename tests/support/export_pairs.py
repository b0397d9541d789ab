"""A report's conversion against NVIDIA's own export of the same recording: every row of every table, as bags of rows.

Names are compared as texts, since their ids are free. Columns that the exporter numbers or renders itself are left out.
"""

from __future__ import annotations

import gzip
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

from doctor.convert import layout

NUMBERED_OR_RENDERED = {"callchainId", "argumentsId", "binaryData", "jsonText", "jsonTextId"}
TABLES = tuple(
    table.name
    for table in (*layout.EVENT_LAYOUT, *layout.TARGET_LAYOUT)
    if table.name not in {"CUPTI_ACTIVITY_KIND_OVERHEAD", "ANALYSIS_DETAILS"}
)
_NAMES = {"demangledName", "shortName", "mangledName", "nameId", "textId"}


def unpacked(export: Path, folder: Path) -> Path:
    """A plain copy of an export that is shipped packed."""
    copy = folder / export.name.removesuffix(".gz")
    with gzip.open(export) as packed, copy.open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    return copy


def differences(theirs: Path, ours: Path) -> dict[str, int]:
    """Rows that only one side has, by table; a column that ours lacks counts with every value in it."""
    found: dict[str, int] = {}
    with closing(_opened(theirs)) as reference, closing(_opened(ours)) as converted:
        for table in TABLES:
            count = _differing_rows(reference, converted, table)
            if count:
                found[table] = count
    return found


def count_rows(export: Path) -> int:
    """Rows that `differences` looks at."""
    with closing(_opened(export)) as connection:
        return sum(_rows(connection, table, _columns(connection, table)).total() for table in TABLES)


def _differing_rows(reference: sqlite3.Connection, converted: sqlite3.Connection, table: str) -> int:
    wanted = [name for name in _columns(reference, table) if name not in NUMBERED_OR_RENDERED]
    present = _columns(converted, table)
    if not wanted:
        return _rows(converted, table, present).total()
    lacking = sum(_count_values(reference, table, name) for name in wanted if name not in present)
    shared = [name for name in wanted if name in present]
    a, b = _rows(reference, table, shared), _rows(converted, table, shared)
    return lacking + (a - b).total() + (b - a).total()


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return connection


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def _count_values(connection: sqlite3.Connection, table: str, column: str) -> int:
    return int(connection.execute(f'SELECT count("{column}") FROM {table}').fetchone()[0])


def _rows(connection: sqlite3.Connection, table: str, columns: list[str]) -> Counter[tuple[object, ...]]:
    if not columns:
        return Counter()
    strings = dict(connection.execute("SELECT id, value FROM StringIds"))
    chosen = ", ".join(f'"{name}"' for name in columns)
    return Counter(
        tuple(
            strings.get(value, value) if name in _NAMES and isinstance(value, int) else value
            for name, value in zip(columns, row, strict=True)
        )
        for row in connection.execute(f"SELECT {chosen} FROM {table}")
    )
