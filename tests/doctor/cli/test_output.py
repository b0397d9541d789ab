from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.cli.main import main
from doctor.cli.output import write
from doctor.errors import UsageError
from tests.support.samples import sample, trace_of

SICK = "launch-bound-decode-nsys-report"


def test_a_report_file_is_whole_and_stands_alone(tmp_path: Path) -> None:
    target = tmp_path / "diagnosis.json"
    assert main(["diagnose", str(sample(SICK)), "--format", "json", "-o", str(target)]) == 0
    assert json.loads(target.read_text("utf-8"))["findings"]
    assert list(tmp_path.iterdir()) == [target]


def test_a_failed_run_leaves_the_old_report(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "diagnosis.json"
    target.write_text("old")
    assert main(["diagnose", "no-such-file", "--format", "json", "-o", str(target)]) == 2
    assert target.read_text() == "old"
    assert capfd.readouterr().out == ""


def test_a_file_that_is_written_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    write("text", tmp_path / "report")
    assert (tmp_path / "report").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path) -> None:
    target = tmp_path / "report"
    target.touch(mode=0o600)
    write("text", target)
    assert target.read_text() == "text"
    assert target.stat().st_mode & 0o777 == 0o600


def test_a_device_is_written_to_and_not_replaced() -> None:
    write("text", Path(os.devnull))
    assert Path(os.devnull).is_char_device()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        write("text", tmp_path / "missing" / "report")


def test_a_reader_that_stops_listening_is_no_error() -> None:
    program = [sys.executable, "-m", "doctor.cli.main", "rules"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_standard_input_is_read_as_any_file(capfd: pytest.CaptureFixture[str]) -> None:
    trace = trace_of(sample(SICK))
    program = [sys.executable, "-m", "doctor.cli.main", "diagnose", "--format", "json", "-"]
    with trace.open("rb") as stream:
        piped = subprocess.run(program, stdin=stream, capture_output=True, check=True)
    assert main(["diagnose", "--format", "json", str(trace)]) == 0
    from_file = json.loads(capfd.readouterr().out)
    from_pipe = json.loads(piped.stdout)
    assert from_pipe["evidence"][0]["path"] == "-"
    assert from_pipe["findings"] == from_file["findings"]


def test_output_that_is_no_terminal_is_plain_text(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(sample(SICK))]) == 0
    out, err = capfd.readouterr()
    assert "\x1b" not in out
    assert err == "" or err.startswith("doctor: passed by")


def test_a_refusal_of_standard_input_names_no_temporary_file() -> None:
    program = [sys.executable, "-m", "doctor.cli.main", "diagnose", "-"]
    done = subprocess.run(program, input=b"call me back\n", capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(b"doctor: standard input ")
    assert b"/" not in done.stderr.split(b":")[1]
