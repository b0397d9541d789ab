"""One run stays in the case; files of others are named, with the reason, and their rows leave."""

from __future__ import annotations

import duckdb

from doctor.case import schema
from doctor.case.runs.telling import Run, tell_apart
from doctor.case.runs.traits import traits_of


def leave_out_other_runs(connection: duckdb.DuckDBPyConnection) -> None:
    """Keep the run with most device work, where there is none the first one named; one case is one run."""
    [(file_count,)] = connection.execute("SELECT count(DISTINCT path) FROM source").fetchall()
    if file_count < 2:
        return
    _, *others = tell_apart(traits_of(connection))
    for run_id, run in enumerate(others, start=2):
        _name(connection, run_id, run)
    left = [source_id for run in others for file in run.files for source_id in file.source_ids]
    for table in (*(table.name for table in schema.BULK_TABLES), "source") if left else ():
        connection.execute(f'DELETE FROM "{table}" WHERE list_contains($left, source_id)', {"left": left})


def _name(connection: duckdb.DuckDBPyConnection, run_id: int, run: Run) -> None:
    for file in run.files:
        connection.execute(_NAME, {"sources": list(file.source_ids), "run": run_id, "reason": run.reason})


_NAME = """
INSERT INTO other_run (source_id, path, kind, tool, is_complete, run_id, reason)
SELECT source_id, path, kind, tool, is_complete, $run, $reason FROM source WHERE list_contains($sources, source_id)
"""
