from __future__ import annotations

import numpy as np
import pytest

from doctor.case.replay_queries import read_recording
from doctor.replay.building import build_run
from doctor.replay.corrections import PHI_RANGE, Corrected, correct, observe
from doctor.replay.run import Run
from doctor.replay.schedule import plan, replay
from tests.support.replay_cases import Call, Kernel, case_of


def corrected(
    calls: list[Call], kernels: list[Kernel], unprofiled_seconds: float | None = None
) -> tuple[Run, Corrected]:
    recording = read_recording(case_of(calls, kernels), 0, 10_000_000_000)
    run = build_run(recording)
    return run, correct(run, plan(run), observe(run, recording.names), unprofiled_seconds)


def length(run: Run) -> float:
    return replay(run, plan(run)).makespan_ns


LAUNCHES = [Call("cudaLaunchKernel", 20 * place, 20 * place + 5) for place in range(200)]
KERNELS = [Kernel(call.start + 6, call.start + 8, place) for place, call in enumerate(LAUNCHES, 1)]


def test_without_a_probe_all_plain_host_time_is_scaled_by_one_factor() -> None:
    run, result = corrected(LAUNCHES, KERNELS)
    assert result.method == "phi"
    for phi, changed in zip(PHI_RANGE, (result.quick, result.slow), strict=True):
        assert changed.calls.silence == pytest.approx(run.calls.silence * phi)
        assert changed.calls.own == pytest.approx(run.calls.own * phi)


def test_long_silences_waits_and_copies_are_nobodys_overhead() -> None:
    calls = [
        *LAUNCHES,
        Call("cudaLaunchKernel", 9_000, 9_005),
        Call("cudaDeviceSynchronize", 9_010, 9_040),
        Call("cudaMemcpyAsync", 9_045, 9_065),
    ]
    run, result = corrected(calls, [*KERNELS, Kernel(9_006, 9_030, 201)])
    assert result.quick.calls.silence[-3] == run.calls.silence[-3] > 5_000_000
    assert result.quick.calls.own[-2:] == pytest.approx(run.calls.own[-2:])


def test_time_in_which_a_module_is_loaded_is_work() -> None:
    calls = [*LAUNCHES, Call("cuLibraryLoadData", 4_400, 6_000), Call("cudaLaunchKernel", 6_400, 6_405)]
    run, result = corrected(calls, [*KERNELS, Kernel(6_406, 6_500, 202)])
    assert result.quick.calls.own[-2:] == pytest.approx(run.calls.own[-2:])
    assert result.quick.calls.silence[-2:] == pytest.approx(run.calls.silence[-2:])


def test_a_graph_launch_that_records_its_nodes_is_cut_to_what_it_takes_without() -> None:
    nodes = 20
    calls = [Call("cudaGraphLaunch", 0, 500), Call("cudaGraphLaunch", 1_000, 1_500)]
    kernels = [
        Kernel(call.end + 2 * node, call.end + 2 * node + 1, place)
        for place, call in enumerate(calls, 1)
        for node in range(nodes)
    ]
    run, result = corrected(calls, kernels)
    assert result.slow.calls.own[1:] == pytest.approx([10_000 + 250 * nodes] * 2)
    first = run.ops.start == 500_000
    assert result.slow.ops.latency[first] == pytest.approx([10_000 + 250 * nodes])


@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
def test_a_measured_time_is_met(share: float) -> None:
    run, result = corrected(LAUNCHES, KERNELS, unprofiled_seconds=share * 4e-3)
    middle = np.sqrt(length(result.quick) * length(result.slow))
    assert middle == pytest.approx(share * 4e6, rel=0.02)
    assert result.profiler_share == pytest.approx(1 - share * 4e6 / run.recorded_ns)


@pytest.mark.parametrize(("seconds", "phi"), [(1e-6, 0.4), (1.0, 1.0)])
def test_a_measured_time_out_of_reach_is_met_as_far_as_a_profiler_can_go(seconds: float, phi: float) -> None:
    run, result = corrected(LAUNCHES, KERNELS, unprofiled_seconds=seconds)
    middle = np.sqrt(result.quick.calls.own * result.slow.calls.own)
    assert middle == pytest.approx(run.calls.own * phi)


def probed(gap_us: float, probe_ns: float, ids: int) -> tuple[list[Call], list[Kernel]]:
    """Launches with a probe before each; the recorder skips `ids` calls between them."""
    calls, kernels = [], []
    for place in range(150):
        start = place * 40.0
        calls += [
            Call("cuKernelGetName", start + gap_us, start + gap_us + probe_ns / 1000, correlation_id=place * (ids + 2)),
            Call("cudaLaunchKernel", start + 30, start + 35, correlation_id=place * (ids + 2) + 1),
        ]
        kernels.append(Kernel(start + 36, start + 38, 2 * place + 2))
    return calls, kernels


def test_the_profilers_time_is_taken_out_by_the_ids_that_it_used_up() -> None:
    run, result = corrected(*probed(20.0, 105.0, ids=12))
    assert result.method == "correlation ids and host probe"
    assert result.host_speed_factor == pytest.approx(1.0, abs=0.01)
    probe = np.flatnonzero(run.calls.own == 105)[10]
    assert result.quick.calls.silence[probe] == pytest.approx(run.calls.silence[probe] - 540 * 13)
    assert result.slow.calls.silence[probe] == pytest.approx(1.7 * (run.calls.silence[probe] - 540 * 13))


def test_a_slow_probe_tells_of_a_slow_host() -> None:
    run, result = corrected(*probed(20.0, 210.0, ids=12))
    slowness = 2**0.92
    assert result.host_speed_factor == pytest.approx(slowness)
    probe = np.flatnonzero(run.calls.own == 210)[10]
    kept = run.calls.silence[probe] - 540 * 13 * slowness
    assert result.quick.calls.silence[probe] == pytest.approx(kept / slowness)


def test_the_profiler_never_takes_all_of_a_silence() -> None:
    run, result = corrected(*probed(20.0, 105.0, ids=200))
    probe = np.flatnonzero(run.calls.own == 105)[10]
    assert result.quick.calls.silence[probe] == pytest.approx(0.15 * run.calls.silence[probe])


def test_a_plan_takes_longer_on_a_slow_host_as_launches_do() -> None:
    """Twice as slow as the quiet host: of a plan of 60 ms 30 are left, as of each launch half."""
    calls, kernels = probed(20.0, probe_ns=105 * 2 ** (1 / 0.92), ids=0)
    last = max(call.end for call in calls)
    calls += [
        Call("cuLibraryLoadData", last + 60_000, last + 60_100),
        Call("cudaLaunchKernel", last + 60_101, last + 60_106),
    ]
    kernels = [*kernels, Kernel(last + 60_107, last + 60_110, len(calls))]
    run, result = corrected(calls, kernels)
    assert run.calls.silence[-2] == pytest.approx(60e6)
    assert result.quick.calls.silence[-2] == pytest.approx(30e6, rel=0.02)
    assert result.slow.calls.silence[-2] == pytest.approx(1.7 * 30e6, rel=0.02)
