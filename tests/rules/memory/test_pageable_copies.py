from __future__ import annotations

from tests.support.trace_builder import Program, decode_step
from tests.support.verdicts import Clinic

RULE = "pageable-copies"
MIB = 2**20


def test_fires_when_large_copies_go_through_pageable_memory(clinic: Clinic) -> None:
    program = Program()
    for step in range(6):
        program.copy("HtoD pageable", (16 + step) * MIB, gigabytes_per_s=6)
        decode_step(program)
    verdicts = clinic.verdicts(program)
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    assert verdicts.evidence(RULE, "rate of these copies") < 7
    assert finding["gain"]["speedup_expected"] > 1.3
    assert "pin_memory" in finding["fixes"][0]["setting"]


def test_says_to_keep_on_the_device_what_comes_up_again(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        program.copy("HtoD pageable", 16 * MIB, gigabytes_per_s=6)
        decode_step(program)
    assert "keep on the device" in clinic.verdicts(program).finding(RULE)["fixes"][0]["setting"]


def test_at_most_what_comes_up_again_is_not_copied_at_all(clinic: Clinic) -> None:
    """64 MiB take 11 ms from pageable memory, 1.3 ms over the link, and a step 1.1 ms."""
    again, fresh = Program(), Program()
    for step in range(6):
        for program, mebibytes in ((again, 64), (fresh, 64 + step)):
            program.copy("HtoD pageable", mebibytes * MIB, gigabytes_per_s=6)
            decode_step(program)
    resident, pinned = (clinic.verdicts(program).finding(RULE)["gain"] for program in (again, fresh))
    assert resident["speedup_bound"] >= (11.2 + 1.1) / 1.1
    assert resident["speedup_bound"] > pinned["speedup_bound"]
    assert resident["speedup_high"] < resident["speedup_bound"]


def test_parts_that_go_up_for_their_turn_and_down_again_are_told_to_stay(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        for mebibytes in (8, 2, 8):
            program.copy("HtoD pageable", mebibytes * MIB, gigabytes_per_s=9)
        decode_step(program)
        for mebibytes in (8, 2, 8):
            program.copy("DtoH pageable", mebibytes * MIB, gigabytes_per_s=3)
    finding = clinic.verdicts(program).finding(RULE)
    assert "keep on the device" in finding["fixes"][0]["setting"]
    # 18 MiB up and down take 8.4 ms, a step 1.1 ms
    assert finding["gain"]["speedup_bound"] >= (8.4 + 1.1) / 1.1
    assert finding["gain"]["speedup_high"] < finding["gain"]["speedup_bound"]


def test_results_of_their_own_size_are_not_told_to_stay(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        program.copy("HtoD pageable", 4 * MIB, gigabytes_per_s=9)
        decode_step(program)
        program.copy("DtoH pageable", 32 * MIB, gigabytes_per_s=3)
    assert "reduce on the device" in clinic.verdicts(program).finding(RULE)["fixes"][0]["setting"]


def test_what_comes_down_is_told_to_stay_or_to_come_into_a_pinned_buffer(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program)
        program.copy("DtoH pageable", 32 * MIB, gigabytes_per_s=2)
    finding = clinic.verdicts(program).finding(RULE)
    assert "GiB to the host" in finding["summary"]
    assert "buffer.copy_(tensor, non_blocking=True)" in finding["fixes"][0]["setting"]
    assert ".to(device" not in finding["fixes"][0]["setting"]
    # all that is left of a step is its own work, 1.1 ms of 17
    assert finding["gain"]["speedup_bound"] > 12


def test_is_silent_on_pinned_copies_of_the_same_size(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        program.copy("HtoD pinned", 16 * MIB, gigabytes_per_s=50, stream=13)
        decode_step(program, kernel_us=20)
    assert RULE not in clinic.verdicts(program).found


def test_is_silent_on_pageable_copies_of_a_few_bytes(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        program.copy("HtoD pageable", 65_535, gigabytes_per_s=6)
        decode_step(program)
    assert RULE not in clinic.verdicts(program).found


def test_does_not_count_the_load_phase(clinic: Clinic) -> None:
    program = Program()
    for _ in range(30):
        program.copy("HtoD pageable", 64 * MIB, gigabytes_per_s=6)
    for _ in range(6):
        decode_step(program)
    verdicts = clinic.verdicts(program)
    assert RULE not in verdicts.found
    assert "load phase cut" in verdicts.document["window"]["chosen_by"]
