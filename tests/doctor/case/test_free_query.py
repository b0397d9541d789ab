"""A query that a person typed reads and never writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from doctor.case.free_query import export_query, run_query, table_notes
from doctor.errors import CaseError, UsageError


@pytest.fixture
def case() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE step AS SELECT range AS step_id, [range, range + 1] AS pair FROM range(10)")
        connection.execute("COMMENT ON TABLE step IS 'engine steps'")
        yield connection


def test_the_first_rows_come_and_more_are_told(case: duckdb.DuckDBPyConnection) -> None:
    result = run_query(case, "SELECT step_id FROM step ORDER BY step_id", 3)
    assert (result.columns, result.rows, result.has_more) == (("step_id",), ((0,), (1,), (2,)), True)
    assert not run_query(case, "SELECT step_id FROM step", 10).has_more


@pytest.mark.parametrize("query", ["DESCRIBE step", "SHOW TABLES", "EXPLAIN SELECT 1", "SUMMARIZE step", "VALUES (1)"])
def test_what_reads_is_run(case: duckdb.DuckDBPyConnection, query: str) -> None:
    assert run_query(case, query, 5).rows


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE step",
        "INSERT INTO step VALUES (1, [])",
        "COPY step TO 'step.csv'",
        "ATTACH 'other.duckdb'",
        "SET threads = 1",
        "SELECT 1; DROP TABLE step",
        "",
        "SELEC 1",
        "SELECT nothing FROM step",
    ],
)
def test_what_writes_or_is_wrong_is_refused_in_one_line(case: duckdb.DuckDBPyConnection, query: str) -> None:
    with pytest.raises(CaseError) as caught:
        run_query(case, query, 5)
    assert "\n" not in caught.value.message
    assert case.execute("SELECT count(*) FROM step").fetchall() == [(10,)]


@pytest.mark.parametrize("name", ["all.csv", "all.parquet"])
def test_all_rows_are_exported(case: duckdb.DuckDBPyConnection, tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    assert export_query(case, "SELECT * FROM step ORDER BY step_id", target) == 10
    if name.endswith(".csv"):
        assert target.read_text("utf-8").splitlines()[:2] == ["step_id,pair", '0,"[0, 1]"']
    else:
        assert pq.read_table(target).column("step_id").to_pylist() == list(range(10))
    with pytest.raises(UsageError, match="exists already"):
        export_query(case, "SELECT 1", target)


def test_an_export_needs_an_ending_and_a_folder(case: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.csv or \.parquet"):
        export_query(case, "SELECT 1", tmp_path / "all.txt")
    with pytest.raises(UsageError, match="cannot write"):
        export_query(case, "SELECT 1", tmp_path / "nowhere" / "all.csv")


def test_tables_say_what_they_hold(case: duckdb.DuckDBPyConnection) -> None:
    (note,) = table_notes(case)
    assert (note.name, note.row_count, note.comment) == ("step", 10, "engine steps")
