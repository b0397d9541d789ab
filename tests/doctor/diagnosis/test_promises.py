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


@pytest.fixture(scope="module")
def half_recorded(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    """Of three launches the recording holds one, as where the profiler was not started on all threads."""
    program = Program()
    for _ in range(8):
        program.copy("HtoD pinned", 64)
        for _ in range(120):
            program.silence(12)
            program.launch(GEMM, 3.0)
        program.wait()
    launches = [event for event in program.events if event["name"] == "cudaLaunchKernel"]
    lost = {id(event) for place, event in enumerate(launches) if place % 3}
    program.events = [event for event in program.events if id(event) not in lost]
    return diagnosis_of(program.write(tmp_path_factory.mktemp("half") / "trace.json"))


def test_a_run_whose_launches_are_mostly_not_recorded_is_not_trusted(half_recorded: Diagnosis) -> None:
    assert half_recorded.replay is not None
    assert not half_recorded.replay.is_trusted
    assert "of the device work has no launch in the recording" in half_recorded.replay.notes[0]


def test_a_finding_is_named_without_a_win(half_recorded: Diagnosis) -> None:
    assert half_recorded.findings
    for finding in half_recorded.findings:
        if finding.gain is not None:
            assert finding.gain.seconds is None
            assert finding.gain.speedup_expected is None
            assert finding.gain.speedup_bound is None
        assert finding.after_first_speedup is None


def test_what_is_ruled_out_states_no_win_either(half_recorded: Diagnosis) -> None:
    assert not [entry for entry in half_recorded.ruled_out if "would win" in entry.because]


def test_json_says_so(half_recorded: Diagnosis) -> None:
    document = json.loads(render(half_recorded, "json", Presentation()))
    assert document["replay"]["is_trusted"] is False
    assert document["replay"]["notes"]
    gains = [finding["gain"] for finding in document["findings"]]
    assert gains
    assert all(gain is None or gain["speedup_expected"] is gain["speedup_bound"] is None for gain in gains)


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_says_so(half_recorded: Diagnosis, width: int) -> None:
    shown = " ".join(render(half_recorded, "terminal", Presentation(width)).split())
    assert "of the device work has no launch in the recording" in shown
    assert "To win: about" not in shown


def test_a_public_recording_of_half_of_the_launches_gets_a_cause_and_no_promise() -> None:
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


def test_threads_that_launch_at_the_same_time_have_a_promise(tmp_path: Path) -> None:
    """Three threads, each on its stream, at the pace of one: a batch of three needs a third of the launches at best."""
    program = Program()
    for _ in range(8):
        program.copy("HtoD pinned", 64)
        for _ in range(40):
            for tid in (PID, PID + 1, PID + 2):
                with program.thread(tid):
                    program.silence(12)
                    program.launch(GEMM, 3.0, stream=tid)
        program.wait()
    diagnosis = diagnosis_of(program.write(tmp_path / "trace.json"))
    assert diagnosis.replay is not None
    assert diagnosis.replay.is_trusted
    first = diagnosis.findings[0]
    assert "3 threads launch in each other's way" in first.title
    assert first.gain is not None
    assert first.gain.speedup_low is not None
    assert first.gain.speedup_high is not None
    assert first.gain.speedup_bound is not None
    assert first.gain.speedup_low <= 2.5 <= first.gain.speedup_high
    assert first.gain.speedup_bound > 3
