"""The recordings under `samples/`, which are part of the checkout."""

from __future__ import annotations

from pathlib import Path

SAMPLES = Path(__file__).parents[2] / "samples"
_BESIDE_THE_TRACE = {".md", ".py", ".txt"}


def sample(name: str) -> Path:
    """The folder of one sample: the trace, its note, the finding it must give."""
    path = SAMPLES / name
    assert path.exists(), f"{path} is missing from the checkout"
    return path


def trace_of(folder: Path) -> Path:
    """The first recording in a sample's folder."""
    files = (path for path in sorted(folder.iterdir()) if path.name != "expected.json")
    return next(path for path in files if path.suffix not in _BESIDE_THE_TRACE)
