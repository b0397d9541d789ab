"""Each recording under `samples/` gives what its note says, and nothing else that is grave."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from doctor.diagnosis.catalogue import load_catalogue
from doctor.rule import Severity
from tests.support.recorded import diagnosis_of, finding_of
from tests.support.samples import SAMPLES

FOLDERS = sorted(path for path in SAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__")
HOST_NOISE = 1.1


@dataclass(frozen=True)
class Expected:
    """The contents of `expected.json`."""

    first: str | None
    allowed: frozenset[str]
    ruled_out: frozenset[str]
    measured_speedup: dict[str, float]

    @classmethod
    def of(cls, folder: Path) -> Expected:
        """Read it; a field more or less fails."""
        fields: dict[str, Any] = json.loads((folder / "expected.json").read_text("utf-8"))
        return cls(**fields | {"allowed": frozenset(fields["allowed"]), "ruled_out": frozenset(fields["ruled_out"])})


def recordings() -> list[object]:
    return [
        pytest.param(folder, path, id=f"{folder.name}/{path.name}")
        for folder in FOLDERS
        for path in sorted(folder.iterdir())
        if path.name.endswith((".nsys-rep", ".sqlite.gz", ".json.gz"))
    ]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_sample_names_rules_that_exist_and_holds_a_recording(folder: Path) -> None:
    expected = Expected.of(folder)
    named = expected.allowed | expected.ruled_out | expected.measured_speedup.keys() | {expected.first}
    assert named - {None} <= {rule.about.id for rule in load_catalogue()}
    assert [path for path in folder.iterdir() if path.name.endswith((".nsys-rep", ".gz"))]


@pytest.mark.parametrize(("folder", "path"), recordings())
def test_a_recording_gives_what_is_expected_of_it(folder: Path, path: Path) -> None:
    expected, diagnosis = Expected.of(folder), diagnosis_of(path)
    if expected.first is None:
        assert all(finding.severity <= Severity.LOW for finding in diagnosis.findings)
    else:
        assert diagnosis.findings[0].rule == expected.first
    found = {finding.rule for finding in diagnosis.findings if finding.severity > Severity.INFO}
    assert found <= expected.allowed | {expected.first}
    assert expected.ruled_out <= {entry.rule for entry in diagnosis.ruled_out}
    assert diagnosis.replay is not None
    assert diagnosis.replay.is_trusted


@pytest.mark.parametrize(("folder", "path"), recordings())
def test_what_was_measured_lies_within_what_is_promised(folder: Path, path: Path) -> None:
    diagnosis, expected = diagnosis_of(path), Expected.of(folder)
    for rule, speedup in expected.measured_speedup.items():
        if rule in expected.ruled_out:
            assert speedup < HOST_NOISE
            continue
        gain = finding_of(diagnosis, rule).gain
        assert gain is not None
        assert gain.speedup_low is not None
        assert gain.speedup_bound is not None
        assert gain.speedup_low <= speedup <= gain.speedup_bound * HOST_NOISE
