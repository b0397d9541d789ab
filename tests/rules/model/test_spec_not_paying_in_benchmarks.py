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
