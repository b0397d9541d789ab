"""Reconstructed from NVIDIA/Isaac-GR00T#379: the first inference after ten idle seconds is slow, every time."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.device_texts import nvml_line
from tests.support.verdicts import Clinic

RULE = "idle-clock-ramp"
IDLE = {
    "busy_share": 0.0,
    "sm_clock_hz": 345_000_000,
    "sm_clock_max_hz": 1_980_000_000,
    "performance_state": 8,
    "is_idle": True,
}
RAMP = {
    "busy_share": 0.6,
    "sm_clock_hz": 900_000_000,
    "sm_clock_max_hz": 1_980_000_000,
    "performance_state": 2,
    "is_idle": False,
}
FAST = RAMP | {"busy_share": 0.95, "sm_clock_hz": 1_965_000_000, "performance_state": 0}


def visits(count: int, first: Mapping[str, object], persistence: bool) -> str:
    """Requests with ten seconds of silence between them, sampled each second."""
    lines, now = "", 0.0
    for _ in range(count):
        for state in (*[IDLE] * 11, first, *[FAST] * 4):
            lines += nvml_line(now, [{**state, "is_persistence_on": persistence}])
            now += 1
    return lines


def test_fires_when_every_pause_is_followed_by_a_low_clock(clinic: Clinic) -> None:
    verdicts = clinic.told(visits(3, RAMP, False))
    assert verdicts.first == RULE
    assert "persistence mode is off" in verdicts.finding(RULE)["summary"]
    assert verdicts.finding(RULE)["severity"] == "medium"


def test_is_silent_when_the_clock_is_up_at_once(clinic: Clinic) -> None:
    assert RULE not in clinic.told(visits(3, FAST, True)).found


def latencies(first_ms: list[int]) -> str:
    """A client's log: twelve seconds of silence, one request, then three in a row; again and again."""
    lines, now = ["timestamp,latency_ms"], 1000.0
    for first in first_ms:
        now += 12.0
        for latency in (first, 60, 61, 60):
            lines.append(f"{now:.3f},{latency}")
            now += latency / 1000
    return "\n".join(lines) + "\n"


def test_tells_it_from_a_clients_log(clinic: Clinic) -> None:
    summary = clinic.told(latencies([180, 182, 175, 190])).finding(RULE)["summary"]
    assert "3 of 3 requests after 12 s of silence take 3.0 times the median" in summary
    assert "no habit" in clinic.told(latencies([180, 182, 60, 61, 62])).ruled_out[RULE]
