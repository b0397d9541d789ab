from __future__ import annotations

from pathlib import Path

import duckdb

from doctor.case.connection import connect
from doctor.case.store import copy_to_working_case, create_case, create_working_case, open_case
from doctor.case.timeline.prepare import open_for_viewing


def draws_a_bar(connection: duckdb.DuckDBPyConnection) -> bool:
    [(is_drawn,)] = connection.execute("SELECT current_setting('enable_progress_bar')").fetchall()
    return bool(is_drawn)


def test_no_connection_draws_on_standard_output(tmp_path: Path) -> None:
    """Long queries would otherwise put a bar into a diagnosis that is printed as JSON."""
    saved = tmp_path / "case.duckdb"
    create_case(saved).close()
    for connection in (connect(), create_case(), create_working_case(0), copy_to_working_case(saved), open_case(saved)):
        assert not draws_a_bar(connection)
        assert not draws_a_bar(connection.cursor())
        connection.close()
    viewing = open_for_viewing(saved)
    assert not draws_a_bar(viewing)
    viewing.close()
