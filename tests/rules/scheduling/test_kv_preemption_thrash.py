from __future__ import annotations

from tests.support import engine_texts as texts
from tests.support.verdicts import Clinic

RULE = "kv-preemption-thrash"


def serving(retracted_every: int) -> str:
    """Ten minutes of decode lines with a retraction every so many."""
    return texts.lines(
        line
        for place in range(120)
        for line in (
            texts.sglang_decode(5.0 * place, 66, 12, 0.99),
            *([texts.sglang_retracted(5.0 * place)] if place % retracted_every == 1 else []),
        )
    )


def test_names_retractions_that_never_end_and_leaves_the_pool_to_them(clinic: Clinic) -> None:
    verdicts = clinic.told(serving(retracted_every=2))
    assert verdicts.first == RULE
    assert verdicts.evidence(RULE, "thrown out a minute") > 5
    assert "kv-pool-too-small" not in verdicts.found
    assert "kv-pool-too-small" not in verdicts.ruled_out  # it is too small: nothing clears it


def test_one_retraction_in_some_minutes_is_too_few(clinic: Clinic) -> None:
    verdicts = clinic.told(serving(retracted_every=50))
    assert RULE not in verdicts.found
    assert "too few" in verdicts.ruled_out[RULE]


def test_counts_preemptions_against_finished_requests_where_metrics_do(clinic: Clinic) -> None:
    metrics = "vllm:num_preemptions_total{} 900\nvllm:request_success_total{} 1000\nvllm:num_requests_running{} 60\n"
    assert clinic.told(metrics).finding(RULE)["severity"] == "critical"


def test_one_of_few_running_requests_thrown_out_is_told_with_less_weight(clinic: Clinic) -> None:
    before = [texts.sglang_decode(0.5 * place, 5, 2, 1.0, rate=410.0) for place in range(3)]
    after = [texts.sglang_decode(2.0 + 2 * place, 4, 3, 0.8, rate=40.0) for place in range(2)]
    verdicts = clinic.told(texts.lines(before, texts.sglang_retracted(1.8), after))
    assert verdicts.first == RULE
    assert verdicts.finding(RULE)["severity"] == "medium"
    assert "1 request of 5 that run" in verdicts.finding(RULE)["summary"]


def test_one_of_many_running_requests_thrown_out_is_chance(clinic: Clinic) -> None:
    lines = [texts.sglang_decode(0.5 * place, 80, 0, 0.97) for place in range(6)]
    verdicts = clinic.told(texts.lines(lines, texts.sglang_retracted(3.1)))
    assert RULE not in verdicts.found
    assert "too few to matter" in verdicts.ruled_out[RULE]


def test_a_full_cache_with_a_queue_is_not_lost_between_two_rules(clinic: Clinic) -> None:
    lines = [texts.sglang_decode(0.5 * place, 80, 60, 0.99) for place in range(6)]
    assert clinic.told(texts.lines(lines, texts.sglang_retracted(3.1))).first == "kv-pool-too-small"
