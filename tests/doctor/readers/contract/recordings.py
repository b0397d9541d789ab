"""The recordings that every reader is held against: our samples, and the shared collection where it is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.traces import SAMPLES, shared_traces

_PATTERNS = ("*.nsys-rep", "*.sqlite.gz", "*.json.gz")
_ONE_A_READER = (
    "graph-decode-nsys-report/healthy-fixed.nsys-rep",
    "graph-decode-sqlite-export/healthy-fixed.sqlite.gz",
    "graph-decode-torch-trace/healthy-fixed.pt.trace.json.gz",
)
_DAMAGED = ("trunc60_", "empty", "nan_bert", "bare_array")


@dataclass(frozen=True)
class Pair:
    """A native report and the SQLite export that NVIDIA's program made of it."""

    report: Path
    export: Path


def whole_recordings() -> list[Path]:
    """Every recording that is not damaged on purpose."""
    found = [path for pattern in _PATTERNS for path in sorted(SAMPLES.glob(f"*/{pattern}"))]
    for folder in ("h200*", "public"):
        found += [path for pattern in _PATTERNS for path in shared_traces(f"{folder}/{pattern}")]
    return [path for path in found if not path.name.startswith(_DAMAGED)]


def small_samples() -> list[Path]:
    """One small sample a format, for tests that read it many times."""
    return [SAMPLES / name for name in _ONE_A_READER]


def pairs() -> list[Pair]:
    """Reports whose export lies beside them."""
    found = []
    for report in [path for path in whole_recordings() if path.suffix == ".nsys-rep"]:
        export = report.with_name(f"{report.name.removesuffix('.nsys-rep')}.sqlite.gz")
        if export.exists():
            found.append(Pair(report, export))
    return found


def as_parameters(paths: list[Path]) -> list[object]:
    """Parameters named by folder and file."""
    return [pytest.param(path, id=f"{path.parent.name}/{path.name}") for path in paths]
