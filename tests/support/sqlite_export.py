"""A real SQLite export, changed by SQL into what other versions and other programs write."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from doctor.readers.evidence_file import open_evidence
from tests.support.traces import SAMPLES

SAMPLE = SAMPLES / "graph-decode-sqlite-export" / "healthy-fixed.sqlite.gz"


def export_with(folder: Path, *changes: str) -> Path:
    """A copy of the sample export in a folder, after some SQL statements.

    `globalPid` of the sample's process is 281475345809408 (process 22), its launching thread is 22 too.
    """
    path = folder / "export.sqlite"
    path.write_bytes(b"".join(open_evidence(SAMPLE).chunks()))
    with closing(sqlite3.connect(path)) as connection:
        for change in changes:
            connection.execute(change)
        connection.commit()
    return path


def ask(path: Path, query: str) -> list[tuple[object, ...]]:
    """The rows of a query on an export, past every reader."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        return connection.execute(query).fetchall()
