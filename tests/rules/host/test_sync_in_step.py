from __future__ import annotations

from tests.support.trace_builder import GEMM, HEAD_GEMM, LAYER, Program, decode_step
from tests.support.verdicts import Clinic

RULE = "sync-in-step"


def waits_per_sequence(program: Program, sequences: int) -> None:
    """A graph-replayed step whose stop test reads one value a sequence."""
    program.silence(10)
    program.copy("HtoD pinned", 64)
    program.graph([(GEMM, 4.0)] * 60 + [(HEAD_GEMM, 10.0)])
    for _ in range(sequences):
        program.silence(8)
        program.copy("DtoH pageable", 8)
        program.wait()


def test_fires_when_values_are_read_one_by_one(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        waits_per_sequence(program, 32)
    verdicts = clinic.verdicts(program)
    assert verdicts.first == RULE
    assert 63 < verdicts.evidence(RULE, "waits per step") <= 64  # the last wait ends behind the last device work
    assert verdicts.finding(RULE)["gain"]["speedup_expected"] > 1.5


def test_is_silent_at_four_waits_a_step(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        waits_per_sequence(program, 2)
    verdicts = clinic.verdicts(program)
    assert RULE not in verdicts.found | set(verdicts.ruled_out)


def test_is_ruled_out_when_waits_stand_where_the_host_waits_anyway(clinic: Clinic) -> None:
    # dispatch-bound: the device is always ahead, so that a wait after every layer returns at once
    program = Program()
    for _ in range(6):
        program.silence(12)
        program.copy("HtoD pinned", 64)
        for _ in range(12):
            for _ in range(40):
                program.silence(25)
                program.launch(GEMM, 2)
            program.wait("cudaDeviceSynchronize", own_us=1.0)
        program.launch(HEAD_GEMM, 4)
        program.wait()
    verdicts = clinic.verdicts(program)
    assert verdicts.first == "host-dispatch-bound"
    assert "host waits anyway" in verdicts.ruled_out[RULE]


def test_is_silent_on_the_one_wait_that_reads_the_token(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program, kernel_us=60)
    assert RULE not in clinic.verdicts(program).found


def test_fires_on_a_wait_in_each_layer_of_a_single_prompt(clinic: Clinic) -> None:
    program = Program()
    for _ in range(80):
        program.copy("HtoD pageable", 4096, host_us=8)
        program.wait()
        program.silence(10)
        for kernel_us in (60, 15, 60, 30):
            program.launch(GEMM, kernel_us)
    verdicts = clinic.verdicts(program)
    assert verdicts.first == RULE
    assert "80 waits" in verdicts.finding(RULE)["summary"]
    # 13 of 179 us a layer: the wait's own cost, the silence and two launches
    assert 1.05 < verdicts.finding(RULE)["gain"]["speedup_expected"] < 1.12


def encoder_layers(program: Program, count: int, *, size_bytes: int, kernel_us: float = 40.0) -> None:
    """Layers of an encoder, no mark among them, behind each of which the host asks for something."""
    for _ in range(count):
        for kernel in (*LAYER, GEMM, GEMM):
            program.silence(25)
            program.launch(kernel, kernel_us)
        program.copy("DtoH pageable", size_bytes)
        program.wait()


def test_fires_on_a_value_that_is_read_in_each_layer_where_nothing_marks_a_step(clinic: Clinic) -> None:
    program = Program()
    encoder_layers(program, 240, size_bytes=1)
    verdicts = clinic.verdicts(program)
    finding = verdicts.finding(RULE)
    assert "maybe layers" in verdicts.document["window"]["chosen_by"]
    assert "waits for the device, one to 11 operations" in finding["summary"]
    # 400 us of work, and 29 us until the first kernel of the next layer is launched
    assert 1.04 < finding["gain"]["speedup_expected"] < 1.15


def test_is_silent_on_the_one_wait_for_the_results_of_a_small_encoder(clinic: Clinic) -> None:
    program = Program()
    encoder_layers(program, 240, size_bytes=4096)
    assert RULE not in clinic.verdicts(program).found
