"""Diagnoses of recordings, each made once a session, and copies of a loaded case that a test may change."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import duckdb

from doctor import api
from doctor.diagnosis.catalogue import load_catalogue
from doctor.diagnosis.options import DiagnosisOptions
from doctor.diagnosis.outcome import Diagnosis, RankedFinding
from doctor.diagnosis.runner import diagnose_case
from doctor.rule import Rule

Change = Callable[[duckdb.DuckDBPyConnection], object]


@functools.cache
def catalogue() -> tuple[Rule, ...]:
    """The rules of the package."""
    return load_catalogue()


@functools.cache
def diagnosis_of(*paths: Path) -> Diagnosis:
    """The diagnosis of recordings given together."""
    return api.diagnose(*paths)


def finding_of(diagnosis: Diagnosis, rule: str) -> RankedFinding:
    """The finding of a rule; fails the test where there is none."""
    found = {finding.rule: finding for finding in diagnosis.findings}
    assert rule in found, f"{rule} is not among {list(found) or 'no findings'}"
    return found[rule]


@dataclass(frozen=True)
class SavedCase:
    """A case read once and saved, to be diagnosed many times."""

    path: Path

    def diagnosis(self, options: DiagnosisOptions | None = None, change: Change | None = None) -> Diagnosis:
        """The diagnosis of a copy, after `change` was made to it; each is made once."""
        return _diagnosed(self.path, options or DiagnosisOptions(), change)


@functools.cache
def _diagnosed(path: Path, options: DiagnosisOptions, change: Change | None) -> Diagnosis:
    copy = path.with_suffix(".copy")
    shutil.copyfile(path, copy)
    with closing(duckdb.connect(str(copy))) as case:
        if change is not None:
            change(case)
        return diagnose_case(case, catalogue(), options)


def saved_case(folder: Path, *paths: Path) -> SavedCase:
    """Read recordings into a case under `folder`."""
    path = folder / f"{paths[0].name}.duckdb"
    api.load(*paths, save=path).close()
    return SavedCase(path)
