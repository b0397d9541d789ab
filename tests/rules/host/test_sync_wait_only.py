from __future__ import annotations

from tests.support.trace_builder import Program, decode_step
from tests.support.verdicts import Clinic

RULE = "sync-wait-only"


def test_clears_long_waits_of_a_busy_device(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program, kernel_us=100, silence_us=4)
    verdicts = clinic.verdicts(program)
    assert RULE not in verdicts.found
    assert "the device is busy for" in verdicts.ruled_out[RULE]


def test_says_nothing_when_the_device_idles(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program)
    verdicts = clinic.verdicts(program)
    assert RULE not in verdicts.found | set(verdicts.ruled_out)
