from __future__ import annotations

import json

import pytest

from rules.scheduling.micro_batch_too_small import Pieces, merge_factor
from tests.support.trace_builder import ADD, FLASH, GEMM, HEAD_GEMM, Program, decode_step, forward_pass
from tests.support.verdicts import Clinic

RULE = "micro-batch-too-small"


def cut_step(program: Program, pieces: int, kernel_us: float = 3.0) -> None:
    """One step as several forward passes without a word between them."""
    program.silence(12)
    program.copy("HtoD pinned", 64)
    for _ in range(pieces):
        forward_pass(program, kernel_us=kernel_us)
    program.copy("DtoH pinned", 64)
    program.wait()


@pytest.mark.parametrize("pieces", [2, 4, 8])
def test_counts_the_pieces_and_says_how_many_to_merge(clinic: Clinic, pieces: int) -> None:
    program = Program()
    for _ in range(5):
        cut_step(program, pieces)
    verdicts = clinic.verdicts(program)
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    assert verdicts.evidence(RULE, "pieces per step") == pieces
    assert verdicts.evidence(RULE, "suggested merge") == pieces
    assert 0.6 * pieces < finding["gain"]["speedup_expected"] <= 1.05 * pieces
    assert f"{pieces} x today's value" in finding["fixes"][0]["setting"]


@pytest.mark.parametrize(("grows_ns", "merge"), [(0, 8), (500_000, 8), (700_000, 4), (900_000, 2)])
def test_suggests_fewer_the_more_of_a_piece_grows_with_rows(grows_ns: int, merge: int) -> None:
    # pieces of 1 ms: nine times the fixed part over the growing part, between two and all of them
    row = Pieces(8, 5, 5, 8_000_000.0, 500_000.0, grows_ns, 132.0, 132, 0, 1)
    assert merge_factor(row) == merge


def test_is_silent_on_whole_steps_with_many_like_layers(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program, layers=16)
    assert RULE not in clinic.verdicts(program).found


def test_is_silent_on_long_layers_without_a_head(clinic: Clinic) -> None:
    # a hook that looks at each layer's output makes a layer as long as a small model's pass
    program = Program()
    for _ in range(6):
        program.silence(12)
        program.copy("HtoD pinned", 64)
        for _ in range(16):
            for kernel in (ADD, GEMM, FLASH, GEMM, *(ADD,) * 20, HEAD_GEMM):
                program.silence(12)
                program.launch(kernel, 3)
        program.copy("DtoH pinned", 64)
        program.wait()
    assert RULE not in clinic.verdicts(program).found


def test_is_silent_when_only_two_steps_are_cut(clinic: Clinic) -> None:
    program = Program()
    for step in range(8):
        if step in {2, 5}:
            cut_step(program, 4)
        else:
            decode_step(program)
    assert RULE not in clinic.verdicts(program).found


def counted(pieces_per_step: float) -> str:
    """What `python -m engine bench` prints, cut to what matters."""
    derived = {"pieces_per_step": pieces_per_step, "decode_tokens_per_step": 7.7, "acceptance": None}
    return json.dumps({"schema": "engine.bench/1", "output_tokens_per_s": 900.0, "derived": derived})


def test_the_engine_may_have_counted_the_pieces(clinic: Clinic) -> None:
    verdicts = clinic.told(counted(8.0))
    finding = verdicts.finding(RULE)
    assert finding["severity"] == "medium"
    assert finding["gain"]["speedup_bound"] == 8
    assert any("8 x today's value" in fix["setting"] for fix in finding["fixes"])


def test_what_was_counted_is_a_witness_where_a_recording_shows_the_win(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        cut_step(program, 8)
    trace = program.write(clinic.folder / "trace.json")
    verdicts = clinic.told(trace, counted(8.0))
    assert verdicts.first == RULE
    assert verdicts.finding(RULE)["gain"]["speedup_expected"] > 4
    assert verdicts.evidence(RULE, "forward passes per step") == 8


def test_is_silent_where_the_engine_counted_a_pass_a_step(clinic: Clinic) -> None:
    assert RULE not in clinic.told(counted(1.2)).found


@pytest.mark.parametrize(("blocks", "least", "most"), [(16, 3.4, 4.3), (264, 1.5, 2.7)])
def test_attention_of_few_blocks_takes_no_longer_for_more_sequences(
    clinic: Clinic, blocks: int, least: float, most: float
) -> None:
    program = Program()
    for _ in range(5):
        program.silence(12)
        program.copy("HtoD pinned", 64)
        for _ in range(4):
            for _ in range(12):
                program.launch(GEMM, 20)
                program.launch(FLASH, 15, grid=(blocks, 1, 1))
            program.launch(HEAD_GEMM, 20)
        program.copy("DtoH pinned", 64)
        program.wait()
    assert least < clinic.verdicts(program).finding(RULE)["gain"]["speedup_expected"] < most
