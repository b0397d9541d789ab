"""Every sample of a folder diagnosed and judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from doctor import api
from doctor.diagnosis.outcome import Diagnosis
from doctor.errors import DoctorError
from doctor.scoring.judging import judge
from doctor.scoring.outcome import Judged
from doctor.scoring.samples import Sample, find_samples
from doctor.scoring.tally import Score

Diagnose = Callable[..., Diagnosis]
"""Paths to a diagnosis, as `doctor.api.diagnose`."""


def score(folder: Path, diagnose: Diagnose = api.diagnose, done: Callable[[str], None] = lambda name: None) -> Score:
    """Diagnose every sample under a folder.

    Args:
        folder: holds folders with an `expected.json`.
        diagnose: paths to a diagnosis.
        done: told the name of each sample once it is diagnosed.

    Raises:
        UsageError: there are no samples, or an `expected.json` is wrong.
    """
    results: list[Judged] = []
    for sample in find_samples(folder):
        results += [_judged(sample, group, diagnose) for group in sample.groups]
        done(sample.name)
    return Score(tuple(results))


def _judged(sample: Sample, group: tuple[Path, ...], diagnose: Diagnose) -> Judged:
    """Evidence that cannot be read is a miss, not the end of the score."""
    files = tuple(path.name for path in group)
    try:
        diagnosis = diagnose(*group)
    except DoctorError as error:
        expected = sample.expected
        missed = () if expected.first is None else (expected.first,)
        return Judged(
            sample.name, files, "other", expected.half, expected.first, None, missed=missed, error=error.message
        )
    return judge(sample, files, diagnosis)
