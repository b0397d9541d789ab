from __future__ import annotations

from tests.support import engine_texts as texts
from tests.support.verdicts import Clinic

RULE = "cudagraph-ceiling"


def test_counts_every_token_that_is_verified_against_the_largest_captured_batch(clinic: Clinic) -> None:
    settings = {"method": "mtp", "num_speculative_tokens": 5}
    arguments = texts.vllm_arguments(speculative_config=settings, max_cudagraph_capture_size=32)
    verdicts = clinic.told(texts.lines(arguments, [texts.vllm_status(10.0 * place, 8) for place in range(20)]))
    assert verdicts.first == RULE
    assert "48 tokens" in verdicts.finding(RULE)["summary"]


def test_is_silent_where_the_captured_batch_covers_them(clinic: Clinic) -> None:
    settings = {"method": "mtp", "num_speculative_tokens": 5}
    arguments = texts.vllm_arguments(speculative_config=settings, max_cudagraph_capture_size=64)
    verdicts = clinic.told(texts.lines(arguments, [texts.vllm_status(10.0 * place, 8) for place in range(20)]))
    assert RULE not in verdicts.found
