"""Connections to DuckDB that print nothing of their own and fetch nothing."""

from __future__ import annotations

from pathlib import Path

import duckdb

IN_MEMORY = ":memory:"
_FETCH_NOTHING: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
"""DuckDB downloads native code, and runs it, for whatever names a format that it does not know."""


def connect(path: str | Path = IN_MEMORY, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    """Open a database.

    DuckDB draws a progress bar on standard output for queries of some seconds, even where that is a file: it would
    stand in the middle of a diagnosis as JSON. A name such as `md:case` is a file like any other, no address.

    Raises:
        duckdb.Error: it cannot be opened.
    """
    place = IN_MEMORY if path == IN_MEMORY else str(Path(path).absolute())
    connection = duckdb.connect(place, read_only=read_only, config=_FETCH_NOTHING)
    [(is_locked,)] = connection.execute("SELECT current_setting('lock_configuration')").fetchall()
    if not is_locked:  # another connection of this process may have the case open
        connection.execute("SET enable_progress_bar = false")
    return connection
