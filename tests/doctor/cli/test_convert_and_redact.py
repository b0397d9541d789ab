from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from doctor.cli.main import main
from tests.support.native_reports import HEALTHY, report
from tests.support.samples import sample


def test_convert_writes_a_file_and_says_so_on_standard_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(report(HEALTHY)), "-o", str(tmp_path / "out.sqlite")]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert "rows in" in err
    assert (tmp_path / "out.sqlite").read_bytes().startswith(b"SQLite format 3")


def test_an_incomplete_report_converts_with_a_note_and_fails_only_when_strict(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cut.nsys-rep").write_bytes(report(HEALTHY).read_bytes()[:-4])
    arguments = ["convert", str(tmp_path / "cut.nsys-rep"), "-o"]
    assert main([*arguments, str(tmp_path / "one.sqlite")]) == 0
    assert main([*arguments, str(tmp_path / "two.sqlite"), "--strict"]) == 3
    assert "cut short" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["convert", "redact"])
@pytest.mark.parametrize("name", ["missing.nsys-rep", "text.nsys-rep", "folder", "pipe"])
def test_unusable_input_is_one_line_and_exit_code_2(
    command: str, name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.nsys-rep").write_text("hello")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert main([command, str(tmp_path / name), "-o", str(tmp_path / "out.sqlite")]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "out.sqlite").exists()


def test_a_packed_report_converts_as_it_is(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report.nsys-rep.gz").write_bytes(gzip.compress(report(HEALTHY).read_bytes()))
    assert main(["convert", str(tmp_path / "report.nsys-rep.gz"), "-o", str(tmp_path / "out.sqlite")]) == 0
    (tmp_path / "text.gz").write_bytes(gzip.compress(b"hello"))
    assert main(["convert", str(tmp_path / "text.gz"), "-o", str(tmp_path / "two.sqlite")]) == 2
    assert "text.gz is no Nsight Systems report" in capfd.readouterr().err


def test_redact_says_what_the_copy_is(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["redact", str(report(HEALTHY)), "-o", str(tmp_path / "copy.nsys-rep")]) == 0
    assert "nsys-report" in capfd.readouterr().err
    assert main(["convert", str(tmp_path / "copy.nsys-rep"), "-o", str(tmp_path / "out.parquet")]) == 0


@pytest.mark.parametrize("ending", ["sqlite", "parquet", "pftrace"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_every_target_names_what_the_evidence_lost_in_one_line(
    ending: str, packed: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    raw = report(HEALTHY).read_bytes()
    cut = gzip.compress(raw)[:-1000] if packed else raw[:-4]
    (tmp_path / "cut.nsys-rep").write_bytes(cut)
    assert main(["convert", str(tmp_path / "cut.nsys-rep"), "-o", str(tmp_path / f"out.{ending}"), "--strict"]) == 3
    lost, written = capfd.readouterr().err.splitlines()
    assert "cut.nsys-rep: " in lost
    assert ("gzip data ends too early" if packed else "cut short") in lost
    assert "incomplete" in written


def test_a_cut_trace_becomes_a_trace_that_is_called_incomplete(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trace = sample("graph-decode-torch-trace") / "healthy-fixed.pt.trace.json.gz"
    (tmp_path / "cut.json").write_bytes(gzip.decompress(trace.read_bytes())[:2_000_000])
    assert main(["convert", str(tmp_path / "cut.json"), "-o", str(tmp_path / "out.pftrace")]) == 0
    lost, written = capfd.readouterr().err.splitlines()
    assert "the trace is cut" in lost
    assert "incomplete" in written


@pytest.mark.parametrize(
    "arguments",
    [["diagnose", "-o"], ["diagnose", "--save"], ["redact", "-o"], ["convert", "-o"]],
    ids=lambda words: words[0] + words[1],
)
def test_a_name_that_is_too_long_is_no_bug(
    arguments: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command, option = arguments
    assert main([command, str(report(HEALTHY)), option, str(tmp_path / ("x" * 300 + ".sqlite"))]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "name too long" in line
    assert "unexpected" not in line
