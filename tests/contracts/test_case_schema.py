"""What a reader of the case file can rely on: every table and column says what it is, and every quantity its unit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sqlalchemy import Boolean, Column, Double, Integer

from doctor.case import schema
from doctor.case.derive import derive
from doctor.case.store import create_case

ROOT = Path(__file__).parents[2]
UNITS = ("_ns", "_bytes", "_bytes_per_s", "_hz", "_count", "_share", "_id", "_watts", "_celsius")
WITHOUT_UNIT = {
    "pid": "a name, not a quantity",
    "tid": "a name, not a quantity",
    "rank": "a name, not a quantity",
    "world_size": "the field's own word for a number of ranks",
    "version": "a name, not a quantity",
    "compute_major": "part of a version",
    "compute_minor": "part of a version",
    "priority": "an order, not a quantity",
    "return_value": "a status code",
    "address": "a place, not a quantity",
    "grid_x": "blocks, as CUDA calls it",
    "grid_y": "blocks, as CUDA calls it",
    "grid_z": "blocks, as CUDA calls it",
    "block_x": "threads, as CUDA calls it",
    "block_y": "threads, as CUDA calls it",
    "block_z": "threads, as CUDA calls it",
    "xid": "a code, not a quantity",
    "bucket_le": "in the unit that the metric's name says",
    "reading": "in the unit that the metric's name says",
    "parent_pid": "a name, not a quantity",
    "performance_state": "a name, not a quantity",
    "pcie_generation": "part of a version",
    "pcie_generation_max": "part of a version",
    "pcie_generation_device_max": "part of a version",
    "from_rank": "a name, not a quantity",
    "to_rank": "a name, not a quantity",
}
WITHOUT_UNIT_IN_DERIVED_TABLES = {
    "place": "an order, not a quantity",
    "from_last": "an order, counted from the end",
    "run": "a number given to a run of like work",
    "piece": "a number given to a piece of a step",
    "distance": "operations between a piece and the next",
}
SUFFIXES_IN_DERIVED_TABLES = (*UNITS, "_blocks", "_threads", "_place")
VIEWS = sorted((ROOT / "doctor/case/views").glob("*.sql"))
TABLES = tuple(schema.metadata.sorted_tables)
COLUMNS = tuple(pytest.param(column, id=f"{column.table.name}.{column.name}") for t in TABLES for column in t.columns)


@pytest.mark.parametrize("name", [table.name for table in TABLES])
def test_a_table_says_what_it_holds(name: str) -> None:
    assert schema.metadata.tables[name].comment


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_says_what_it_is_and_a_quantity_its_unit(column: Column[Any]) -> None:
    assert column.comment
    if isinstance(column.type, Integer | Double):
        assert column.name.endswith(UNITS) or column.name in WITHOUT_UNIT
    if isinstance(column.type, Boolean):
        assert column.name.startswith("is_")


def test_every_exception_from_the_unit_rule_is_a_column() -> None:
    assert WITHOUT_UNIT.keys() <= {column.name for table in TABLES for column in table.columns}


def test_every_bulk_row_names_its_source_and_declares_no_key() -> None:
    for table in schema.BULK_TABLES:
        assert not table.columns["source_id"].nullable
        assert not list(table.primary_key)


def test_no_name_is_a_word_that_sql_reserves() -> None:
    with duckdb.connect() as connection:
        reserved = {
            word
            for (word,) in connection.execute(
                "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category = 'reserved'"
            ).fetchall()
        }
    names = {table.name for table in TABLES} | {column.name for table in TABLES for column in table.columns}
    assert not names & reserved


def test_a_case_file_keeps_the_comments() -> None:
    with create_case() as connection:
        found = connection.execute("SELECT table_name, column_name, comment FROM duckdb_columns()").fetchall()
    comments = {(table, column): comment for table, column, comment in found}
    for table in TABLES:
        for column in table.columns:
            assert comments[table.name, column.name] == column.comment


@pytest.fixture(scope="module")
def derived_columns() -> list[tuple[str, str, str]]:
    with create_case() as connection:
        derive(connection)
        found = connection.execute(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal"
        ).fetchall()
    return [row for row in found if row[0] not in schema.metadata.tables]


def test_quantities_of_derived_tables_carry_their_unit(derived_columns: list[tuple[str, str, str]]) -> None:
    allowed = WITHOUT_UNIT.keys() | WITHOUT_UNIT_IN_DERIVED_TABLES.keys()
    numbers = [(t, c) for t, c, kind in derived_columns if re.search("INT|DOUBLE|FLOAT|DECIMAL", kind)]
    assert numbers
    bare = [
        (t, c)
        for t, c in numbers
        if not c.endswith(SUFFIXES_IN_DERIVED_TABLES) and not c.startswith("share_of_") and c not in allowed
    ]
    assert bare == []


def test_truth_values_of_derived_tables_start_with_is(derived_columns: list[tuple[str, str, str]]) -> None:
    assert [(t, c) for t, c, kind in derived_columns if kind == "BOOLEAN" and not c.startswith("is_")] == []


@pytest.mark.parametrize("path", VIEWS, ids=lambda path: path.stem)
def test_every_derived_table_is_described_where_it_is_made(path: Path) -> None:
    text = path.read_text("utf-8")
    made = [
        name
        for name in re.findall(r"^CREATE TABLE (?:IF NOT EXISTS )?(\w+)", text, re.MULTILINE)
        if not name.startswith("_")
    ]
    assert made
    for name in made:
        assert re.search(rf"^--.*\b{name}\b", text, re.MULTILINE), name
