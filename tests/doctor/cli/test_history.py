from __future__ import annotations

import hashlib
import json
from contextlib import closing
from pathlib import Path

import pytest

from doctor import open_case
from doctor.case.step_queries import phases
from doctor.cli.main import main
from doctor.reports.history_page import trend_line
from tests.support.samples import sample, trace_of

SICK = trace_of(sample("launch-bound-decode-nsys-report"))
HEALTHY = trace_of(sample("graph-decode-sqlite-export"))


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history")
    path = folder / "kept.duckdb"
    for evidence in (SICK, HEALTHY):
        arguments = [str(evidence), "--history", str(path), "-o", str(folder / "text"), "--no-progress"]
        assert main(["diagnose", *arguments]) == 0
    return path


def test_diagnoses_are_listed_with_their_first_finding_and_trends(
    history: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "--history", str(history)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert "critical" in lines[1]
    assert "host-dispatch-bound" in lines[1]
    assert "launch-sick" in lines[1]
    [busy] = [line for line in lines if line.startswith("gpu busy")]
    assert "▁█" in busy or "_@" in busy


def test_a_step_has_one_length_wherever_it_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    case, kept = tmp_path / "case.duckdb", str(tmp_path / "kept.duckdb")
    save = ("--save", str(case), "--history", kept, "--format", "json", "--no-progress")
    assert main(["diagnose", str(SICK), *save]) == 0
    seconds = json.loads(capfd.readouterr().out)["vitals"]["step_seconds"]
    assert main(["sql", str(case), "SELECT avg(end_ns - start_ns) / 1e9 AS s FROM usual_step", "--format", "json"]) == 0
    [row] = json.loads(capfd.readouterr().out)
    assert main(["history", kept, "--format", "json"]) == 0
    [entry] = json.loads(capfd.readouterr().out)["diagnoses"]
    assert main(["compare", str(case), str(case), "--format", "json"]) == 0
    speeds = {speed["subject"]: speed for speed in json.loads(capfd.readouterr().out)["speeds"]}
    with closing(open_case(case)) as opened:
        [decode] = [phase for phase in phases(opened) if phase.phase == "decode"]
    told = [row["s"], entry["figures"]["step_seconds"], speeds["decode"]["before_seconds"], decode.mean_ns / 1e9]
    assert told == pytest.approx([seconds] * 4, rel=1e-6)
    assert seconds == pytest.approx(0.0345, rel=0.01)


def test_the_file_may_be_named_by_itself_but_not_twice(history: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(history)]) == 0
    by_itself = capfd.readouterr().out
    assert main(["history", "--history", str(history)]) == 0
    assert capfd.readouterr().out == by_itself
    assert main(["history", str(history), "--history", str(history)]) == 2
    assert "named twice" in capfd.readouterr().err


def test_json_holds_every_figure_and_the_digest_of_the_file(history: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--history", str(history), "--format", "json", "--evidence", SICK.name]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["schema"] == "doctor.history/1"
    [kept] = document["diagnoses"]
    assert kept["files"][0]["sha256"] == hashlib.sha256(SICK.read_bytes()).hexdigest()
    assert 0 < kept["figures"]["gpu_busy"] < 1


def test_a_history_that_refuses_takes_no_diagnosis_away(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.duckdb").write_text("hello")
    assert main(["diagnose", str(HEALTHY), "--history", str(tmp_path / "bad.duckdb"), "--no-progress"]) == 2
    out, err = capfd.readouterr()
    assert "trace-blind" in out or "No rule found" in out
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("address", ["://secret", "no-such-folder/history.duckdb", "."])
def test_an_address_that_is_none_is_refused_before_the_work(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(HEALTHY), "--history", address, "--no-progress"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "secret" not in err


def test_a_trend_keeps_the_newest_that_fit_and_survives_equal_values() -> None:
    assert trend_line([1.0, 1.0], is_unicode=True) == "▅▅"
    assert trend_line([float(value) for value in range(100)], is_unicode=False)[-1] == "@"
    assert len(trend_line([float(value) for value in range(100)], is_unicode=False)) == 40
