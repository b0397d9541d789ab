from __future__ import annotations

import pytest

from tests.support.trace_builder import Program, decode_step
from tests.support.verdicts import Clinic

RULE = "profiler-distorted"


def decoding(frames_per_step: int, kernel_us: float = 30.0) -> Program:
    """Steps that keep the device busy, with Python frames as the recorder of stacks writes them."""
    program = Program()
    for _ in range(8):
        for _ in range(frames_per_step):
            with program.annotation("model.py(12): forward", "python_function"):
                program.silence(1)
        decode_step(program, kernel_us=kernel_us)
    return program


def test_counts_python_frames(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(decoding(400))
    finding = verdicts.finding(RULE)
    assert finding["severity"] == "info"
    # 400 frames in a step of 66 kernels of 30 us, less what the device hides of the frames
    assert verdicts.evidence(RULE, "Python frames") == pytest.approx(400 / 2.4e-3, rel=0.25)


def test_counts_short_kernels_that_are_launched_one_by_one(clinic: Clinic) -> None:
    program = Program()
    for _ in range(20):
        decode_step(program)
    verdicts = clinic.verdicts(program)
    assert 20_000 < verdicts.evidence(RULE, "short kernels") < 1e6 / 16
    assert verdicts.first != RULE


def test_is_silent_on_a_trace_without_stacks_whose_kernels_are_long(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(decoding(0)).found


def test_does_not_blame_a_torch_trace_for_holding_graph_nodes(clinic: Clinic) -> None:
    program = Program()
    for _ in range(8):
        program.silence(20)
        program.copy("HtoD pinned", 64)
        program.graph([("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", 3.0)] * 300)
        program.copy("DtoH pinned", 64)
        program.wait()
    assert RULE not in clinic.verdicts(program).found
