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


@pytest.mark.parametrize(("sample", "place"), diagnoses())
def test_no_win_is_above_its_bound(sample: Sample, place: int) -> None:
    held = accuracy([(sample.name, promise) for promise in judged(sample, place).promises])
    assert not held.broken_bounds


def test_promised_wins_are_near_the_measured_ones() -> None:
    held = promises_of_all()
    assert held.promised_count >= 8
    assert held.median_abs_log_error is not None
    assert held.median_abs_log_error <= 0.15
    assert held.share_inside is not None
    assert held.share_inside >= 0.8
    assert held.median_width is not None
    assert held.median_width <= 2
    assert held.median_bound_ratio is not None
    assert held.median_bound_ratio <= 1.5


def promises_of_all() -> Accuracy:
    results = [judged(sample, place) for sample in FOUND for place in range(len(sample.groups))]
    return accuracy([(result.sample, promise) for result in results for promise in result.promises])
