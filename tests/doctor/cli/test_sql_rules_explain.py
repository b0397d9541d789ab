from __future__ import annotations

import json
from pathlib import Path

import pytest

from doctor.cli.main import main
from tests.support.samples import sample, trace_of

SICK = "launch-bound-decode-nsys-report"


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    saved = tmp_path_factory.mktemp("case") / "case.duckdb"
    assert main(["diagnose", str(trace_of(sample(SICK))), "--save", str(saved), "--format", "json"]) == 0
    return saved


def test_saving_a_case_leaves_the_case_alone(case: Path) -> None:
    assert list(case.parent.iterdir()) == [case]


def test_sql_prints_a_table(case: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(case), "SELECT 'text' AS word, 12 AS number, NULL AS nothing FROM source"]) == 0
    assert capfd.readouterr().out == "word  number  nothing\n----  ------  -------\ntext      12\n"


def test_sql_prints_csv_and_json(case: Path, capfd: pytest.CaptureFixture[str]) -> None:
    query = "SELECT kind, is_complete FROM source"
    assert main(["sql", str(case), query, "--format", "csv"]) == 0
    assert capfd.readouterr().out.splitlines()[0] == "kind,is_complete"
    assert main(["sql", str(case), query, "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)[0]["is_complete"] is True


@pytest.mark.parametrize(
    "query", ["SELECT * FROM no_such_table", "SELEC 1", "DELETE FROM kernel", "CREATE TABLE mine (a INTEGER)"]
)
def test_sql_refuses_a_query_that_fails_or_writes(case: Path, query: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(case), query]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1


def test_sql_refuses_a_file_that_is_no_case(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.duckdb").write_text("no database")
    assert main(["sql", str(tmp_path / "x.duckdb"), "SELECT 1"]) == 2
    assert "--save" in capfd.readouterr().err


def test_rules_lists_every_rule_in_both_formats(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "--format", "json"]) == 0
    entries = json.loads(capfd.readouterr().out)
    assert {"rule", "title", "stage", "needs"} == entries[0].keys()
    assert main(["rules"]) == 0
    text = capfd.readouterr().out
    assert all(entry["rule"] in text for entry in entries)


def test_explain_prints_the_manual_page(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "host-dispatch-bound"]) == 0
    text = capfd.readouterr().out
    for heading in ("What happens", "How it is detected", "When it is not this", "Thresholds", "Fixes", "Verify"):
        assert heading in text


def test_explain_names_what_every_sign_of_the_rule_needs(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "cudagraph-off"]) == 0
    needs = " ".join(capfd.readouterr().out.split("Needs ")[1].split())
    assert needs.startswith("one of nsys-report, nsys-sqlite, kineto, engine-log")


def test_explain_suggests_the_rule_that_was_meant(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "host-dispatch"]) == 2
    assert "did you mean host-dispatch-bound?" in capfd.readouterr().err
