"""The replay of real recordings, against what was measured without a profiler."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from doctor.api import load
from doctor.case.derive import derive
from doctor.case.diagnosis_queries import window
from doctor.replay.win import Replay
from doctor.rule import Cure
from tests.doctor.replay import known_cures
from tests.support.traces import shared_trace


def replay_of(*names: str) -> Replay:
    case = load(*(shared_trace(name) for name in names))
    derive(case)
    steady = window(case)
    assert steady is not None
    return Replay(case, steady.start_ns, steady.end_ns)


@dataclass(frozen=True)
class Measured:
    """A recording, the cure of its problem, and the speed-ups that the cure brought when run without a profiler."""

    recording: str
    cure: Cure
    speedups: tuple[float, ...]


MEASURED = [
    Measured("h200/launch-sick.sqlite.gz", known_cures.GRAPHS_FOR_DECODE, (4.3, 5.1)),
    Measured("h200/hostgap-sick.sqlite.gz", known_cures.NO_LONG_SILENCE, (2.3, 3.5)),
    Measured("h200/hostgap-sick.pt.trace.json.gz", known_cures.NO_LONG_SILENCE, (2.3, 3.5)),
    Measured("h200/h2d-sick.sqlite.gz", known_cures.PINNED_COPIES, (2.6, 1.9)),
    Measured("h200/h2d-sick.pt.trace.json.gz", known_cures.PINNED_COPIES, (2.6, 1.9)),
    Measured("h200/synctrap-sick.sqlite.gz", known_cures.NO_SYNCS, (1.0, 1.04)),
    Measured("h200x2/straggler-sick.sqlite.gz", known_cures.NO_EXTRA_WORK_ON_RANK_1, (42.0 / 8.1,)),
]


@pytest.mark.parametrize("case", MEASURED, ids=lambda case: case.recording.split("/")[1])
def test_the_range_holds_a_speed_up_that_was_measured(case: Measured) -> None:
    win = replay_of(case.recording).win(case.cure)
    assert any(win.speedup_low <= round(speedup, 2) <= win.speedup_high for speedup in case.speedups), win
    assert win.speedup_low <= win.speedup_expected <= win.speedup_high <= win.speedup_bound
    assert win.speedup_high / win.speedup_low <= 2.2, win


@pytest.mark.parametrize("case", MEASURED, ids=lambda case: case.recording.split("/")[1])
def test_no_measured_speed_up_is_more_than_a_tenth_above_the_bound(case: Measured) -> None:
    assert replay_of(case.recording).win(case.cure).speedup_bound >= max(case.speedups) / 1.1


def test_no_measured_speed_up_is_more_than_a_tenth_above_the_bound_from_two_traces_of_a_job() -> None:
    """42.0 ms a step with the extra work of one rank, 8.1 without; the profiler slows the launches of both ranks."""
    replay = replay_of("h200x2/straggler-sick.rank0.pt.trace.json.gz", "h200x2/straggler-sick.rank1.pt.trace.json.gz")
    assert replay.win(known_cures.NO_EXTRA_WORK_ON_RANK_1).speedup_bound >= 42.0 / 8.1 / 1.1


@pytest.mark.parametrize("case", ["hostgap", "synctrap", "h2d"])
def test_a_cured_run_has_nothing_more_to_win_from_its_cure(case: str) -> None:
    cure = {
        "hostgap": known_cures.NO_LONG_SILENCE,
        "synctrap": known_cures.NO_SYNCS,
        "h2d": known_cures.PINNED_COPIES,
    }[case]
    win = replay_of(f"h200/{case}-fixed.sqlite.gz").win(cure)
    assert win.share_of_window < 0.01
    assert win.speedup_expected < 1.02


@pytest.mark.parametrize(
    "recording",
    [
        "h200/launch-sick.sqlite.gz",
        "h200/launch-sick.pt.trace.json.gz",
        "h200/launch-fixed.sqlite.gz",
        "h200/h2d-sick.sqlite.gz",
        "h200/synctrap-sick.sqlite.gz",
        "h200/healthy-fixed.sqlite.gz",
        "h200/healthy-fixed.pt.trace.json.gz",
        "h200x2/scaling-sick.sqlite.gz",
        "public/athrun_result.sqlite.gz",
        "public/jsun_result.sqlite.gz",
        "public/nsysai_mfu_2gpu_before.sqlite.gz",
        "public/hta_sampled_rank-0.json.gz",
        "public/tbplugin_resnet50_w0.pt.trace.json.gz",
        "public/tracelens_mi300_Qwen1.5-0.5B-Chat.json.gz",
    ],
)
def test_the_untouched_run_replays_to_its_recorded_length(recording: str) -> None:
    quality = replay_of(recording).quality
    assert quality.is_trusted, quality.notes
    assert quality.identity_error < 1e-7  # lengths have seven digits
    assert quality.class_median_error < 0.10


def test_a_recording_that_holds_half_of_the_launches_gets_no_promise() -> None:
    quality = replay_of("public/nsysai_h100_2gpu_1s.sqlite.gz").quality
    assert not quality.is_trusted
    assert "of the device work has no launch in the recording" in quality.notes[0]


def test_a_recording_by_nsys_tells_the_profilers_share_and_the_hosts_speed() -> None:
    quality = replay_of("h200/launch-sick.sqlite.gz").quality
    assert quality.correction == "correlation ids and host probe"
    assert quality.profiler_share == pytest.approx(0.3, abs=0.15)  # 22 to 40 % of host-bound runs of this program
    assert quality.host_speed_factor == pytest.approx(1.7, abs=0.3)  # a noisy host


def test_a_recording_by_the_torch_profiler_is_corrected_by_one_factor() -> None:
    quality = replay_of("h200/launch-sick.pt.trace.json.gz").quality
    assert quality.correction == "phi"
    assert quality.profiler_share is None


def test_ranks_recorded_in_two_files_wait_for_each_other() -> None:
    names = [f"h200x2/straggler-sick.rank{rank}.pt.trace.json.gz" for rank in (0, 1)]
    assert replay_of(*names).win(known_cures.NO_EXTRA_WORK_ON_RANK_1).seconds_recorded > 0.02
