from __future__ import annotations

from tests.support.trace_builder import Program, decode_step
from tests.support.verdicts import Clinic

RULE = "cudagraph-off"


def test_follows_dispatch_when_steps_hold_hundreds_of_launches(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program, layers=32)
    finding = clinic.verdicts(program).finding(RULE)
    assert finding["same_cause_as"] == "host-dispatch-bound"
    assert "257 kernel launches a step" in finding["summary"]


def test_is_silent_at_two_hundred_launches_a_step(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program, layers=24)
    verdicts = clinic.verdicts(program)
    assert verdicts.first == "host-dispatch-bound"
    assert RULE not in verdicts.found


def test_is_ruled_out_when_the_device_does_not_wait(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program, layers=32, kernel_us=60)
    verdicts = clinic.verdicts(program)
    assert RULE not in verdicts.found
    assert "do not hold the run up" in verdicts.ruled_out[RULE]
