"""No win is promised where the replay is not trusted, and everybody is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from doctor.diagnosis.outcome import Diagnosis
from doctor.reports.presentation import Presentation, render
from doctor.rule import Severity
from tests.support.recorded import diagnosis_of
from tests.support.trace_builder import GEMM, PID, Program
from tests.support.traces import shared_trace

THREADS = (PID, PID + 1, PID + 2)


@pytest.fixture(scope="module")
def three_launchers(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    """Three threads that launch at the same time, each on its stream: none of them holds most of the work."""
    program = Program()
    for _ in range(8):
        program.copy("HtoD pinned", 64)
        began_us = program.now_us
        for tid in THREADS:
            program.now_us = began_us
            with program.thread(tid):
                for _ in range(40):
                    program.silence(12)
                    program.launch(GEMM, 3.0, stream=tid)
        program.wait()
    return diagnosis_of(program.write(tmp_path_factory.mktemp("launchers") / "trace.json"))


def test_a_run_of_several_launching_threads_is_not_trusted(three_launchers: Diagnosis) -> None:
    assert three_launchers.replay is not None
    assert not three_launchers.replay.is_trusted
    assert "was not launched by the main thread of its process" in three_launchers.replay.notes[0]


def test_a_finding_is_named_without_a_win(three_launchers: Diagnosis) -> None:
    assert three_launchers.findings
    for finding in three_launchers.findings:
        if finding.gain is not None:
            assert finding.gain.seconds is None
            assert finding.gain.speedup_expected is None
            assert finding.gain.speedup_bound is None
        assert finding.after_first_speedup is None


def test_what_is_ruled_out_states_no_win_either(three_launchers: Diagnosis) -> None:
    assert not [entry for entry in three_launchers.ruled_out if "would win" in entry.because]


def test_json_says_so(three_launchers: Diagnosis) -> None:
    document = json.loads(render(three_launchers, "json", Presentation()))
    assert document["replay"]["is_trusted"] is False
    assert document["replay"]["notes"]
    gains = [finding["gain"] for finding in document["findings"]]
    assert gains
    assert all(gain is None or gain["speedup_expected"] is gain["speedup_bound"] is None for gain in gains)


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_says_so(three_launchers: Diagnosis, width: int) -> None:
    shown = " ".join(render(three_launchers, "terminal", Presentation(width)).split())
    assert "was not launched by the main thread" in shown
    assert "To win: about" not in shown


def test_a_public_recording_of_two_launching_threads_gets_a_cause_and_no_promise() -> None:
    diagnosis = diagnosis_of(shared_trace("public/nsysai_h100_2gpu_1s.sqlite.gz"))
    first = diagnosis.findings[0]
    assert first.rule == "offload-bandwidth-bound"
    assert first.severity is Severity.CRITICAL
    assert first.gain is not None
    assert first.gain.speedup_expected is None
    assert not [entry for entry in diagnosis.ruled_out if "would win" in entry.because]


def test_a_trusted_replay_promises_a_range_under_its_bound(tmp_path: Path) -> None:
    program = Program()
    for _ in range(8):
        program.copy("HtoD pinned", 64)
        for _ in range(60):
            program.silence(12)
            program.launch(GEMM, 3.0)
        program.wait()
    diagnosis = diagnosis_of(program.write(tmp_path / "trace.json"))
    assert diagnosis.replay is not None
    assert diagnosis.replay.is_trusted
    gain = diagnosis.findings[0].gain
    assert gain is not None
    assert gain.speedup_low is not None
    assert gain.speedup_expected is not None
    assert gain.speedup_high is not None
    assert gain.speedup_bound is not None
    assert 1 <= gain.speedup_low <= gain.speedup_expected <= gain.speedup_high <= gain.speedup_bound
