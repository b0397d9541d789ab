"""A real PostgreSQL server: `$DOCTOR_POSTGRESQL` names one whose databases the tests may make and drop."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from sqlalchemy import make_url


@contextmanager
def postgresql_database() -> Iterator[str]:
    """URL of an empty database that goes afterwards; skips the test where there is no server."""
    server = os.environ.get("DOCTOR_POSTGRESQL")
    if not server:
        pytest.skip("no PostgreSQL server here: set DOCTOR_POSTGRESQL to the URL of one")
    name = f"doctor_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
        try:
            yield make_url(server).set(database=name).render_as_string(hide_password=False)
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())
