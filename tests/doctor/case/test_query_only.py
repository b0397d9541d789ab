"""Columns that only a person's query reads are left out of a case that nobody can ask."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

import doctor
from doctor.case.batch import TableBatch
from doctor.case.derive import derive
from doctor.case.schema import QUERY_ONLY
from doctor.diagnosis.catalogue import load_catalogue, unread_by
from doctor.readers import registry
from tests.support.samples import sample, trace_of

REPORT = trace_of(sample("launch-bound-decode-nsys-report"))
EXPORT = sample("launch-bound-decode-nsys-report") / "launch-sick.sqlite.gz"
TRACE = trace_of(sample("launch-bound-decode-torch-trace"))
OWN_RULE = """
from dataclasses import replace
from rules.host.sync_in_step import RULE as OTHER
RULE = replace(OTHER, about=replace(OTHER.about, id="own-rule"))
"""


def _without(case: duckdb.DuckDBPyConnection) -> None:
    for table, columns in QUERY_ONLY.items():
        for column in columns:
            case.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')


def _filled(case: duckdb.DuckDBPyConnection) -> dict[str, set[str]]:
    """Of each table the columns left out elsewhere that hold something here."""
    counted = {
        (table, column): case.execute(f'SELECT count("{column}") FROM "{table}"').fetchall()[0][0]
        for table, columns in QUERY_ONLY.items()
        for column in columns
    }
    return {table: {column for column in columns if counted[table, column]} for table, columns in QUERY_ONLY.items()}


@pytest.fixture(scope="module", params=[REPORT, EXPORT, TRACE], ids=["report", "export", "trace"])
def recording(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_no_view_and_no_rule_reads_them(recording: Path) -> None:
    with closing(doctor.load(recording)) as case:
        _without(case)
        derive(case)
        for rule in load_catalogue():
            for sign in rule.signs:
                [select] = case.extract_statements(sign.sql)
                values = {name: rule.thresholds[name].value for name in select.named_parameters}
                assert case.execute(f"EXPLAIN {sign.sql}", values).fetchall()


def test_a_diagnosis_is_the_same_without_them(recording: Path, tmp_path: Path) -> None:
    doctor.load(recording, save=tmp_path / "whole.duckdb").close()
    assert doctor.diagnose(recording) == doctor.diagnose(tmp_path / "whole.duckdb")


def test_whoever_loads_a_case_has_them(recording: Path) -> None:
    with closing(doctor.load(recording)) as case:
        filled = _filled(case)
    assert {"registers_per_thread_count", "context_id"} <= filled["kernel"]
    assert "api" in filled["api_call"]


def test_an_export_is_read_without_them() -> None:
    def read(left_out: dict[str, frozenset[str]]) -> dict[str, set[str]]:
        seen: dict[str, set[str]] = {}
        for part in registry.read(EXPORT, left_out=left_out):
            if isinstance(part, TableBatch):
                seen.setdefault(part.table, set()).update(part.rows.schema.names)
        return seen

    whole, less = read({}), read(dict(QUERY_ONLY))
    assert whole.keys() == less.keys()
    for table, columns in whole.items():
        assert less[table] == columns - QUERY_ONLY[table]
    assert whole["kernel"] - less["kernel"] >= {"registers_per_thread_count", "context_id", "static_shared_bytes"}


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET returnValue = 'x' WHERE rowid = 5",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET registersPerThread = 'x' WHERE rowid = 5",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET registersPerThread = 9000000000000000000 WHERE rowid = 5",
    ],
)
def test_what_is_wrong_in_them_changes_no_verdict(damage: str, tmp_path: Path) -> None:
    export = tmp_path / "damaged.sqlite"
    export.write_bytes(gzip.decompress(EXPORT.read_bytes()))
    with closing(sqlite3.connect(export)) as connection, connection:
        connection.execute(damage)
    doctor.load(export, save=tmp_path / "whole.duckdb").close()
    read, saved = doctor.diagnose(export), doctor.diagnose(tmp_path / "whole.duckdb")
    assert read.findings == saved.findings
    assert [file.is_complete for file in (*read.evidence, *saved.evidence)] == [True, True]
    assert any("left out" in note for note in saved.evidence[0].notes)


def test_rules_of_others_may_read_anything(tmp_path: Path) -> None:
    (tmp_path / "own_rule.py").write_text(OWN_RULE)
    assert unread_by(load_catalogue()) == QUERY_ONLY
    assert not unread_by(load_catalogue(tmp_path))
