from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
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


@pytest.mark.parametrize(
    "query",
    [
        "",
        ";",
        "SELECT 1; SELECT 2",
        "COPY (SELECT 1) TO 'written.csv'",
        "EXPORT DATABASE 'written'",
        "ATTACH 'written.duckdb'",
        "INSTALL httpfs",
        "LOAD json",
        "SET enable_external_access = true",
        "PRAGMA enable_profiling",
        "SELECT * FROM read_text('secret.txt')",
        "SELECT * FROM read_csv('secret.txt')",
        "SELECT * FROM glob('*')",
        "FROM 'secret.csv'",
    ],
)
def test_sql_reads_the_case_and_nothing_else(
    case: Path, query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("secret.txt", "secret.csv"):
        (tmp_path / name).write_text("word\nhidden\n")
    assert main(["sql", str(case), query]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "unexpected" not in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret.csv", "secret.txt"]


def test_a_case_from_a_stranger_reads_no_file_of_yours(
    case: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret.txt").write_text("hidden")
    with duckdb.connect(str(shutil.copy(case, tmp_path / "case.duckdb"))) as strange:
        strange.execute("DROP TABLE nvtx_range")
        strange.execute(f"CREATE VIEW nvtx_range AS SELECT content FROM read_text('{tmp_path / 'secret.txt'}')")
    for arguments in (["sql", "SELECT * FROM nvtx_range"], ["diagnose"], ["diagnose", "--range", "x"]):
        command, *others = arguments
        assert main([command, str(tmp_path / "case.duckdb"), *others]) == 2
        out, err = capfd.readouterr()
        assert "hidden" not in out + err
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "query", ["SHOW TABLES", "DESCRIBE source", "SUMMARIZE source", "FROM source", "EXPLAIN SELECT 1"]
)
def test_sql_tells_what_the_case_holds(case: Path, query: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(case), query, "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)


def test_json_hides_no_column_behind_another_and_knows_no_infinity(
    case: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    query = "SELECT 1 AS a, 2 AS a, 'nan'::DOUBLE AS b, ['inf'::DOUBLE, 1] AS c"
    assert main(["sql", str(case), query, "--format", "json"]) == 0
    out = capfd.readouterr().out
    assert json.loads(out, parse_constant=str) == [{"a": 1, "a:1": 2, "b": None, "c": [None, 1.0]}]


INTERRUPTED = """
import os, signal, sys, threading
from doctor.cli.main import main

def interrupt():
    while not any(thread.name.startswith("doctor-asks") for thread in threading.enumerate()):
        pass
    os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Thread(target=interrupt, daemon=True).start()
sys.exit(main(["sql", sys.argv[1], "SELECT count(*) FROM range(100000000000) AS a, range(10) AS b"]))
"""


def test_ctrl_c_stops_a_query_that_never_ends(case: Path) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, str(case)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip() == "doctor: interrupted"


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
