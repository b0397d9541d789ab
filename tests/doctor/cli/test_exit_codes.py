from __future__ import annotations

import gzip
import json
import pickle
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import click
import pytest

from doctor.cli.main import main
from tests.support.samples import sample, trace_of

Run = tuple[int, str, str]
SICK = "launch-bound-decode-nsys-report"


def run(capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> Run:
    code = main([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    return code, out, err


def refused(outcome: Run) -> str:
    """The one line that a refusal prints, once it is sure that nothing else was printed."""
    code, out, err = outcome
    assert code == 2
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("doctor: ")
    assert "Traceback" not in line
    assert "unexpected" not in line
    return line


def test_a_diagnosis_without_a_bar_is_done(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "diagnose", sample(SICK), "--format", "json")
    assert code == 0
    assert json.loads(out)["schema"] == "doctor.diagnosis/1"
    assert "Traceback" not in err


def test_a_finding_at_the_bar_gives_one(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(capfd, "diagnose", sample(SICK), "--fail-on", "critical")[0] == 1


def test_nothing_at_the_bar_gives_zero(capfd: pytest.CaptureFixture[str]) -> None:
    only_data_quality = ("--select", "stray-event-window")
    assert run(capfd, "diagnose", sample(SICK), "--fail-on", "info", *only_data_quality)[0] == 0


def test_evidence_that_is_no_evidence_is_refused_in_one_line(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("call me back\n")
    (tmp_path / "empty.nsys-rep").touch()
    (tmp_path / "object.pickle").write_bytes(pickle.dumps({"a": 1}))
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("trace.json", "{}")
    (tmp_path / "noise.gz").write_bytes(gzip.compress(b"\x00\x01" * 100))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"some text" * 100)[:12])
    for path in sorted(tmp_path.iterdir()):
        assert path.name in refused(run(capfd, "diagnose", path))


def test_a_path_that_does_not_exist_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert "no-such-file" in refused(run(capfd, "diagnose", "no-such-file.nsys-rep"))
    assert "no-such-*" in refused(run(capfd, "diagnose", "no-such-*"))


def test_a_folder_without_evidence_is_refused(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "empty" in refused(run(capfd, "diagnose", tmp_path))
    (tmp_path / "notes.txt").write_text("call me back\n")
    assert "no evidence" in refused(run(capfd, "diagnose", tmp_path))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--window", "3:1"],
        ["--window", "soon:later"],
        ["--window", "1"],
        ["--unprofiled-seconds", "0"],
        ["--unprofiled-seconds", "nan"],
        ["--fail-on", "dreadful"],
        ["--format", "pdf"],
        ["--reader", "psychic"],
        ["--select", "no-such-rule"],
        ["--ignore", "no-such-rule"],
        ["--range", "no such range"],
        ["--window", "1s:2s", "--range", "decode_step"],
        ["--rules", "no-such-folder"],
        ["-o", "no-such-folder/report.json"],
        ["-o", "."],
        ["--save", "no-such-folder/case.duckdb"],
        ["--no-such-option"],
    ],
    ids=" ".join,
)
def test_arguments_that_make_no_sense_are_refused(capfd: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    refused(run(capfd, "diagnose", trace_of(sample(SICK)), *arguments))


def test_a_case_is_never_overwritten(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    kept = tmp_path / "kept.duckdb"
    kept.write_text("precious")
    assert "exists already" in refused(run(capfd, "diagnose", trace_of(sample(SICK)), "--save", kept))
    assert kept.read_text() == "precious"


def test_no_command_shows_the_help(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd)
    assert code == 0
    assert "diagnose" in out
    assert err == ""


def test_an_unknown_command_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert "diagnos" in refused(run(capfd, "diagnos"))


def test_ctrl_c_gives_130_and_no_traceback() -> None:
    # a test runner in the background may have SIGINT ignored, and children inherit that
    start = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = [sys.executable, "-c", f"{start}; from doctor.cli.main import main; sys.exit(main(['diagnose', '-']))"]
    process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    # more than a pipe holds: the write returns once the program reads
    process.stdin.write(b"{" + b" " * 2**20)
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    assert out == b""
    assert err.strip() == b"doctor: interrupted"


BROKEN_RULE = """
from typing import NamedTuple
from doctor.rule import About, Rule, Stage, Verdict

class Row(NamedTuple):
    answer: int

def judge(row: Row) -> Verdict:
    return 1 / 0

RULE = Rule(
    about=About("broken-rule", "A rule that fails", Stage.GENERAL, reads=("kernel",), needs=("kineto",)),
    thresholds={}, sql="SELECT 1 AS answer", row=Row, judge=judge, fixes=(), verify="", doc="",
)
"""


def test_a_rule_of_the_users_that_fails_is_refused(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "broken_rule.py").write_text(BROKEN_RULE)
    arguments = ("--rules", tmp_path, "--select", "broken-rule")
    assert "broken-rule" in refused(run(capfd, "diagnose", trace_of(sample(SICK)), *arguments))


@pytest.mark.parametrize("is_debugging", [False, True])
def test_an_unexpected_exception_is_one_line_and_a_traceback_only_when_asked_for(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_debugging: bool
) -> None:
    @click.command("failing")
    def command() -> None:
        raise LookupError("lost\nfor good")

    module = ModuleType("doctor.cli.failing")
    module.__dict__["command"] = command
    monkeypatch.setitem(sys.modules, "doctor.cli.failing", module)
    monkeypatch.setattr("doctor.cli.main.COMMANDS", ("failing",))
    monkeypatch.setenv("DOCTOR_DEBUG", "1" if is_debugging else "")
    code, out, err = run(capfd, "failing")
    first, *rest = err.splitlines()
    assert code == 2
    assert out == ""
    assert first.startswith("doctor: unexpected LookupError: lost.")
    assert "DOCTOR_DEBUG=1" in first
    assert ("Traceback (most recent call last):" in rest) is is_debugging
    assert bool(rest) is is_debugging


def test_an_output_that_takes_nothing_is_refused() -> None:
    program = [sys.executable, "-m", "doctor.cli.main", "rules"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert done.stderr == b"doctor: cannot write standard output: No space left on device\n"


def test_incomplete_evidence_gives_three_only_when_strict(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    whole = gzip.decompress(trace_of(sample("launch-bound-decode-torch-trace")).read_bytes())
    (tmp_path / "cut.json").write_bytes(whole[: len(whole) * 3 // 4])
    code, out, _ = run(capfd, "diagnose", tmp_path / "cut.json", "--format", "json")
    assert code == 0
    (evidence,) = json.loads(out)["evidence"]
    assert evidence["complete"] is False
    assert evidence["notes"]
    code, out, err = run(capfd, "diagnose", tmp_path / "cut.json", "--format", "json", "--strict", "--fail-on", "info")
    assert code == 3
    assert json.loads(out)["findings"]
    assert "incomplete" in err


def test_the_module_runs_as_the_command_does() -> None:
    program = [sys.executable, "-m", "doctor", "diagnose", "/no/such/file"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("doctor: ")
