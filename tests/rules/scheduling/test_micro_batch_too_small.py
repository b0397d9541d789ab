from __future__ import annotations

import pytest

from tests.support.trace_builder import Program, decode_step, forward_pass
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


def test_suggests_fewer_where_the_growing_part_soon_outweighs_the_fixed_one(clinic: Clinic) -> None:
    # attention and element-wise kernels of 40 us grow with rows: the launches of a piece are hidden once two are merged
    program = Program()
    for _ in range(5):
        cut_step(program, 8, kernel_us=20.0)
    verdicts = clinic.verdicts(program)
    if RULE in verdicts.found:
        assert verdicts.evidence(RULE, "suggested merge") < 8


def test_is_silent_on_whole_steps_with_many_like_layers(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program, layers=16)
    assert RULE not in clinic.verdicts(program).found


def test_is_silent_when_only_two_steps_are_cut(clinic: Clinic) -> None:
    program = Program()
    for step in range(8):
        if step in {2, 5}:
            cut_step(program, 4)
        else:
            decode_step(program)
    assert RULE not in clinic.verdicts(program).found
