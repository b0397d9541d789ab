"""Deriving again gives the same tables, and leaves nothing of the time before."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import duckdb

from doctor import api
from doctor.case.derive import WindowChoice, derive, derived_tables
from tests.support.case_rows import Rows
from tests.support.samples import sample, trace_of


def contents(case: duckdb.DuckDBPyConnection) -> dict[str, list[tuple[Any, ...]]]:
    return {table: case.execute(f'SELECT * FROM "{table}"').fetchall() for table in derived_tables()}


def test_deriving_twice_gives_the_same() -> None:
    with closing(api.load(trace_of(sample("sync-per-token")))) as case:
        derive(case)
        first = contents(case)
        derive(case)
        assert contents(case) == first
    assert len(first["device_op"]) > 1_000
    assert len(first["step"]) == 8


def test_another_window_leaves_nothing_of_the_first() -> None:
    with closing(api.load(trace_of(sample("sync-per-token")))) as case:
        derive(case)
        first = contents(case)
        derive(case, WindowChoice(range_name="prefill"))
        assert contents(case)["steady_window"] != first["steady_window"]
        derive(case)
        assert contents(case) == first


def test_no_scratch_table_is_left() -> None:
    with Rows().derived() as case:
        tables = {name for (name,) in case.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    assert [name for name in tables if name.startswith("_")] == []
    assert set(derived_tables()) <= tables
