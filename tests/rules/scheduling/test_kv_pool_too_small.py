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


def test_a_few_lines_tell_it_with_less_weight(clinic: Clinic) -> None:
    verdicts = clinic.told(texts.lines(texts.vllm_status(5.0 * place, 3, 7, 99.2) for place in range(3)))
    assert verdicts.finding(RULE)["severity"] == "medium"
    assert "in all 3 lines" in verdicts.finding(RULE)["summary"]


def test_of_a_few_lines_each_must_show_it(clinic: Clinic) -> None:
    lines = [texts.vllm_status(0.0, 3, 7, 99.2), texts.vllm_status(5.0, 3, 7, 80.0)]
    assert RULE not in clinic.told(texts.lines(lines)).found
    assert RULE not in clinic.told(texts.lines(texts.vllm_status(0.0, 120, 2, 99.0))).found  # the next to be taken up


def scrape(usage: float, waiting: float, preemptions: float = 0) -> str:
    """One scrape of vLLM's metrics."""
    return (
        "# TYPE vllm:num_requests_running gauge\n"
        'vllm:num_requests_running{engine="0",model_name="org/name"} 22.0\n'
        f'vllm:num_requests_waiting{{engine="0",model_name="org/name"}} {waiting}\n'
        f'vllm:kv_cache_usage_perc{{engine="0",model_name="org/name"}} {usage}\n'
        f'vllm:num_preemptions_total{{engine="0",model_name="org/name"}} {preemptions}\n'
        'vllm:request_success_total{engine="0",finished_reason="stop",model_name="org/name"} 400.0\n'
    )


def test_one_scrape_of_a_full_cache_with_a_queue_is_told(clinic: Clinic) -> None:
    verdicts = clinic.told(scrape(0.991, 14.0))
    assert "at the one moment that is told" in verdicts.finding(RULE)["summary"]
    assert verdicts.finding(RULE)["severity"] == "medium"


def test_one_scrape_with_room_or_without_a_queue_says_nothing(clinic: Clinic) -> None:
    assert clinic.told(scrape(0.71, 14.0)).found == set()
    assert clinic.told(scrape(0.991, 0.0)).found == set()


def test_one_scrape_with_many_evictions_since_the_start_is_thrashing(clinic: Clinic) -> None:
    assert clinic.told(scrape(0.991, 14.0, preemptions=310.0)).first == "kv-preemption-thrash"
