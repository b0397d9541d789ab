from __future__ import annotations

from tests.support.trace_builder import Program, decode_step
from tests.support.verdicts import Clinic

RULE = "offload-bandwidth-bound"
MIB = 2**20


def test_fires_when_the_same_weights_come_up_every_step(clinic: Clinic) -> None:
    program = Program()
    decode_step(program)
    for _ in range(6):
        for _ in range(4):
            program.copy("HtoD pinned", 200 * MIB, gigabytes_per_s=50)
        decode_step(program)
    verdicts = clinic.verdicts(program)
    assert verdicts.first == RULE
    assert verdicts.finding(RULE)["gain"]["speedup_expected"] > 3
    assert verdicts.evidence(RULE, "these copies") > 0.8


def test_is_silent_when_slow_copies_carry_little(clinic: Clinic) -> None:
    # at the link's own rate these copies would take a few percent of the step: they are slow, not many
    program = Program()
    for _ in range(6):
        program.copy("HtoD pageable", 4 * MIB, gigabytes_per_s=6)
        decode_step(program)
    verdicts = clinic.verdicts(program)
    assert RULE not in verdicts.found
    assert "pageable-copies" in verdicts.found


def test_is_ruled_out_when_copies_hide_behind_kernels(clinic: Clinic) -> None:
    program = Program()
    decode_step(program, kernel_us=150)
    for _ in range(6):
        for _ in range(2):
            program.copy("HtoD pinned", 100 * MIB, gigabytes_per_s=50, stream=13)
        decode_step(program, kernel_us=150)
    verdicts = clinic.verdicts(program)
    assert RULE not in verdicts.found
    assert "hidden behind kernels" in verdicts.ruled_out[RULE]


def test_names_weights_that_a_setting_keeps_on_the_host(clinic: Clinic) -> None:
    verdicts = clinic.told("vllm serve org/name --cpu-offload-gb 10\n")
    assert verdicts.first == RULE
    assert "at least 429 ms a step" in verdicts.finding(RULE)["summary"]
