from __future__ import annotations

from tests.support.verdicts import Clinic

RULE = "startup-free-too-small"


def refused(free: str, share: str, wanted: str) -> str:
    """What vLLM says of a start on a card of 23.56 GiB."""
    return (
        f"(EngineCore pid=253) ValueError: Free memory on device cuda:0 ({free}/23.56 GiB) on startup is less than"
        f" desired GPU memory utilization ({share}, {wanted} GiB). Decrease GPU memory utilization or reduce GPU"
        " memory used by other processes.\n"
    )


def test_fires_with_the_share_that_is_left(clinic: Clinic) -> None:
    verdicts = clinic.told(refused("12.18", "0.92", "21.67"))
    assert verdicts.first == RULE
    assert "others hold 11.4 GiB" in verdicts.finding(RULE)["summary"]
    assert any("--gpu-memory-utilization 0.50" in fix["setting"] for fix in verdicts.finding(RULE)["fixes"])


def test_blames_the_share_where_nobody_else_is_there(clinic: Clinic) -> None:
    assert "the share is set too high" in clinic.told(refused("23.20", "0.99", "23.32")).finding(RULE)["summary"]


def test_fires_on_ranks_that_see_different_memory(clinic: Clinic) -> None:
    text = "RuntimeError: The memory capacity is unbalanced. min_per_gpu_memory=16.28, local_gpu_memory=46.81\n"
    assert clinic.told(text).first == RULE
