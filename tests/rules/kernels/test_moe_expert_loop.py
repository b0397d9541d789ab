from __future__ import annotations

from tests.support.trace_builder import ADD, GEMM, HEAD_GEMM, LAYER, NONZERO, Program
from tests.support.verdicts import Clinic

RULE = "moe-expert-loop"
RMS_NORM = "_rms_norm_kernel"


def expert_layer(program: Program, experts: int) -> None:
    """Which tokens belong to an expert is asked of the device, one expert after another."""
    for _ in range(experts):
        program.silence(10)
        program.launch(NONZERO, 3)
        program.wait()
        for kernel in (ADD, GEMM, ADD, GEMM, ADD):
            program.silence(10)
            program.launch(kernel, 4)


def step(program: Program, layers: int, experts: int) -> None:
    program.silence(12)
    program.copy("HtoD pinned", 64)
    for _ in range(layers):
        for kernel in (*LAYER, *LAYER, *LAYER):
            program.silence(12)
            program.launch(kernel, 3)
        expert_layer(program, experts)
    program.launch(HEAD_GEMM, 6)
    program.copy("DtoH pinned", 64)
    program.wait()


def test_fires_and_counts_the_experts_in_a_row(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        step(program, layers=4, experts=16)
    verdicts = clinic.verdicts(program)
    assert verdicts.first == RULE
    assert 13 <= verdicts.evidence(RULE, "experts in a row") <= 16
    assert verdicts.finding(RULE)["gain"]["speedup_expected"] > 2


def test_is_silent_on_one_index_list_a_layer(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        step(program, layers=4, experts=1)
    assert RULE not in clinic.verdicts(program).found


def test_tells_layers_by_what_stands_between_them_however_few_launches_that_is(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        program.silence(12)
        program.copy("HtoD pinned", 64)
        for _ in range(4):
            for kernel in (RMS_NORM, GEMM, GEMM):
                program.silence(10)
                program.launch(kernel, 3)
            expert_layer(program, 16)
        program.launch(HEAD_GEMM, 6)
        program.copy("DtoH pinned", 64)
        program.wait()
    verdicts = clinic.verdicts(program)
    assert verdicts.first == RULE
    assert 14 <= verdicts.evidence(RULE, "experts in a row") <= 16
    # the layers themselves, the first expert of each and the products of all stay
    assert 3 < verdicts.finding(RULE)["gain"]["speedup_expected"] < 6
