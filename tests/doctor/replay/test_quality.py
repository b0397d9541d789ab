from __future__ import annotations

import pytest

from doctor.replay.win import Replay
from tests.support.replay_cases import Call, Copy, Kernel, case_of


def replay_of_synced_steps(lags_us: list[float]) -> Replay:
    """Steps of one kernel of 50 us and a sync that returns so long after its end."""
    calls: list[Call] = []
    kernels: list[Kernel] = []
    clock = 0.0
    for lag in lags_us:
        calls += [
            Call("cudaLaunchKernel", clock, clock + 5),
            Call("cudaDeviceSynchronize", clock + 8, clock + 56 + lag),
        ]
        kernels.append(Kernel(clock + 6, clock + 56, len(calls) - 1))
        clock += 60 + lag
    return Replay(case_of(calls, kernels), 0, round(clock * 1000))


def test_steps_that_are_all_alike_replay_the_same_with_class_medians() -> None:
    quality = replay_of_synced_steps([4.0] * 20).quality
    assert quality.is_trusted
    assert quality.class_median_error == pytest.approx(0, abs=1e-9)


def test_waits_that_return_unlike_each_other_show_in_the_class_medians_only() -> None:
    lags = [4.0] * 12 + [100.0] * 8
    quality = replay_of_synced_steps(lags).quality
    recorded_us = sum(60 + lag for lag in lags) - (4 + 100)  # the window ends with the last kernel
    assert quality.identity_error == pytest.approx(0, abs=1e-9)
    assert quality.class_median_error == pytest.approx(7 * 96 / recorded_us, rel=1e-6)
    assert not quality.is_trusted
    assert quality.notes == (f"the replay with class medians is off by {7 * 96 / recorded_us:.1%}",)


def test_copies_of_each_size_are_a_class_of_their_own() -> None:
    """A large copy into pageable memory is unpacked for a millisecond after its end, a small one is not."""
    calls: list[Call] = []
    copies: list[Copy] = []
    clock = 0.0
    for _ in range(10):
        for copy_us, lag_us in ((3, 4), (3, 4), (4, 4), (1000, 1200)):
            calls.append(Call("cudaMemcpyAsync", clock, clock + 6 + copy_us + lag_us))
            copies.append(Copy(clock + 6, clock + 6 + copy_us, len(calls), "dtoh", "device", "pageable"))
            clock = calls[-1].end + 5
    quality = Replay(case_of(calls, [], copies), 0, round(clock * 1000)).quality
    assert quality.is_trusted
    assert quality.class_median_error == pytest.approx(0, abs=0.01)
