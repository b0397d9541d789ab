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


def one_thread(stages: int, rounds: int = 8) -> Program:
    """One process launches for all stages ahead of time, and waits once a round; a receive ends with its send."""
    program = Program()
    free_us = dict.fromkeys(range(stages), 0.0)
    for _ in range(rounds):
        for stage in range(stages):
            program.device, stream = stage, 7 + stage
            start_us = max(program.now_us + 9, free_us[stage])
            if stage:
                received_us = max(free_us[stage - 1] - start_us, 0.0) + 10
                program.launch(EXCHANGE, received_us, stream=stream)
                start_us += received_us
            for _ in range(10):
                program.launch(GEMM, PIECE_US / 10, stream=stream)
            if stage < stages - 1:
                program.launch(EXCHANGE, 10, stream=stream)
            free_us[stage] = start_us + PIECE_US + 10
        program.wait()
        program.silence(20)
    return program


@pytest.mark.parametrize("stages", [2, 4])
def test_fires_where_one_thread_launches_for_all_stages(clinic: Clinic, stages: int) -> None:
    verdicts = clinic.verdicts(one_thread(stages))
    assert verdicts.first == RULE
    # p stages, one at a time: p times the work, and the bubble of eight micro-batches a stage is left
    expected = stages * (1 - (stages - 1) / (9 * stages - 1))
    assert verdicts.finding(RULE)["gain"]["speedup_expected"] == pytest.approx(expected, rel=0.15)
    assert not {"step-gap-scheduler", "prefill-blocks-decode", "straggler-rank"} & verdicts.found


LAYOUTS = "tp,pp,p90_latency_s\n4,1,6.4\n2,2,{}\n"


def test_fires_on_a_table_in_which_fewer_stages_are_faster(clinic: Clinic) -> None:
    verdicts = clinic.told(LAYOUTS.format(10.2))
    assert verdicts.first == RULE
    assert "pp 2 x tp 2" in verdicts.finding(RULE)["title"]
    assert verdicts.evidence(RULE, "fewer stages against more") == pytest.approx(10.2 / 6.4, abs=0.01)


def test_clears_stages_that_are_as_quick(clinic: Clinic) -> None:
    assert "at most 3% slower" in clinic.told(LAYOUTS.format(6.6)).ruled_out[RULE]
