"""Finds the shared collection of real traces: `$DOCTOR_TRACES`, or `../shared/traces` beside the checkout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_CHECKOUT = Path(__file__).parents[2]
SAMPLES = _CHECKOUT / "samples"


def traces_folder() -> Path | None:
    """The folder of the collection, None where it is not on this machine."""
    named = os.environ.get("DOCTOR_TRACES")
    folder = Path(named) if named else _CHECKOUT.parent / "shared" / "traces"
    return folder if folder.is_dir() else None


def shared_trace(name: str) -> Path:
    """One file of the collection, such as `h200/launch-sick.nsys-rep`; skips the test where it is missing."""
    folder = traces_folder()
    if folder is None:
        pytest.skip("no shared traces here: set DOCTOR_TRACES to the folder that holds them")
    path = folder / name
    if not path.exists():
        pytest.skip(f"{name} is not among the shared traces")
    return path


def shared_traces(pattern: str) -> list[Path]:
    """Files of the collection that match a pattern, such as `public/*.json.gz`; none where it is missing."""
    folder = traces_folder()
    return [] if folder is None else sorted(folder.glob(pattern))
