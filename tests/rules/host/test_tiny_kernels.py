from __future__ import annotations

from tests.support.trace_builder import Program, decode_step
from tests.support.verdicts import Clinic

RULE = "tiny-kernels"


def test_names_the_families_to_fuse_under_a_dispatch_bound_run(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program, layers=32)
    verdicts = clinic.verdicts(program)
    finding = verdicts.finding(RULE)
    assert finding["same_cause_as"] == "host-dispatch-bound"
    assert "elementwise" in finding["summary"]
    assert verdicts.evidence(RULE, "kernels shorter than the launch interval") > 0.95


def test_is_silent_when_few_kernels_are_short(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program, layers=8)
    assert RULE not in clinic.verdicts(program).found


def test_never_owns_time_when_the_queue_is_full(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program, layers=32, kernel_us=60)
    assert RULE not in clinic.verdicts(program).found
