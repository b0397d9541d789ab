from __future__ import annotations

import pytest

from tests.rules.communication.test_straggler_rank import ALL_REDUCE
from tests.support.trace_builder import GEMM, HEAD_GEMM, Program
from tests.support.verdicts import Clinic

RULE = "comm-sync-points-many"


def decoding(collectives: int, transfer_us: float) -> tuple[Program, Program]:
    """Two ranks, eager decode steps whose kernels keep the devices busy; each product is followed by a meeting."""
    programs = Program(rank=0, world_size=2), Program(rank=1, world_size=2, device=1)
    for program in programs:
        for _ in range(5):
            program.silence(8)
            program.copy("HtoD pinned", 64)
            for _ in range(collectives):
                program.launch(GEMM, 14)
                program.launch(ALL_REDUCE, transfer_us)
            program.launch(HEAD_GEMM, 14)
            program.copy("DtoH pinned", 64)
            program.wait()
    return programs


def test_fires_on_a_meeting_after_every_product(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(*decoding(150, 16.0))
    assert verdicts.evidence(RULE, "collectives per step") == 150
    assert verdicts.evidence(RULE, "median transfer") == pytest.approx(16, rel=0.1)
    # 30 us a pair fall to 20, less what the launches of eight hold back
    assert verdicts.finding(RULE)["gain"]["speedup_expected"] == pytest.approx(1.4, rel=0.15)


def test_says_that_one_rank_cannot_tell_waiting_from_transfer(clinic: Clinic) -> None:
    finding = clinic.verdicts(decoding(150, 16.0)[0]).finding(RULE)
    assert "cannot tell waiting from transfer" in finding["summary"]
    assert finding["confidence"] <= 0.5


def test_is_silent_on_few_collectives(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(*decoding(64, 16.0)).found


def test_is_silent_on_large_ones(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(*decoding(150, 60.0)).found


def test_is_cleared_when_each_is_as_short_as_it_can_be(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(*decoding(150, 5.0))
    assert RULE not in verdicts.found
    assert RULE in verdicts.ruled_out


def test_layers_of_the_model_tell_how_many_are_too_many(clinic: Clinic) -> None:
    folder = clinic.folder / "ranks"
    folder.mkdir()
    for place, program in enumerate(decoding(80, 16.0)):
        program.write(folder / f"rank{place}.json")
    shape = (
        '{{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": {}, "hidden_size": 2048}}'
    )
    verdicts = clinic.told(folder, shape.format(24))
    assert "80 collectives a step (3.3 a layer)" in verdicts.finding(RULE)["summary"]
    assert RULE not in clinic.told(folder, shape.format(40)).found
    assert RULE not in clinic.told(folder).found
