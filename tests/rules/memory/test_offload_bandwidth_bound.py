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


def offloading_step(program: Program, *, mebibytes: int, down_stream: int = 7, kernel_us: float = 3.0) -> None:
    """A decode step whose cache goes down as it grows and comes back on a stream of its own."""
    for _ in range(4):
        program.copy("HtoD pinned", mebibytes * MIB, gigabytes_per_s=50, stream=13)
        program.copy("DtoH pinned", mebibytes * MIB, gigabytes_per_s=50, stream=down_stream)
    decode_step(program, kernel_us=kernel_us)


def test_fires_when_a_cache_goes_down_and_comes_back_every_step(clinic: Clinic) -> None:
    program = Program()
    decode_step(program)
    for step in range(6):
        offloading_step(program, mebibytes=100 + step)
    verdicts = clinic.verdicts(program)
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    assert finding["title"] == "A cache goes to the host and comes back every step"
    assert finding["fixes"][0]["setting"].startswith("keep the cache on the device")
    assert verdicts.evidence(RULE, "bytes down") == verdicts.evidence(RULE, "bytes up")
    # the copies down, 8.4 ms a step, hold up a step of 1.1 ms
    assert 6 < finding["gain"]["speedup_expected"] < 14


def test_is_ruled_out_when_a_cache_goes_down_beside_the_computation(clinic: Clinic) -> None:
    program = Program()
    decode_step(program, kernel_us=200)
    for _ in range(6):
        offloading_step(program, mebibytes=50, down_stream=15, kernel_us=200)
    verdicts = clinic.verdicts(program)
    assert RULE not in verdicts.found
    assert "came back up on device 0 over the link, but hidden behind kernels" in verdicts.ruled_out[RULE]


def test_names_results_that_go_down_through_pinned_memory(clinic: Clinic) -> None:
    program = Program()
    decode_step(program)
    for _ in range(6):
        program.copy("DtoH pinned", 200 * MIB, gigabytes_per_s=50)
        decode_step(program)
    verdicts = clinic.verdicts(program)
    assert verdicts.first == RULE
    assert verdicts.finding(RULE)["title"] == "Results go down over the link every step"
    assert "went down from device 0" in verdicts.finding(RULE)["summary"]


def test_leaves_results_that_go_down_through_pageable_memory_to_their_own_rule(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program)
        program.copy("DtoH pageable", 200 * MIB, gigabytes_per_s=2)
    verdicts = clinic.verdicts(program)
    assert "pageable-copies" in verdicts.found
    assert RULE not in verdicts.found


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
