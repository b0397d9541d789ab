"""Which calls wait, and for what. Times are microseconds."""

from __future__ import annotations

import pytest

from doctor.case.replay_queries import read_recording
from doctor.replay.building import build_run
from doctor.replay.run import Run
from tests.support.replay_cases import Call, Copy, Kernel, case_of

LAUNCH = Call("cudaLaunchKernel", 0, 5)
LAUNCH_ELSEWHERE = Call("cudaLaunchKernel", 6, 9)


def run_of(calls: list[Call], kernels: list[Kernel], copies: list[Copy] | None = None) -> Run:
    return build_run(read_recording(case_of(calls, kernels, copies or []), 0, 10_000_000))


def waits_of(run: Run) -> list[tuple[int, list[int], float, bool]]:
    """Id of each waiting call, ids of the awaited operations, lag in us, whether it did wait."""
    waits = run.waits
    return [
        (
            int(run.calls.call_id[call]),
            sorted(run.ops.op_id[waits.op[waits.first[row] : waits.first[row + 1]]].tolist()),
            float(waits.lag[row]) / 1000,
            bool(waits.did_block[row]),
        )
        for row, call in enumerate(waits.call)
    ]


def test_a_sync_waits_for_what_was_launched_before_it() -> None:
    run = run_of([LAUNCH, Call("cudaDeviceSynchronize", 10, 110)], [Kernel(6, 106, 1)])
    assert waits_of(run) == [(1, [0], 4.0, True)]
    assert run.calls.own[-1] == 4_000


def test_a_sync_that_seems_to_return_2_us_before_the_work_ends_waited_for_it() -> None:
    run = run_of([LAUNCH, Call("cudaDeviceSynchronize", 10, 104)], [Kernel(6, 106, 1)])
    assert waits_of(run) == [(1, [0], -2.0, True)]
    assert run.calls.own[-1] == 0


def test_a_sync_that_found_all_work_done_would_wait_for_it_on_a_faster_host() -> None:
    run = run_of([LAUNCH, Call("cudaStreamSynchronize", 40, 43)], [Kernel(6, 20, 1)])
    assert waits_of(run) == [(1, [0], 3.0, False)]


def test_a_sync_waits_for_each_stream_that_drained_meanwhile() -> None:
    calls = [LAUNCH, LAUNCH_ELSEWHERE, Call("cudaDeviceSynchronize", 10, 110)]
    run = run_of(calls, [Kernel(6, 80, 1), Kernel(10, 106, 2, stream=8)])
    assert waits_of(run) == [(2, [0, 1], 4.0, True)]


def test_a_stream_sync_does_not_wait_for_a_stream_that_works_on() -> None:
    calls = [LAUNCH, LAUNCH_ELSEWHERE, Call("cudaStreamSynchronize", 10, 85)]
    run = run_of(calls, [Kernel(6, 80, 1), Kernel(10, 500, 2, stream=8)])
    assert waits_of(run) == [(2, [0], 5.0, True)]


def test_an_event_sync_waits_for_the_work_that_had_just_ended_not_for_the_last_launched() -> None:
    calls = [LAUNCH, LAUNCH_ELSEWHERE, Call("cudaEventSynchronize", 10, 42)]
    run = run_of(calls, [Kernel(6, 40, 1), Kernel(41, 500, 2)])
    assert waits_of(run) == [(2, [0], 2.0, True)]


def test_an_allocation_that_returned_while_the_device_worked_did_not_wait() -> None:
    calls = [LAUNCH, LAUNCH_ELSEWHERE, Call("cudaMalloc", 10, 85)]
    assert waits_of(run_of(calls, [Kernel(6, 80, 1), Kernel(10, 500, 2, stream=8)])) == []


def test_a_free_that_returned_when_the_device_fell_idle_waited() -> None:
    run = run_of([LAUNCH, Call("cudaFree", 10, 120)], [Kernel(6, 106, 1)])
    assert waits_of(run) == [(1, [0], 14.0, True)]


@pytest.mark.parametrize(
    ("kind", "source", "destination", "waits"),
    [("dtoh", "device", "pageable", True), ("htod", "pageable", "device", True), ("dtoh", "device", "pinned", False)],
)
def test_a_copy_waits_for_itself_where_its_memory_is_pageable(
    kind: str, source: str, destination: str, waits: bool
) -> None:
    run = run_of([Call("cudaMemcpyAsync", 0, 50)], [], [Copy(6, 46, 1, kind, source, destination)])
    assert waits_of(run) == ([(0, [0], 4.0, True)] if waits else [])


ELSEWHERE = Call("cudaLaunchKernel", 7, 25, tid=2)
"""A launch by another thread, beside `LAUNCH_ELSEWHERE` of the main one, not in turns with it."""


def test_threads_that_launch_at_the_same_time_have_a_clock_each() -> None:
    kernels = [Kernel(6, 10, 1), Kernel(11, 15, 2), Kernel(30, 40, 3, stream=8)]
    run = run_of([LAUNCH, LAUNCH_ELSEWHERE, ELSEWHERE], kernels)
    assert not run.ops.is_tied.any()
    assert run.calls.call_id[run.ops.call].tolist() == [0, 1, 2]
    assert run.calls.thread[run.ops.call].tolist() == [0, 0, 1]
    assert run.calls.silence[run.ops.call].tolist() == [0.0, run.calls.silence[2], 7_000.0]  # from the window's start


def test_a_thread_waits_for_the_work_of_its_own_stream_beside_another_threads() -> None:
    calls = [LAUNCH_ELSEWHERE, ELSEWHERE, Call("cudaStreamSynchronize", 30, 112, tid=2)]
    run = run_of(calls, [Kernel(10, 60, 1), Kernel(30, 110, 2, stream=8)])
    assert waits_of(run) == [(2, [1], 2.0, True)]


def test_a_thread_that_waits_for_the_device_waits_for_the_work_of_all_threads() -> None:
    calls = [LAUNCH_ELSEWHERE, ELSEWHERE, Call("cudaDeviceSynchronize", 30, 112, tid=2)]
    run = run_of(calls, [Kernel(10, 60, 1), Kernel(30, 110, 2, stream=8)])
    assert waits_of(run) == [(2, [0, 1], 2.0, True)]


def test_a_thread_waits_for_what_others_have_put_before_it_into_a_stream_that_they_share() -> None:
    calls = [ELSEWHERE, Call("cudaLaunchKernel", 8, 13), Call("cudaStreamSynchronize", 30, 112, tid=2)]
    run = run_of(calls, [Kernel(26, 60, 2), Kernel(61, 110, 1)])
    assert [(op, lag) for _, op, lag, _ in waits_of(run)] == [([1], 2.0)]


def test_work_launched_before_the_window_stands_in_the_queue_when_it_opens() -> None:
    calls = [LAUNCH, LAUNCH_ELSEWHERE, Call("cudaLaunchKernel", 10, 13), Call("cudaLaunchKernel", 60, 65)]
    kernels = [Kernel(6, 40, 1), Kernel(50, 120, 2), Kernel(121, 140, 3), Kernel(141, 150, 4)]
    run = build_run(read_recording(case_of(calls, kernels), 45_000, 10_000_000))
    assert run.ops.op_id.tolist() == [1, 2, 3]
    assert run.calls.call_id[run.ops.call].tolist() == [-1, -1, 3]  # -1: when the window opens
    assert run.ops.is_queued.tolist() == [False, True, True]
    assert not run.ops.is_tied.any()


def test_work_behind_other_work_of_its_stream_waits_for_the_queue_not_for_its_launch() -> None:
    run = run_of([LAUNCH, LAUNCH_ELSEWHERE], [Kernel(6, 106, 1), Kernel(107, 120, 2)])
    assert run.ops.is_queued.tolist() == [False, True]
    assert run.ops.distance[1] == 1_000
    assert run.ops.latency[1] == 6_000


def test_work_that_starts_when_another_stream_ends_waits_for_that_stream() -> None:
    run = run_of([LAUNCH, LAUNCH_ELSEWHERE], [Kernel(6, 106, 1), Kernel(109, 120, 2, stream=8)])
    assert run.ops.source.tolist() == [-1, 0]
    assert run.ops.source_distance[1] == 3_000


def test_what_stood_in_the_queue_longer_than_it_waited_behind_the_one_before_starts_when_that_ends() -> None:
    # 15 us behind a kernel of 1 ms is no latency of the launch, which was 1 ms ago
    run = run_of([LAUNCH, LAUNCH_ELSEWHERE], [Kernel(6, 1_006, 1), Kernel(1_021, 1_030, 2)])
    assert run.ops.is_queued.tolist() == [False, True]
    assert run.ops.distance[1] == 15_000
    assert run.ops.latency[1] < 100_000


def test_a_start_long_after_both_its_launch_and_the_one_before_is_nobodys_end() -> None:
    run = run_of([LAUNCH, LAUNCH_ELSEWHERE], [Kernel(6, 26, 1), Kernel(126, 140, 2)])
    assert run.ops.is_queued.tolist() == [False, False]
