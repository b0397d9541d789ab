"""`doctor check` on real recordings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from doctor.cli.main import main
from tests.support.report_schemas import faults_of_junit
from tests.support.trace_builder import GEMM, HEAD_GEMM, Program, decode_step


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with an ill and a healthy recording."""
    eager, graphed = Program(), Program()
    for _ in range(6):
        decode_step(eager)
        graphed.copy("HtoD pinned", 64)
        graphed.graph([(GEMM, 9.0)] * 64 + [(HEAD_GEMM, 12.0)])
        graphed.wait()
    eager.write(tmp_path / "sick.json")
    graphed.write(tmp_path / "well.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checks(folder: Path, text: str, name: str = "doctor.toml") -> None:
    (folder / name).write_text(text, encoding="utf-8")


def test_a_failed_check_exits_with_one_and_shows_the_evidence(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    checks(folder, "[checks.eager]\nevidence = 'sick.json'\n[checks.graphs]\nevidence = 'well.json'\n")
    assert main(["check"]) == 1
    printed = capfd.readouterr().out
    assert "ill     eager" in printed
    assert "idle with an empty queue" in printed
    assert "healthy graphs" in printed
    assert printed.endswith("2 checks: 1 healthy, 1 ill\n")


def test_one_check_of_a_project_file_is_run_by_name(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    checks(
        folder,
        "[tool.doctor.checks.eager]\nevidence = 'sick.json'\n[tool.doctor.checks.graphs]\nevidence = 'well.json'\n",
        "pyproject.toml",
    )
    assert main(["check", ".", "--only", "graphs", "--format", "junit", "-o", "report.xml"]) == 0
    assert faults_of_junit((folder / "report.xml").read_text()) == []
    assert main(["check", "--only", "grphs"]) == 2
    assert "no check is called grphs: there are eager, graphs" in capfd.readouterr().err


def test_evidence_named_by_itself_is_held_against_what_is_demanded_of_all(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    checks(folder, "[tool.doctor.vitals]\nsyncs_per_step = 0.5\n", "pyproject.toml")
    assert main(["check", "well.json", "--at-most", "critical", "--format", "json"]) == 1
    (result,) = json.loads(capfd.readouterr().out)["checks"]
    assert [breach["subject"] for breach in result["breaches"]] == ["syncs_per_step"]


def test_unusable_evidence_exits_with_two_after_the_other_checks(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    checks(folder, "[checks.gone]\nevidence = 'gone.json'\n[checks.graphs]\nevidence = 'well.json'\n")
    assert main(["check"]) == 2
    printed = capfd.readouterr()
    assert "healthy graphs" in printed.out
    assert printed.err == "doctor: the check gone could not be made: there is no file or folder gone.json\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "there are no checks here"),
        ("[checks]\n", "holds no check"),
        ("[checks.a]\nevidence = 'well.json'\nallow = ['tiny-kernel']", "no rule is called so"),
        ("[checks.a]\nevidence = 3", "doctor.toml"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], text: str, complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if text:
        checks(tmp_path, text)
    assert main(["check"]) == 2
    printed = capfd.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert complaint in printed.err


def test_incomplete_evidence_exits_with_three_where_that_is_asked(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = (folder / "well.json").read_bytes()
    (folder / "cut.json").write_bytes(whole[: len(whole) * 3 // 4])
    assert main(["check", "cut.json", "--at-most", "critical", "--strict"]) == 3
    assert "incomplete" in capfd.readouterr().err
