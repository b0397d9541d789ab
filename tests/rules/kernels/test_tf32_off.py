from __future__ import annotations

from tests.rules.kernels.test_wrong_dtype_fp32 import TF32, step
from tests.support.trace_builder import SGEMM, Program
from tests.support.verdicts import Clinic

RULE = "tf32-off"


def test_follows_fp32_and_shares_its_gain(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        step(program, SGEMM, 900)
    finding = clinic.verdicts(program).finding(RULE)
    assert finding["same_cause_as"] == "wrong-dtype-fp32"
    assert finding["gain"] is None


def test_is_silent_on_devices_without_tf32(clinic: Clinic) -> None:
    program = Program(compute_capability=(7, 5), sm_count=40)
    for _ in range(5):
        step(program, SGEMM, 900)
    assert RULE not in clinic.verdicts(program).found


def test_is_silent_when_tf32_is_on(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        step(program, TF32, 300)
    assert RULE not in clinic.verdicts(program).found
