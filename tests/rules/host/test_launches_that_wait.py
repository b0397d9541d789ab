"""Launches that return only when their kernels have ended: CUDA_LAUNCH_BLOCKING=1 was left on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.trace_builder import ADD, GEMM, HEAD_GEMM, Program
from tests.support.verdicts import Clinic

RULE = "sync-in-step"
Launch = Callable[[Program, str, float], None]


def waiting(program: Program, kernel: str, kernel_us: float) -> None:
    program.launch_and_wait(kernel, kernel_us)


def plain(program: Program, kernel: str, kernel_us: float) -> None:
    program.launch(kernel, kernel_us)


def every_other(program: Program, kernel: str, kernel_us: float) -> None:
    (waiting if kernel == ADD else plain)(program, kernel, kernel_us)


def steps(launch: Launch, kernel_us: float, silence_us: float) -> Program:
    """Six steps of twenty products and as many additions."""
    program = Program()
    for _ in range(6):
        program.copy("HtoD pinned", 64)
        for _ in range(20):
            for kernel in (GEMM, ADD):
                program.silence(silence_us)
                launch(program, kernel, kernel_us)
        program.launch(HEAD_GEMM, kernel_us)
        program.copy("DtoH pinned", 64)
        program.wait()
    return program


def test_names_the_variable_and_promises_the_waits(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(steps(waiting, kernel_us=40, silence_us=20))
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    assert finding["title"] == "Every launch waits for its kernel"
    assert "CUDA_LAUNCH_BLOCKING" in finding["fixes"][0]["setting"]
    # 20 + 4 + 2 + 40 + 3 us a launch; without the waits the device works all the time, 40 us each
    assert finding["gain"]["speedup_expected"] == pytest.approx(69 / 40, rel=0.15)


def test_promises_little_where_the_host_is_slower_than_the_kernels(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(steps(waiting, kernel_us=6, silence_us=60))
    # a wait is 11 of 75 us, more on a quicker host
    assert 1.05 < verdicts.finding(RULE)["gain"]["speedup_expected"] < 1.35
    assert verdicts.first == "host-dispatch-bound"


@pytest.mark.parametrize(
    ("launch", "kernel_us"),
    [
        pytest.param(plain, 40.0, id="launches that return at once"),
        pytest.param(every_other, 40.0, id="half of the launches"),
        pytest.param(waiting, 2.0, id="kernels so short that they end before the call returns"),
    ],
)
def test_is_silent_on_look_alikes(clinic: Clinic, launch: Launch, kernel_us: float) -> None:
    assert RULE not in clinic.verdicts(steps(launch, kernel_us, silence_us=20)).found


def test_is_silent_on_graphs_that_are_waited_for(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        program.copy("HtoD pinned", 64)
        program.graph([(GEMM, 40.0), (ADD, 40.0)] * 20)
        program.wait()
    assert RULE not in clinic.verdicts(program).found
