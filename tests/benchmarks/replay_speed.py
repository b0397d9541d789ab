"""How long one replay takes. Run: `python -m tests.benchmarks.replay_speed [KERNELS] [WAITS]`.

A synthetic eager run: a launch and one other call for each kernel, a device sync every KERNELS / WAITS kernels. Prints
wall and CPU seconds, and CPU seconds for each million kernels, at a quarter, half and all of the size: what is linear
keeps its ratio.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from doctor.case.replay_queries import CallNames, Real, RecordedCalls, RecordedOps, Recording
from doctor.replay.building import build_run
from doctor.replay.corrections import correct, observe
from doctor.replay.cure import Change, apply
from doctor.replay.schedule import plan, replay
from doctor.rule import Act, Target

Result = TypeVar("Result")
DEFAULT_KERNELS = 5_000_000
DEFAULT_WAITS = 10_000
NAMES = CallNames(
    np.arange(3),
    ("cudaLaunchKernel", "cudaDeviceSynchronize", "cuKernelGetName"),
    ("launch", "sync", "other"),
    np.zeros(3, dtype=np.bool_),
)


def synthetic_run(kernels: int, waits: int) -> Recording:
    """An eager run whose host is a little slower than its device, with a sync now and then."""
    random = np.random.default_rng(7)
    every = max(kernels // max(waits, 1), 1)
    is_sync = np.zeros(kernels, dtype=np.bool_)
    is_sync[every - 1 :: every] = True
    kind = np.concatenate([np.stack((np.full(kernels, 2), np.zeros(kernels, dtype=np.int64)), 1).ravel()])
    place = np.flatnonzero(is_sync)
    kind = np.insert(kind, 2 * (place + 1), 1)
    length = np.where(kind == 2, 200.0, np.where(kind == 1, 20_000.0, 4_000.0))
    silence = random.integers(500, 4_000, len(kind)).astype(np.float64)
    end = np.cumsum(silence + length)
    start = end - length
    launch = np.flatnonzero(kind == 0)
    duration = random.integers(1_000, 6_000, kernels).astype(np.float64)
    op_start, op_end = _on_one_stream(start[launch] + 6_000.0, duration)
    calls = RecordedCalls(
        lambda: np.arange(len(kind)),
        np.zeros(len(kind), dtype=np.int64),
        np.zeros(1, dtype=np.int64),
        lambda: start,
        lambda: end,
        lambda: np.arange(len(kind)),
        lambda: kind,
    )
    operations = _operations(op_start, op_end, launch)
    return Recording(lambda: calls, lambda: operations, NAMES, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))


def _on_one_stream(ready: Real, duration: Real) -> tuple[Real, Real]:
    work = np.cumsum(duration)
    end = work + np.maximum.accumulate(ready - (work - duration))
    return end - duration, end


def _operations(start: Real, end: Real, launch: np.ndarray) -> RecordedOps:
    count = len(start)
    none, zero = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.int64)
    return RecordedOps(
        np.arange(count),
        zero,
        lambda: start,
        lambda: end,
        lambda: launch,
        lambda: none,
        lambda: zero,
        lambda: none,
        lambda: zero - 1,
    )


def _timed(what: str, kernels: int, work: Callable[[], Result]) -> Result:
    began, began_cpu = time.perf_counter(), time.process_time()
    result = work()
    seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    print(f"{what:<40} {seconds:8.3f} s wall {cpu:8.3f} s CPU {cpu / kernels * 1e6:8.4f} s per million kernels")
    return result


def measure(kernels: int, waits: int) -> None:
    """Print one table."""
    print(f"\n{kernels:,} kernels, {waits:,} waits")
    recording = synthetic_run(kernels, waits)
    run = _timed("build the run", kernels, lambda: build_run(recording))
    cut = _timed("plan", kernels, lambda: plan(run))
    schedule = _timed("replay", kernels, lambda: replay(run, cut))
    error = schedule.makespan_ns / run.recorded_ns - 1.0
    launches = np.flatnonzero(run.calls.name == 0)
    faster = Change(Target.HOST_CALL, Act.SCALE, launches, np.full(len(launches), 0.3))
    cured = _timed("apply a cure of every launch", kernels, lambda: apply(run, (faster,)))
    after = _timed("replay the cured run", kernels, lambda: replay(cured, cut))
    _timed("correct for the profiler", kernels, lambda: correct(run, cut, observe(run, NAMES), None))
    print(
        f"identity error {error:.2e}, waits {len(run.waits.call):,}, pieces {len(cut.first):,}, "
        f"speed-up of the cure {schedule.makespan_ns / after.makespan_ns:.3f}"
    )


if __name__ == "__main__":
    total = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_KERNELS
    waiting = int(sys.argv[2]) if len(sys.argv) > 2 else DEFAULT_WAITS
    for part in (4, 2, 1):
        measure(total // part, waiting // part)
