"""Connections to DuckDB that print nothing of their own."""

from __future__ import annotations

from pathlib import Path

import duckdb

IN_MEMORY = ":memory:"


def connect(path: str | Path = IN_MEMORY, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    """Open a database.

    DuckDB draws a progress bar on standard output for queries of some seconds, even where that is a file: it would
    stand in the middle of a diagnosis as JSON.

    Raises:
        duckdb.Error: it cannot be opened.
    """
    connection = duckdb.connect(str(path), read_only=read_only)
    [(is_locked,)] = connection.execute("SELECT current_setting('lock_configuration')").fetchall()
    if not is_locked:  # another connection of this process may have the case open
        connection.execute("SET enable_progress_bar = false")
    return connection
