from __future__ import annotations

import math
from dataclasses import replace

import pytest

from doctor.diagnosis.outcome import Gain, Window
from doctor.reports import wording
from doctor.rule import Evidence, Where
from tests.support import diagnoses


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.81, "share of window", "81.0 % of window"),
        (2.1, "us", "2.10 us"),
        (44_300_000, "ns", "44.3 ms"),
        (1.5, "s", "1.50 s"),
        (2.5, "ms a step", "2.50 ms a step"),
        (129_385_889_792, "bytes", "120 GiB"),
        (27.7e9, "bytes/s", "27.7 GB/s"),
        (1180.0, "launches", "1,180 launches"),
        (1.5, "per step", "1.5 per step"),
        (1, "failures", "1 failure"),
        (1.0, "launches a step", "1 launch a step"),
        (1, "copies", "1 copy"),
        (1, "processes", "1 process"),
        (1, "GFLOP/s", "1 GFLOP/s"),
        (29_954.6, "kernels a second", "29,955 kernels a second"),
        (4.1, "x", "4.1x"),
        ("fp32", "", "fp32"),
        ("fp32", "precision", "fp32 precision"),
        (math.nan, "us", "unknown"),
    ],
)
def test_evidence_is_worded_with_its_unit(value: float | str, unit: str, text: str) -> None:
    assert wording.evidence_value(Evidence("name", value, unit)) == text


@pytest.mark.parametrize(
    ("gain", "text"),
    [
        (Gain(0.19, 4.9, 4.1, 3.2, 5.0), "about 4.1x (3.2-5.0), at most 4.9x"),
        (Gain(speedup_bound=1.002), "within the noise of a run: at most 1.00x"),
        (Gain(speedup_bound=1.27), "at most 1.27x, not promised"),
        (Gain(0.01, 1.063, 1.041, 1.031, 1.052), "within the noise of a run: about 1.04x (1.03-1.05), at most 1.06x"),
        (Gain(0.9, 14.2, 12.4, 9.6, 16.1), "about 12x (10-16), at most 14x"),
        (Gain(0.19, 4.9), "at most 4.9x, not promised"),
        (Gain(bytes=2**31), "2.00 GiB of memory"),
        (Gain(), "not promised: this recording does not allow it, see below"),
        (None, ""),
    ],
)
def test_a_gain_is_worded_with_its_range_and_bound(gain: Gain | None, text: str) -> None:
    assert wording.gain_sentence(gain) == text


@pytest.mark.parametrize(
    ("text", "worded"),
    [
        ("the queue ran empty", "The queue ran empty."),
        ("cudaMalloc took 2 ms", "cudaMalloc took 2 ms."),
        ("8 steps of 3 ms.", "8 steps of 3 ms."),
        ("--enforce-eager is set", "--enforce-eager is set."),
        ("", ""),
    ],
)
def test_a_summary_becomes_a_sentence(text: str, worded: str) -> None:
    assert wording.sentence(text) == worded


def test_a_place_names_what_is_known_and_counts_time_from_the_window() -> None:
    window = Window(1_700_000_000_000_000_000, 1_700_000_001_000_000_000, 8, "steady")
    late = Where(start_ns=window.start_ns + 120_000_000, range="decode", device_id=1)
    assert wording.place(late, window) == "decode, GPU 1, 120 ms into the window"
    assert wording.place(Where(start_ns=window.start_ns - 5_000), window) == "5.00 us before the window"
    assert wording.place(Where(start_ns=1_200_000_000), None) == "at 1.20 s"
    assert wording.place(Where(), window) == ""
    assert wording.place(None, window) == ""


def test_a_long_range_is_clipped() -> None:
    assert wording.place(Where(range="r" * 80), None) == f"{'r' * 37}..."


def test_control_characters_are_taken_out() -> None:
    assert wording.clean("a\x1b[31mb\tc\nd\u202ee\x00") == "a?[31mb c d?e?"


@pytest.mark.parametrize(
    ("verify", "check"),
    [
        ("record again: idle under 5 %. To be sure beforehand: slow the clock.", "Record again: idle under 5 %."),
        ("cat /sys/fs/cgroup/cpu.stat twice. Then 0.5 of it", "Cat /sys/fs/cgroup/cpu.stat twice."),
        ("", ""),
    ],
)
def test_the_first_check_is_one_sentence(verify: str, check: str) -> None:
    finding = replace(diagnoses.launch_bound().findings[0], verify=verify)
    assert wording.first_check(finding) == check


def test_steps_that_may_be_layers_are_not_told_as_steps() -> None:
    ill = diagnoses.launch_bound()
    assert "step 29.9 ms, 1,180 launches, 1 sync" in wording.vitals_parts(ill)
    maybe = replace(
        ill, window=Window(0, 10**9, 95, "first launch to last device work; steps by repeating work, maybe layers")
    )
    assert "step, maybe a layer, 29.9 ms, 1,180 launches, 1 sync" in wording.vitals_parts(maybe)
