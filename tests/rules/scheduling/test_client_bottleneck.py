from __future__ import annotations

import json

from tests.support import engine_texts as texts
from tests.support.verdicts import Clinic

RULE = "client-bottleneck"
OFFERED = json.dumps(
    {"endpoint_type": "openai", "max_concurrency": 64, "output_throughput": 900.0, "median_ttft_ms": 40.0}
)
IDLE = "index, name, utilization.gpu [%], memory.used [MiB]\n0, NVIDIA H100 80GB HBM3, 41 %, 70000 MiB\n"


def test_names_a_client_that_offers_less_than_it_was_told_to(clinic: Clinic) -> None:
    log = texts.lines(texts.vllm_status(10.0 * place, 9) for place in range(20))
    verdicts = clinic.told(log, OFFERED, IDLE)
    assert verdicts.first == RULE
    assert "64 requests at a time were offered, 9 arrived" in verdicts.finding(RULE)["summary"]


def test_a_queue_at_the_server_clears_the_client(clinic: Clinic) -> None:
    log = texts.lines(texts.vllm_status(10.0 * place, 9, 50) for place in range(20))
    verdicts = clinic.told(log, OFFERED, IDLE)
    assert RULE not in verdicts.found
    assert "wait at the server" in verdicts.ruled_out[RULE]
