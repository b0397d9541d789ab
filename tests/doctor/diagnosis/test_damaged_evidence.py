from __future__ import annotations

from pathlib import Path

import pytest

from doctor.cli.main import main
from tests.support.samples import sample
from tests.support.trace_builder import Program, decode_step
from tests.support.verdicts import verdicts_on

REPORT = "launch-bound-decode-nsys-report"


def test_a_cut_trace_promises_no_win_and_says_at_the_top_what_was_lost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = Program()
    for _ in range(8):
        decode_step(program)
    path = program.write(tmp_path / "cut.json")
    path.write_text(path.read_text()[:-2000])
    verdicts = verdicts_on(path, capfd)
    finding = verdicts.finding("host-dispatch-bound")
    assert finding["severity"] in {"medium", "low"}
    assert finding["gain"]["speedup_expected"] is None
    assert main(["diagnose", str(path), "--no-progress"]) == 0
    assert any("INCOMPLETE" in line for line in capfd.readouterr().out.splitlines()[:8])  # right behind the verdict


@pytest.mark.parametrize("window", ["10s:11s", "900s:901s"])
def test_a_window_beside_the_work_is_refused_and_not_called_healthy(
    window: str, capfd: pytest.CaptureFixture[str]
) -> None:
    [report] = sample(REPORT).glob("*.nsys-rep")
    assert main(["diagnose", str(report), "--window", window]) == 2
    assert "holds no device work" in capfd.readouterr().err


def test_an_unknown_range_is_refused_with_the_names_there_are(capfd: pytest.CaptureFixture[str]) -> None:
    [report] = sample(REPORT).glob("*.nsys-rep")
    assert main(["diagnose", str(report), "--range", "nope"]) == 2
    assert "'decode_step'" in capfd.readouterr().err


def test_a_trace_in_which_nothing_takes_time_is_no_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = Program()
    for _ in range(8):
        decode_step(program)
    for event in program.events:
        event["ts"], event["dur"] = 5.0, 0.0
    assert verdicts_on(program.write(tmp_path / "still.json"), capfd).document["findings"] is not None
