from __future__ import annotations

from dataclasses import replace

import pytest

from doctor.replay.win import Replay
from doctor.rule import Act, Cure, CureStep, Target
from tests.support.replay_cases import Call, Kernel, case_of

STEP_US = 1_000
STEPS = 20


def host_bound_run() -> Replay:
    """20 steps of a launch, a kernel of 100 us and 900 us of silence."""
    calls = [Call("cudaLaunchKernel", STEP_US * step, STEP_US * step + 5) for step in range(STEPS)]
    kernels = [Kernel(call.start + 6, call.start + 106, place) for place, call in enumerate(calls, 1)]
    connection = case_of(calls, kernels)
    return Replay(connection, 0, STEP_US * 1000 * STEPS)


def silences(act: Act, value: float | None = None) -> Cure:
    return Cure((CureStep(Target.SILENCE, act, "SELECT host_call_id FROM host_call", value=value),))


def launches(act: Act, value: float | None = None) -> Cure:
    return Cure((CureStep(Target.HOST_CALL, act, "SELECT host_call_id FROM host_call", value=value),))


def test_a_win_is_the_difference_of_two_replays() -> None:
    win = host_bound_run().win(silences(Act.SCALE, 0.5))
    saved = 0.5 * 995e-6 * (STEPS - 1)
    assert win.seconds_recorded == pytest.approx(saved, rel=1e-6)
    assert win.share_of_window == pytest.approx(saved / 19_106e-6, rel=1e-6)


def test_a_cure_of_host_work_cannot_win_more_than_the_time_the_device_was_idle() -> None:
    win = host_bound_run().win(silences(Act.REMOVE))
    assert win.seconds_recorded <= 19_106e-6 - STEPS * 100e-6
    assert win.speedup_bound >= win.speedup_expected


def test_a_host_slower_than_the_recorded_one_does_not_raise_the_bound_above_the_recorded_idle_time() -> None:
    """A device busy for 2.0 of 19.1 ms; the time given without the profiler belongs to a host slower than recorded."""
    calls = [Call("cudaLaunchKernel", STEP_US * step, STEP_US * step + 5) for step in range(STEPS)]
    kernels = [Kernel(call.start + 6, call.start + 106, place) for place, call in enumerate(calls, 1)]
    replay = Replay(case_of(calls, kernels), 0, STEP_US * 1000 * STEPS, unprofiled_seconds=19.1e-3)
    win = replay.win(replace(silences(Act.SET_DURATION_NS, 0), spread=3.0))
    assert win.speedup_low <= win.speedup_expected <= win.speedup_high <= win.speedup_bound
    assert win.speedup_bound == pytest.approx(19_106 / (STEPS * 100), rel=1e-6)


def test_what_a_better_cure_takes_away_counts_for_the_bound_alone() -> None:
    replay = host_bound_run()
    cure = silences(Act.SCALE, 0.5)
    better = replace(cure, at_most=silences(Act.REMOVE).steps)
    alone, with_better = replay.win(cure), replay.win(better)
    assert with_better.speedup_bound == pytest.approx(19_106 / (STEPS * 100), rel=1e-6)
    assert alone.speedup_bound < 0.5 * with_better.speedup_bound
    assert replace(with_better, speedup_bound=0.0) == replace(alone, speedup_bound=0.0)


def test_pauses_between_steps_are_counted_as_often_as_steps_in_a_loop() -> None:
    """Three steps of 101 us with two pauses of 900 us between: a loop has as many pauses as steps."""
    calls = [Call("cudaLaunchKernel", 1_000 * step, 1_000 * step + 5) for step in range(3)]
    kernels = [Kernel(call.start + 6, call.start + 106, place) for place, call in enumerate(calls, 1)]
    replay = Replay(case_of(calls, kernels), 0, 3_000_000)
    cure = silences(Act.REMOVE)
    seen, looped = replay.win(cure), replay.win(replace(cure, seen_share=2 / 3))
    cured_us = 3 * 100
    assert seen.speedup_bound == pytest.approx(2_106 / cured_us, rel=0.01)
    assert looped.speedup_bound == pytest.approx((cured_us + (2_106 - cured_us) * 3 / 2) / cured_us, rel=0.01)
    assert looped.seconds_recorded == seen.seconds_recorded
    assert looped.share_of_window == seen.share_of_window


def test_a_bound_holds_the_better_host_and_the_whole_spread_at_once() -> None:
    win = host_bound_run().win(replace(silences(Act.SCALE, 0.1), is_host_work=False))
    sure = host_bound_run().win(replace(silences(Act.SCALE, 0.1), is_host_work=False, spread=1.0))
    assert win.speedup_expected == sure.speedup_expected
    assert win.speedup_high < win.speedup_bound
    assert win.speedup_bound > sure.speedup_bound


def test_streams_that_took_turns_cannot_all_run_at_once_when_the_host_is_cured() -> None:
    calls = [Call("cudaLaunchKernel", STEP_US * step, STEP_US * step + 5) for step in range(STEPS)]
    kernels = [Kernel(call.start + 6, call.start + 106, place, stream=place) for place, call in enumerate(calls, 1)]
    win = Replay(case_of(calls, kernels), 0, STEP_US * 1000 * STEPS).win(silences(Act.REMOVE))
    assert win.seconds_recorded == pytest.approx(19_106e-6 - STEPS * 100e-6)


def test_merged_pieces_can_win_device_time_up_to_their_number() -> None:
    replay = host_bound_run()
    every_second = Cure(
        (
            CureStep(Target.DEVICE_OP, Act.REMOVE, "SELECT device_op_id FROM device_op WHERE device_op_id % 2 = 1"),
            CureStep(Target.SILENCE, Act.REMOVE, "SELECT host_call_id FROM host_call"),
            CureStep(Target.HOST_CALL, Act.REMOVE, "SELECT host_call_id FROM host_call"),
        ),
        is_host_work=False,
        device_divisor=2.0,
    )
    busy = STEPS * 100e-6
    assert replay.win(every_second).seconds_recorded == pytest.approx(19_106e-6 - busy / 2, rel=0.02)


def test_the_second_cure_wins_what_the_first_left() -> None:
    replay = host_bound_run()
    first, second = silences(Act.SCALE, 0.5), silences(Act.SCALE, 0.5)
    alone, after = replay.win(second), replay.win(second, on_top_of=(first,))
    assert after.seconds_recorded == pytest.approx(alone.seconds_recorded / 2, rel=1e-6)


def test_a_cure_without_rows_wins_nothing() -> None:
    nothing = Cure((CureStep(Target.SILENCE, Act.REMOVE, "SELECT host_call_id FROM host_call WHERE false"),))
    win = host_bound_run().win(nothing)
    assert win.seconds_recorded == 0
    assert win.speedup_bound == win.speedup_expected == win.speedup_low == win.speedup_high == 1
    assert win.share_expected == 0


def test_a_measured_time_without_the_profiler_decides_the_profilers_share() -> None:
    connection = case_of(
        [Call("cudaLaunchKernel", 400 * step, 400 * step + 5) for step in range(STEPS)],
        [Kernel(400 * step + 6, 400 * step + 16, step + 1) for step in range(STEPS)],
    )
    whole = 400e-6 * (STEPS - 1) + 16e-6
    quality = Replay(connection, 0, 8_000_000, unprofiled_seconds=0.7 * whole).quality
    assert quality.correction == "unprofiled seconds"
    assert quality.profiler_share == pytest.approx(0.3, abs=1e-6)


def test_a_measured_time_narrows_the_range_and_one_of_other_work_does_not() -> None:
    connection = case_of(
        [Call("cudaLaunchKernel", 400 * step, 400 * step + 5) for step in range(STEPS)],
        [Kernel(400 * step + 6, 400 * step + 16, step + 1) for step in range(STEPS)],
    )
    whole = 400e-6 * (STEPS - 1) + 16e-6
    guessed, measured, longer, shorter = (
        Replay(connection, 0, 8_000_000, unprofiled_seconds=seconds)
        for seconds in (None, 0.7 * whole, 2 * whole, 0.1 * whole)
    )
    width = {
        replay: win.speedup_high / win.speedup_low
        for replay in (guessed, measured, longer, shorter)
        for win in (replay.win(silences(Act.REMOVE)),)
    }
    assert width[measured] < width[guessed]
    assert width[measured] < width[longer]
    assert measured.quality.notes == ()
    assert "longer than the window" in longer.quality.notes[0]
    assert "less than a profiler explains" in shorter.quality.notes[0]
    assert longer.quality.is_trusted


def test_a_recording_of_the_device_only_is_not_trusted_and_says_why() -> None:
    replay = Replay(case_of([], [Kernel(6, 106, 0), Kernel(120, 180, 0)]), 0, 200_000)
    assert not replay.quality.is_trusted
    assert replay.quality.notes == ("no launching call in the window: what the host did is not known",)
    assert replay.win(silences(Act.REMOVE)).speedup_bound == 1


def test_a_window_without_device_work_is_not_trusted_and_says_why() -> None:
    replay = Replay(case_of([Call("cudaLaunchKernel", 0, 5)], [Kernel(6, 106, 1)]), 500_000, 600_000)
    assert not replay.quality.is_trusted
    assert replay.quality.notes == ("no device work in the window: nothing to replay",)
    assert replay.win(launches(Act.REMOVE)).seconds_recorded == 0


def test_a_case_without_anything_is_not_trusted() -> None:
    assert not Replay(case_of([], []), 0, 1_000).quality.is_trusted


def test_work_mostly_without_a_recorded_launch_is_not_trusted() -> None:
    calls = [Call("cudaLaunchKernel", 30 * place, 30 * place + 15) for place in range(10)]
    kernels = [Kernel(10 * place + 16, 10 * place + 19, 0 if place % 3 else 1 + place // 3) for place in range(30)]
    quality = Replay(case_of(calls, kernels), 0, 1_000_000).quality
    assert not quality.is_trusted
    assert "67% of the device work has no launch in the recording" in quality.notes


def test_threads_that_launch_at_the_same_time_are_replayed_side_by_side() -> None:
    """Each of three threads launches a kernel every 30 us; without their silences each still has calls of 15 us."""
    calls = [Call("cudaLaunchKernel", 10 * place, 10 * place + 15, tid=1 + place % 3) for place in range(30)]
    kernels = [Kernel(call.start + 16, call.start + 19, place, stream=call.tid) for place, call in enumerate(calls, 1)]
    replay = Replay(case_of(calls, kernels), 0, 1_000_000)
    assert replay.quality.is_trusted
    assert replay.quality.identity_error < 1e-7
    assert replay.win(silences(Act.REMOVE)).seconds_recorded == pytest.approx(155e-6)  # the last begins at 135, not 290


def test_a_rank_that_comes_sooner_lets_the_other_end_sooner() -> None:
    """Rank 1 launches its part of an all-reduce 500 us after rank 0, whose kernel waits for it."""
    calls = [
        Call("cudaLaunchKernel", 0, 5, pid=1),
        Call("cudaLaunchKernel", 0, 5, pid=2, tid=2),
        Call("cudaLaunchKernel", 500, 505, pid=2, tid=2),
        Call("cudaLaunchKernel", 10, 15, pid=1),
    ]
    kernels = [
        Kernel(6, 526, 1, pid=1, name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
        Kernel(6, 26, 2, pid=2, device=1),
        Kernel(506, 526, 3, pid=2, device=1, name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
        Kernel(527, 627, 4, pid=1),
    ]
    connection = case_of(calls, kernels)
    replay = Replay(connection, 0, 1_000_000)
    assert replay.quality.identity_error < 1e-9
    late = "SELECT host_call_id FROM host_call WHERE silence_ns > 400000"
    win = replay.win(Cure((CureStep(Target.SILENCE, Act.REMOVE, late),)))
    meets_us = 26 + 0.34  # behind rank 1's own kernel, at the least distance
    assert win.seconds_recorded == pytest.approx((627 - (meets_us + 20 + 1 + 100)) * 1e-6, abs=2e-9)
