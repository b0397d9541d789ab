"""Memory that grows from sample to sample, on the device and on the host."""

from __future__ import annotations

import json
import random

from tests.support.verdicts import Clinic

MINUTE_NS = 60 * 10**9
GIB = 2**30


def samples(gpu_gib: list[float], host_gib: list[float]) -> str:
    """A sample a minute: a process on an 80 GiB device, and another's resident memory in a pod of 64 GiB."""
    lines = [
        {
            "schema": "doctor.vitals/1",
            "time_ns": 1_700_000_000 * 10**9 + place * MINUTE_NS,
            "gpus": [
                {
                    "device_id": 0,
                    "memory_total_bytes": 80 * GIB,
                    "memory_used_bytes": int((gpu + 0.6) * GIB),
                    "busy_share": 0.9,
                }
            ],
            "processes": [
                {"device_id": 0, "pid": 42, "name": "python3", "memory_bytes": int(gpu * GIB), "is_own": True}
            ],
            "host": {"memory_limit_bytes": 64 * GIB},
            "host_processes": [{"pid": 41, "name": "api_server", "resident_bytes": int(host * GIB)}],
        }
        for place, (gpu, host) in enumerate(zip(gpu_gib, host_gib, strict=True))
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


def rising(start: float, step: float, count: int = 60) -> list[float]:
    """A line with a little noise."""
    dice = random.Random(14)
    return [start + step * place + dice.uniform(-0.05, 0.05) for place in range(count)]


LEVEL = rising(40.0, 0.0)


def test_device_memory_that_rises_along_a_line_is_told_with_the_time_that_is_left(clinic: Clinic) -> None:
    verdicts = clinic.told(samples(rising(30.0, 0.5), LEVEL))
    assert verdicts.first == "memory-leak-growth"
    assert "the device is full after" in verdicts.finding("memory-leak-growth")["summary"]
    assert "host-memory-leak" not in verdicts.found


def test_looks_of_a_few_seconds_may_be_of_one_request(clinic: Clinic) -> None:
    rows = "".join(
        f"2026/03/02 10:00:{second:02d}.000, 0, {24600 + 400 * second} MiB, 46068 MiB\n" for second in range(40)
    )
    finding = clinic.told(f"timestamp, index, memory.used [MiB], memory.total [MiB]\n{rows}").finding(
        "memory-leak-growth"
    )
    assert (finding["severity"], finding["confidence"]) == ("medium", 0.4)


def test_host_memory_that_rises_along_a_line_is_told_by_process(clinic: Clinic) -> None:
    verdicts = clinic.told(samples(LEVEL, rising(20.0, 0.2)))
    assert verdicts.first == "host-memory-leak"
    assert "41 (api_server)" in verdicts.finding("host-memory-leak")["summary"]
    assert "memory-leak-growth" not in verdicts.found


def test_memory_that_rises_and_stays_is_no_leak(clinic: Clinic) -> None:
    loaded = [5.0 + 2.0 * place for place in range(12)] + [70.0] * 48
    found = clinic.told(samples(loaded, [place / 3 for place in range(12)] + [4.0] * 48)).found
    assert not {"memory-leak-growth", "host-memory-leak"} & found


def printed(kept_gib: float) -> str:
    """What a program prints every iteration; reserved memory rises in any case."""
    return "".join(
        f"iter {number}: allocated: {34.0 + kept_gib * number:.2f} GiB, reserved: {40 + number / 2:.2f} GiB\n"
        for number in range(40)
    )


def test_allocated_memory_that_a_program_prints_is_told_and_reserved_memory_is_not(clinic: Clinic) -> None:
    assert clinic.told(printed(0.5)).first == "memory-leak-growth"
    assert "memory-leak-growth" not in clinic.told(printed(0.0)).found
