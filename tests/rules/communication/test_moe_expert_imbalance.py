"""Reconstructed from ROCm/ATOM PR#1210 in the words of vLLM's and SGLang's own logs."""

# ruff: noqa: E501 - the tools' own lines are long

from __future__ import annotations

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
