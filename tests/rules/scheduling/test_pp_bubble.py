from __future__ import annotations

import pytest

from tests.support.trace_builder import GEMM, Program
from tests.support.verdicts import Clinic

RULE = "pp-bubble"
EXCHANGE = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
PIECE_US = 1_000.0


def pipeline(micro_batches: int, rounds: int = 8) -> tuple[Program, Program]:
    """Two stages; each micro-batch takes 1 ms on either, and the last one of a round opens the next round."""
    first, second = Program(rank=0, world_size=2), Program(rank=1, world_size=2, device=1)
    for _ in range(rounds):
        second.launch(EXCHANGE, PIECE_US)
        for piece in range(micro_batches):
            for program in (first, second):
                for _ in range(10):
                    program.launch(GEMM, PIECE_US / 10)
                if piece < micro_batches - 1:
                    program.launch(EXCHANGE, 5)
        first.launch(EXCHANGE, PIECE_US)
    return first, second


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_fires_when_stages_take_turns(clinic: Clinic, micro_batches: int) -> None:
    verdicts = clinic.verdicts(*pipeline(micro_batches))
    bubble = 1 / (micro_batches + 1)
    assert verdicts.first == RULE
    assert verdicts.evidence(RULE, "stages standing still") == pytest.approx(bubble, abs=0.05)
    # (p - 1) / (9p - 1) is one seventeenth; the stages then take 1 - bubble + bubble / 17 / bubble of the time
    assert verdicts.finding(RULE)["gain"]["speedup_expected"] == pytest.approx(1 / (1 - bubble + 1 / 17), rel=0.15)


def test_is_silent_when_the_pipeline_is_full(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(*pipeline(16)).found


def test_is_silent_on_an_exchange_that_all_devices_take_part_in_at_once(clinic: Clinic) -> None:
    programs = Program(rank=0, world_size=2), Program(rank=1, world_size=2, device=1)
    for program in programs:
        for _ in range(20):
            for _ in range(10):
                program.launch(GEMM, 100)
            program.launch(EXCHANGE, 600)
    assert RULE not in clinic.verdicts(*programs).found


def test_is_silent_on_one_stage_alone(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(pipeline(1)[0]).found
