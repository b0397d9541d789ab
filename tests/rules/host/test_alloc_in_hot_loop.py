from __future__ import annotations

from tests.support.trace_builder import GEMM, Program, decode_step
from tests.support.verdicts import Clinic

RULE = "alloc-in-hot-loop"


def test_fires_when_every_operator_allocates(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program, layers=4)
        for _ in range(40):
            program.silence(5)
            program.call("cudaMalloc", 60)
            program.launch(GEMM, 3)
            program.call("cudaFree", 60)
    verdicts = clinic.verdicts(program)
    assert verdicts.first == RULE
    assert verdicts.evidence(RULE, "allocation calls per step") == 80


def test_is_silent_when_allocations_come_once_at_the_start(clinic: Clinic) -> None:
    program = Program()
    for _ in range(40):
        program.call("cudaMalloc", 60)
    for _ in range(6):
        decode_step(program)
    assert RULE not in clinic.verdicts(program).found


def test_is_ruled_out_when_the_calls_cost_little(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program, kernel_us=80)
        program.call("cudaFree", 5)
    verdicts = clinic.verdicts(program)
    assert RULE not in verdicts.found
    assert "cost little" in verdicts.ruled_out[RULE]
