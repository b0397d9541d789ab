"""Each recording under `samples/` gives what its note says; `doctor score samples` tells the same in numbers."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from doctor.diagnosis.catalogue import load_catalogue
from doctor.scoring.expected import Half
from doctor.scoring.judging import judge
from doctor.scoring.outcome import Judged
from doctor.scoring.samples import Sample, find_samples
from doctor.scoring.tally import Accuracy, accuracy
from tests.support.contradictions import contradictions
from tests.support.perturbed import with_other_names_and_ids, without_annotations
from tests.support.recorded import diagnosis_of, saved_case
from tests.support.samples import SAMPLES

FOUND = find_samples(SAMPLES)
RECORDINGS = (".nsys-rep", ".pt.trace.json.gz")


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
    assert contradictions(diagnosis_of(*sample.groups[place])) == []


PERTURBED_ONE_BY_ONE = {
    "launch-bound-decode-nsys-report",
    "launch-bound-decode-torch-trace",
    "graph-decode-nsys-report",
    "graph-decode-torch-trace",
    "scheduler-pause",
    "pageable-copies",
    "sync-trap",
    "eager-attention",
    "fp32",
    "growing-kv",
    "engine-no-cuda-graphs",
}
"""Samples that `tests/doctor/diagnosis/test_invariance.py` changes in four ways, one at a time."""
STEPS_ONLY_BY_ANNOTATION = {"engine-small-micro-batches"}
"""Each piece copies its own tokens, so that without annotations it cannot be told from a step of one sequence."""


def last_recordings() -> list[object]:
    """The last recording of every other folder: the trace where there are a report and a trace."""
    found = [
        (sample, [place for place, group in enumerate(sample.groups) if group[0].name.endswith(RECORDINGS)])
        for sample in FOUND
        if sample.name not in PERTURBED_ONE_BY_ONE
    ]
    return [pytest.param(sample, places[-1], id=sample.name) for sample, places in found if places]


def perturbed(case: duckdb.DuckDBPyConnection) -> None:
    without_annotations(case)
    with_other_names_and_ids(case)


@pytest.mark.parametrize(("sample", "place"), last_recordings())
def test_a_copy_without_annotations_with_other_names_and_ids_keeps_the_first_finding(
    sample: Sample, place: int, tmp_path: Path
) -> None:
    [recording] = sample.groups[place]
    change = with_other_names_and_ids if sample.name in STEPS_ONLY_BY_ANNOTATION else perturbed
    result = judge(sample, (recording.name,), saved_case(tmp_path, recording).diagnosis(change=change))
    assert result.found == judged(sample, place).found


@pytest.mark.parametrize("half", Half)
def test_promised_wins_are_near_the_measured_ones(half: Half) -> None:
    held = promises_of(half)
    assert held.promised_count >= 10
    assert held.median_abs_log_error is not None
    assert held.median_abs_log_error <= 0.15
    assert held.share_inside is not None
    assert held.share_inside >= 0.8
    assert held.median_width is not None
    assert held.median_width <= 2
    assert held.median_bound_ratio is not None
    assert held.median_bound_ratio <= 1.5


@pytest.mark.parametrize("half", Half)
def test_no_measured_win_is_above_its_bound_by_more_than_host_noise(half: Half) -> None:
    assert promises_of(half).broken_bounds == ()


def promises_of(half: Half) -> Accuracy:
    samples = [sample for sample in FOUND if sample.expected.half is half]
    results = [judged(sample, place) for sample in samples for place in range(len(sample.groups))]
    return accuracy([(result.sample, promise) for result in results for promise in result.promises])
