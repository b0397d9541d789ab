"""Zeros where a copy or a disk never wrote: behind a report they take nothing from it, inside they end it at once."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from doctor.cli.main import main
from tests.support.samples import sample, trace_of

REPORT = trace_of(sample("launch-bound-decode-nsys-report"))
GIB = 1 << 30

Output = pytest.CaptureFixture[str]


def plain_report() -> bytes:
    raw = REPORT.read_bytes()
    return gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw


def diagnosed(capsys: Output, path: Path) -> dict[str, Any]:
    assert main(["diagnose", str(path), "--format", "json", "--no-progress"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.parametrize("size", [64 * GIB, None])
def test_a_report_that_is_padded_is_whole(capsys: Output, tmp_path: Path, size: int | None) -> None:
    path = tmp_path / "padded.nsys-rep"
    with path.open("wb") as file:
        file.write(plain_report())
        if size is None:
            file.write(bytes(1 << 22))
        else:
            file.truncate(size)
    document = diagnosed(capsys, path)
    assert document["findings"][0]["rule"] == "host-dispatch-bound"
    assert document["evidence"][0]["complete"]


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_report_with_a_hole_ends_there(capsys: Output, tmp_path: Path, share: float) -> None:
    path, raw = tmp_path / "hole.nsys-rep", plain_report()
    place = int(len(raw) * share)
    with path.open("wb") as file:
        file.write(raw[:place])
        file.seek(64 * GIB)
        file.write(raw[place:])
    assert not diagnosed(capsys, path)["evidence"][0]["complete"]


@pytest.mark.parametrize("suffix", [".nsys-rep", ".pickle", ".json", ".log", ".gz"])
def test_nothing_but_zeros_is_refused_in_one_line(capsys: Output, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"zeros{suffix}"
    with path.open("wb") as file:
        file.truncate(64 * GIB)
    assert main(["diagnose", str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
