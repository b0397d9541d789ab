"""The recordings that every reader is held against: our samples, and the shared collection where it is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.traces import SAMPLES, shared_traces, traces_folder

_SAMPLE_NAMES = (
    "graph-decode-sqlite-export/healthy-fixed.sqlite.gz",
    "graph-decode-torch-trace/healthy-fixed.pt.trace.json.gz",
    "launch-bound-decode-torch-trace/launch-sick.pt.trace.json.gz",
)
_DAMAGED = ("trunc60_", "empty", "nan_bert", "bare_array")


@dataclass(frozen=True)
class Pair:
    """A native report and the SQLite export that NVIDIA's program made of it."""

    report: Path
    export: Path


def whole_recordings() -> list[Path]:
    """Every recording that is not damaged on purpose."""
    shared = [
        path
        for pattern in ("h200*/*.nsys-rep", "h200*/*.sqlite.gz", "h200*/*.json.gz", "public/*")
        for path in shared_traces(pattern)
        if not path.name.startswith(_DAMAGED)
    ]
    return [SAMPLES / name for name in _SAMPLE_NAMES] + shared


def pairs() -> list[Pair]:
    """Reports of the shared collection whose export lies beside them."""
    found = []
    for pattern in ("h200*/*.nsys-rep", "public/*.nsys-rep"):
        for report in shared_traces(pattern):
            export = report.with_name(f"{report.name.removesuffix('.nsys-rep')}.sqlite.gz")
            if export.exists():
                found.append(Pair(report, export))
    return found


def as_parameters(paths: list[Path]) -> list[object]:
    """Parameters named by folder and file; one that skips where there is none."""
    if not paths:
        return [pytest.param(None, marks=pytest.mark.skip(reason="no shared traces here: set DOCTOR_TRACES"))]
    return [pytest.param(path, id=f"{path.parent.name}/{path.name}") for path in paths]


def has_shared_traces() -> bool:
    """Tell whether the shared collection is on this machine."""
    return traces_folder() is not None
