"""Reconstructed from ROCm/ATOM PR#1210 in the words of vLLM's and SGLang's own logs."""

# ruff: noqa: E501 - the tools' own lines are long

from __future__ import annotations

from tests.rules.communication.test_straggler_rank import ALL_REDUCE
from tests.support.trace_builder import GEMM, Program
from tests.support.verdicts import Clinic

RULE = "moe-expert-imbalance"


def eplb_log(passes: int, mean: float, most: int) -> str:
    return "".join(
        f"INFO 11-29 14:43:{step % 60:02d} [eplb_state.py:540] EPLB step: {step} for model deepseek-ai/DeepSeek-V3: avg_tokens={mean:.2f}, "
        f"max_tokens={most}, balancedness={mean / most:.4f}, steps until the next rearrangement: {3000 - step}\n"
        for step in range(passes)
    )


def test_fires_on_ranks_that_get_most_of_the_tokens(clinic: Clinic) -> None:
    verdicts = clinic.told(eplb_log(300, 2048.0, 3150))
    assert RULE in verdicts.found
    assert "the mean is 65% of the maximum over 300 passes" in verdicts.finding(RULE)["summary"]


def test_few_passes_or_few_tokens_may_be_chance(clinic: Clinic) -> None:
    assert "may be chance" in clinic.told(eplb_log(40, 2048.0, 3150)).ruled_out[RULE]
    assert "may be chance" in clinic.told(eplb_log(300, 12.0, 24)).ruled_out[RULE]


def test_reads_counters_by_rank_and_the_lines_of_sglang(clinic: Clinic) -> None:
    counts = "step,rank,tokens\n" + "".join(
        f"{s},{r},{4000 if r == 3 else 2000}\n" for s in range(250) for r in range(4)
    )
    assert "rank 3 gets most" in clinic.told(counts).finding(RULE)["summary"]
    lines = "".join(
        f"[2026-11-29 14:43:01 TP0] [Expert Balancedness] forward_pass_id={number} current_pass_balancedness=0.612 "
        f"last_10_average_balancedness=0.610 gpu_physical_count_sum=81920\n"
        for number in range(220)
    )
    assert RULE in clinic.told(lines).found


def recorded(experts_us: tuple[float, float], others_us: tuple[float, float]) -> tuple[Program, Program]:
    """Two ranks that meet before and after 300 layers of experts."""
    programs = Program(rank=0, world_size=2), Program(rank=1, world_size=2, device=1)
    for _ in range(300):
        for program, experts, others in zip(programs, experts_us, others_us, strict=True):
            program.launch(GEMM, others)
            program.launch(ALL_REDUCE, max(others_us) - others + 12.0)
            program.launch("fused_moe_kernel", experts)
            program.launch(ALL_REDUCE, max(experts_us) - experts + 12.0)
    return programs


def test_recorded_ranks_show_whose_experts_take_longest(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(*recorded((40.0, 90.0), (30.0, 30.0)))
    assert verdicts.first == RULE
    assert "rank 1 spends 38% more than the mean of 2 ranks" in verdicts.finding(RULE)["summary"]


def test_even_experts_clear_it(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(*recorded((60.0, 62.0), (30.0, 30.0)))
    assert "2% longer than the mean" in verdicts.ruled_out[RULE]


def test_a_rank_that_is_slow_in_all_is_a_straggler(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(*recorded((60.0, 120.0), (60.0, 120.0)))
    assert verdicts.first == "straggler-rank"
    assert "slow in all" in verdicts.ruled_out[RULE]
