"""Each recording under `samples/` gives what its note says; `doctor score samples` tells the same in numbers."""

from __future__ import annotations

import pytest

from doctor.diagnosis.catalogue import load_catalogue
from doctor.scoring.judging import judge
from doctor.scoring.outcome import Judged
from doctor.scoring.samples import Sample, find_samples
from doctor.scoring.tally import Accuracy, accuracy
from tests.support.recorded import diagnosis_of
from tests.support.samples import SAMPLES

FOUND = find_samples(SAMPLES)
OVER_THE_BOUND = {
    "engine-eager-attention",  # measured 10.0, bound 3.7
    "engine-eager-decode",  # measured 9.5 (7.3 to 12.5), bound 13.0 from nsys and 7.0 from Kineto
    "engine-fp32-prompts",  # measured 5.4, bound 4.7 from nsys and 6.9 from Kineto
    "engine-poor-draft",  # measured 7.6, bound 1.3 from counted tokens
    "engine-small-micro-batches",  # measured 6.8, bound 5.4
    "engine-sync-every-layer",  # measured 1.17 (1.08 to 1.68), bound 1.05
}
"""Samples whose measured win is above the promised bound by more than host noise; `doctor score samples` tells them."""


def diagnoses() -> list[object]:
    return [
        pytest.param(sample, place, id=f"{sample.name}/{'+'.join(path.name for path in group)}")
        for sample in FOUND
        for place, group in enumerate(sample.groups)
    ]


def judged(sample: Sample, place: int) -> Judged:
    group = sample.groups[place]
    return judge(sample, tuple(path.name for path in group), diagnosis_of(*group))


def test_every_folder_is_a_sample() -> None:
    folders = {path.name for path in SAMPLES.iterdir() if path.is_dir() and not list(path.glob("*.py"))}
    assert {sample.name for sample in FOUND} == folders - {"__pycache__"}


@pytest.mark.parametrize("sample", FOUND, ids=lambda sample: sample.name)
def test_a_sample_names_rules_that_exist(sample: Sample) -> None:
    assert sample.expected.rules <= {rule.about.id for rule in load_catalogue()}


@pytest.mark.parametrize(("sample", "place"), diagnoses())
def test_evidence_gives_what_is_expected_of_it(sample: Sample, place: int) -> None:
    result = judged(sample, place)
    assert result.is_first_right, result
    assert not result.missed, result
    assert result.is_right, result.alarms


def test_promised_wins_are_near_the_measured_ones() -> None:
    held = promises_of_all()
    assert held.promised_count >= 25
    assert held.median_abs_log_error is not None
    assert held.median_abs_log_error <= 0.18
    assert held.share_inside is not None
    assert held.share_inside >= 0.6
    assert held.median_width is not None
    assert held.median_width <= 2
    assert held.median_bound_ratio is not None
    assert held.median_bound_ratio <= 1.5


def test_few_measured_wins_are_above_their_bound() -> None:
    assert {sample for sample, _ in promises_of_all().broken_bounds} <= OVER_THE_BOUND


def promises_of_all() -> Accuracy:
    results = [judged(sample, place) for sample in FOUND for place in range(len(sample.groups))]
    return accuracy([(result.sample, promise) for result in results for promise in result.promises])
