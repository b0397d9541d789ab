from __future__ import annotations

from tests.support import engine_texts as texts
from tests.support.verdicts import Clinic

RULE = "kv-pool-too-small"


def test_names_a_full_cache_with_a_queue_and_bounds_what_more_room_would_give(clinic: Clinic) -> None:
    lines = [texts.vllm_status(10.0 * place, 16, 24, 97.5) for place in range(20)]
    verdicts = clinic.told(texts.lines("INFO [kv_cache_utils.py:1] GPU KV cache size: 20,992 tokens", lines))
    assert verdicts.first == RULE
    assert verdicts.finding(RULE)["gain"]["speedup_bound"] == 2.5
    assert verdicts.evidence(RULE, "KV cache") == 20_992


def test_rules_out_a_full_cache_without_a_queue(clinic: Clinic) -> None:
    verdicts = clinic.told(texts.lines(texts.vllm_status(10.0 * place, 40, 0, 98.0) for place in range(20)))
    assert RULE not in verdicts.found
    assert "hardly a request waits" in verdicts.ruled_out[RULE]
