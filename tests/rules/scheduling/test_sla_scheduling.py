from __future__ import annotations

import json

from tests.support import engine_texts as texts
from tests.support.verdicts import Clinic

RULE = "sla-scheduling"
LATE = json.dumps(
    {"request_throughput": 10.0, "request_goodput": 8.0, "output_throughput": 900.0, "mean_ttft_ms": 900.0}
)


def test_names_late_requests_beside_free_capacity(clinic: Clinic) -> None:
    verdicts = clinic.told(LATE, texts.lines(texts.vllm_status(10.0 * place, 30, 2, 55.0) for place in range(20)))
    assert verdicts.finding(RULE)["severity"] == "medium"
    assert round(verdicts.evidence(RULE, "requests over their target"), 2) == 0.2


def test_rules_itself_out_where_there_is_no_capacity(clinic: Clinic) -> None:
    verdicts = clinic.told(LATE, texts.lines(texts.vllm_status(10.0 * place, 30, 40, 99.0) for place in range(20)))
    assert RULE not in verdicts.found
    assert "capacity" in verdicts.ruled_out[RULE]
    assert verdicts.first == "kv-pool-too-small"
