"""Where a history is kept: a file, or the URL of a database."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from doctor.errors import UsageError

_POSTGRESQL = {"postgres", "postgresql"}
_MOST_LETTERS = 2000


def parse_address(text: str) -> URL:
    """The URL of a history: plain text is the path of a DuckDB file, `postgresql://` is a server.

    Raises:
        UsageError: it is neither; the text is not repeated, since it may hold a password.
    """
    if "://" not in text:
        return URL.create("duckdb", database=text)
    try:
        if len(text) > _MOST_LETTERS:
            raise ArgumentError("too long")
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise UsageError(
            "the address of the history is no URL: give a file, or postgresql://USER@HOST/DATABASE"
        ) from error
    return url.set(drivername="postgresql+psycopg") if url.drivername in _POSTGRESQL else url


def file_of(url: URL) -> Path | None:
    """The DuckDB file that a URL names; None for a server."""
    return Path(url.database) if url.get_backend_name() == "duckdb" and url.database else None


def shown(url: URL) -> str:
    """The address for people, without user, password and options."""
    file = file_of(url)
    if file is not None:
        return str(file)
    return f"{url.get_backend_name()}://{url.host or ''}/{url.database or ''}"
