"""Where the real recordings are that tests read: samples of this repository, and larger ones beside the checkout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples"


def sample(name: str) -> Path:
    """A file or folder under `samples/`; it is part of the checkout."""
    path = SAMPLES / name
    assert path.exists(), f"{path} is missing from the checkout"
    return path


def shared_trace(name: str) -> Path:
    """A recording too large for the repository, in $DOCTOR_TRACES or ../shared/traces; skips the test without it."""
    folder = Path(os.environ.get("DOCTOR_TRACES") or ROOT.parent / "shared" / "traces")
    path = folder / name
    if not path.exists():
        pytest.skip(f"needs {name} in $DOCTOR_TRACES or {folder}")
    return path


def trace_of(folder: Path) -> Path:
    """The first recording in a sample's folder: the file beside its notes, expectation and recorder."""
    notes = {".md", ".py", ".txt"}
    return next(path for path in sorted(folder.iterdir()) if path.suffix not in notes and path.name != "expected.json")
