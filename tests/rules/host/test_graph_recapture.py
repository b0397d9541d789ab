from __future__ import annotations

from tests.support.trace_builder import GEMM, HEAD_GEMM, Program
from tests.support.verdicts import Clinic

RULE = "graph-recapture"


def replayed_step(program: Program) -> None:
    program.silence(10)
    program.copy("HtoD pinned", 64)
    program.graph([(GEMM, 10.0)] * 40 + [(HEAD_GEMM, 20.0)])
    program.wait()


def capture(program: Program) -> None:
    program.call("cudaStreamBeginCapture", 5)
    program.call("cudaStreamEndCapture", 200)
    program.call("cudaGraphInstantiate", 800)


def test_fires_when_steps_capture_again(clinic: Clinic) -> None:
    program = Program()
    for step in range(10):
        replayed_step(program)
        if step % 2:
            capture(program)
    verdicts = clinic.verdicts(program)
    assert verdicts.first == RULE
    assert verdicts.finding(RULE)["gain"]["speedup_expected"] > 1.5


def test_is_silent_on_captures_before_the_steps(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        capture(program)
    for _ in range(20):
        replayed_step(program)
    assert RULE not in clinic.verdicts(program).found
