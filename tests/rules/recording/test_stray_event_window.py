from __future__ import annotations

from tests.support.trace_builder import Program, decode_step
from tests.support.verdicts import Clinic

RULE = "stray-event-window"


def test_cuts_a_copy_long_before_the_work(clinic: Clinic) -> None:
    program = Program()
    program.copy("HtoD pinned", 64)
    program.silence(500_000)
    for _ in range(6):
        decode_step(program, kernel_us=60)
    verdicts = clinic.verdicts(program)
    assert verdicts.finding(RULE)["severity"] == "info"
    assert verdicts.document["window"]["seconds"] < 0.05
    assert verdicts.document["vitals"]["gpu_busy"] > 0.9


def test_cuts_a_copy_long_after_the_work(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program, kernel_us=60)
    program.silence(500_000)
    program.copy("DtoH pinned", 64)
    assert clinic.verdicts(program).document["window"]["seconds"] < 0.05


def test_leaves_a_pause_with_work_on_both_sides(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program)
    program.silence(500_000)
    for _ in range(6):
        decode_step(program)
    verdicts = clinic.verdicts(program)
    assert RULE not in verdicts.found
    assert verdicts.document["window"]["seconds"] > 0.5
