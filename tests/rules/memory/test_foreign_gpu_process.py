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


def test_what_a_display_may_hold_is_nobodys_theft(clinic: Clinic) -> None:
    text = oom_texts.of_today(
        tried="300.00 MiB",
        total="15.70 GiB",
        free="90.00 MiB",
        own="14.10 GiB",
        allocated="13.80 GiB",
        unallocated="60.00 MiB",
    )
    verdicts = clinic.told(text)
    assert verdicts.first == "headroom-thin"
    assert verdicts.evidence("headroom-thin", "held by others") > GIB
    named = text.replace(" Including", " Process 4321 has 1.50 GiB memory in use. Including")
    assert clinic.told(named).first == RULE


def test_a_process_that_the_driver_cannot_count_is_not_taken_for_nothing(clinic: Clinic) -> None:
    text = oom_texts.of_today(
        tried="2.10 GiB",
        total="21.98 GiB",
        free="1.00 GiB",
        own="0 bytes",
        allocated="20.10 GiB",
        unallocated="300.00 MiB",
    )
    assert RULE not in clinic.told(text).found


def test_little_unnamed_memory_of_an_old_text_is_said_with_doubt(clinic: Clinic) -> None:
    text = oom_texts.of_2020(
        tried="64.00 MiB", total="79.20 GiB", allocated="66.00 GiB", free="60.00 MiB", reserved="67.00 GiB"
    )
    finding = clinic.told(text).finding(RULE)
    assert finding["confidence"] == 0.5
    assert "a library of the process" in finding["summary"]


def test_a_message_that_was_cut_ends_in_no_error(clinic: Clinic) -> None:
    text = "CUDA out of memory. Tried to allocate 40.00 MiB. GPU 0 has a total capacity of 39.40 GiB of which 30.00 MiB is free. Process 75 has 39.20 GiB memory in use. Of the alloc\n"  # noqa: E501 - as printed
    assert clinic.told(text).found == {"headroom-thin"}
