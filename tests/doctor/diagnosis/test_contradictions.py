"""What cannot be true in a diagnosis is seen; `tests/samples/test_expected.py` tells that no sample holds any of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from doctor.diagnosis.outcome import Diagnosis, Gain
from doctor.rule import Evidence, Severity
from tests.support.contradictions import contradictions
from tests.support.diagnoses import launch_bound


def _with_first(**changes: object) -> Diagnosis:
    known = launch_bound()
    return replace(known, findings=(replace(known.findings[0], **changes), *known.findings[1:]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("diagnosis", "told"),
    [
        (_with_first(evidence=(Evidence("waits", 1.01, "share of window"),)), "waits: 1.010"),
        (_with_first(summary="it waits 101 % of the time"), "101 %"),
        (_with_first(gain=Gain(0.19, 3.0, 4.1, 3.2, 5.0)), "promises"),
        (_with_first(gain=Gain(0.9, 4.9, 4.1, 3.2, 4.9)), "0.9000 s of a window"),
        (_with_first(gain=Gain(0.19, 9.9, 4.1, 3.2, 5.0)), "at most 9.90"),
        (_with_first(gain=Gain(0.01, 1.3, 1.1, 1.0, 1.2)), "critical for 1.100x"),
        (_with_first(severity=Severity.LOW), "(low) above"),
        (
            _with_first(evidence=(Evidence("copies", 0.1, "share"), Evidence("copies that wait", 0.2, "share"))),
            "copies that wait 0.200 above copies",
        ),
        (
            _with_first(summary="the launching thread fell silent 900 times, for 90000.0 ms in all, 1.0 ms of it"),
            "pauses of 90000.0 ms",
        ),
        (_with_first(summary="9.0 GiB came up in 4 copies, 8.00 GiB in each of 4 steps"), "8.0 GiB in each"),
    ],
)
def test_what_cannot_be_true_is_seen(diagnosis: Diagnosis, told: str) -> None:
    assert any(told in line for line in contradictions(diagnosis)), contradictions(diagnosis)
