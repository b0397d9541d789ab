from __future__ import annotations

import json

from tests.support import oom_texts
from tests.support.verdicts import Clinic

RULE = "foreign-gpu-process"
GIB = 2**30


def test_memory_that_nobody_is_listed_for_is_foreign_all_the_same(clinic: Clinic) -> None:
    text = oom_texts.of_today(
        tried="768.00 MiB",
        total="83.05 GiB",
        free="140.38 MiB",
        own="23.33 GiB",
        allocated="21.92 GiB",
        pools="104.00 MiB",
        unallocated="797.79 MiB",
    )
    verdicts = clinic.told(text)
    assert verdicts.first == RULE
    assert verdicts.evidence(RULE, "memory of others") / GIB > 59.5
    assert any("--gpu-memory-utilization 0.26" in fix["setting"] for fix in verdicts.finding(RULE)["fixes"])


def sample(other_gib: float) -> str:
    """One look at a device on which the recorded command holds 20 of 80 GiB."""
    return json.dumps(
        {
            "schema": "doctor.vitals/1",
            "time_ns": 1_700_000_000 * 10**9,
            "gpus": [
                {"device_id": 0, "memory_total_bytes": 80 * GIB, "memory_used_bytes": int((20.5 + other_gib) * GIB)}
            ],
            "processes": [
                {"device_id": 0, "pid": 1, "name": "python3", "memory_bytes": 20 * GIB, "is_own": True},
                {"device_id": 0, "pid": 2, "name": "python3", "memory_bytes": int(other_gib * GIB), "is_own": False},
            ],
        }
    )


def test_samples_that_know_their_own_processes_tell_others_before_it_fails(clinic: Clinic) -> None:
    assert clinic.told(sample(45.0)).finding(RULE)["severity"] == "high"
    assert RULE not in clinic.told(sample(0.4)).found


def test_an_engine_outside_pytorch_is_not_taken_for_another_process(clinic: Clinic) -> None:
    text = oom_texts.of_today(
        tried="2.00 MiB",
        total="22.19 GiB",
        free="1.50 MiB",
        others={885415: "22.18 GiB"},
        allocated="0 bytes",
        unallocated="0 bytes",
    )
    assert RULE not in clinic.told("[TensorRT-LLM] TensorRT-LLM version: 0.18.0\n" + text).found
