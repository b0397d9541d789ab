from __future__ import annotations

import pytest

from tests.support.trace_builder import GEMM, Program
from tests.support.verdicts import Clinic

RULE = "straggler-rank"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def ranks(compute_us: list[tuple[float, float]], transfer_us: float = 10.0) -> tuple[Program, Program]:
    """Two ranks whose collectives end together, whatever each computes before them."""
    programs = Program(rank=0, world_size=2), Program(rank=1, world_size=2, device=1)
    for pair in compute_us:
        for program, own in zip(programs, pair, strict=True):
            program.launch(GEMM, own)
            program.launch(ALL_REDUCE, max(pair) - own + transfer_us)
    return programs


def test_names_the_rank_whose_kernels_take_longer(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(*ranks([(30.0, 200.0)] * 40))
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    assert "rank 1" in finding["title"]
    # 210 us a layer, 40 without the extra work
    assert finding["gain"]["speedup_expected"] == pytest.approx(210 / 40, rel=0.1)


def test_does_not_call_waiting_slow_communication(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(*ranks([(30.0, 200.0)] * 40))
    assert "comm-exposed" not in verdicts.found
    assert "waiting for the last rank" in verdicts.ruled_out["comm-exposed"]


def test_is_cleared_when_ranks_take_turns(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(*ranks([(30.0, 200.0), (200.0, 30.0)] * 20))
    assert RULE not in verdicts.found
    assert "take turns" in verdicts.ruled_out[RULE]


def test_needs_all_ranks(clinic: Clinic) -> None:
    assert RULE in clinic.verdicts(ranks([(30.0, 200.0)] * 40)[0]).not_run
