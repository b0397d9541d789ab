"""What the engine counted of its drafts is judged as what a log says."""

from __future__ import annotations

import json

import pytest

from tests.support.verdicts import Clinic

RULE = "spec-not-paying"


def counted(drafted: int, accepted: int, verifications: int, step_tokens: float) -> str:
    """What `python -m engine bench` prints, cut to what matters."""
    counters = {"drafted": drafted, "accepted": accepted, "verifications": verifications}
    derived = {"decode_tokens_per_step": step_tokens}
    document = {"schema": "engine.bench/1", "output_tokens_per_s": 900.0, "counters": counters, "derived": derived}
    return json.dumps(document)


def test_fires_where_nearly_all_drafts_are_thrown_away(clinic: Clinic) -> None:
    verdicts = clinic.told(counted(drafted=9_600, accepted=150, verifications=600, step_tokens=260.0))
    assert verdicts.evidence(RULE, "acceptance length") == pytest.approx(1.25)
    assert verdicts.evidence(RULE, "drafted a step") == pytest.approx(16)
    settings = [fix["setting"] for fix in verdicts.finding(RULE)["fixes"] if fix["target"] == "engine"]
    assert settings == ["drop --speculate", "--num-draft-tokens 2"]


def test_clears_drafts_that_are_accepted(clinic: Clinic) -> None:
    verdicts = clinic.told(counted(drafted=2_400, accepted=1_800, verifications=800, step_tokens=4.0))
    assert RULE in verdicts.ruled_out


def test_is_silent_without_drafts(clinic: Clinic) -> None:
    verdicts = clinic.told(counted(drafted=0, accepted=0, verifications=0, step_tokens=16.0))
    assert RULE not in verdicts.found | set(verdicts.ruled_out)


def test_steps_that_drafts_keep_from_cuda_graphs_are_in_the_bound(clinic: Clinic) -> None:
    def bound(graph_share: float) -> float:
        lines = [
            f"2026-11-29T21:29:{second:02}.000Z INFO engine.status event=status running=16 waiting=0 kv_usage=0.020"
            f" prefix_hit_rate=0.000 prompt_tokens_per_s=0.0 output_tokens_per_s=1100.0 preemptions=0"
            f" graph_share={graph_share} drafted=3000 accepted=3"
            for second in range(10, 50)
        ]
        return float(clinic.told("\n".join(lines)).finding(RULE)["gain"]["speedup_bound"])

    # a step that is launched kernel by kernel takes up to ten times as long as a replayed one
    assert bound(0.0) == pytest.approx(10 * bound(1.0))
