from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.samples import SAMPLES

pytest.importorskip("torch", reason="patients are programs of PyTorch: torch is not installed")
pytest.importorskip("transformers", reason="patients are programs of transformers: it is not installed")
assembling = pytest.importorskip("samples.assemble")
TRACE = "sick.pt.trace.json.gz"


def recorded(name: str, folder: Path, found: dict[str, object] | None) -> Path:
    folder.mkdir()
    shutil.copyfile(SAMPLES / name / TRACE, folder / TRACE)
    if found is not None:
        (folder / "measured.json").write_text(json.dumps(found), encoding="utf-8")
    return folder


def test_what_must_be_found_of_a_healthy_program_needs_no_measurement(tmp_path: Path) -> None:
    [patient] = assembling.chosen(["healthy-compiled-encoder"])
    source = recorded(patient.name, tmp_path / "recorded", None)
    assert assembling.assemble(patient, source, tmp_path / "sample") == [TRACE]
    told = json.loads((tmp_path / "sample" / "expected.json").read_text("utf-8"))
    assert (told["first"], told["measured_speedup"]) == (None, {})
    assert "doctor redact" in (tmp_path / "sample" / "README.md").read_text("utf-8")


def test_the_win_of_a_cure_is_the_measured_one(tmp_path: Path) -> None:
    [patient] = assembling.chosen(["engine-slow-scheduler"])
    runs = {"sick": [{"wall_s": 5.0}], "cured": [{"wall_s": 1.0}]}
    speedup = {"median": 5.001, "low": 4.0, "high": 6.0, "cpu": 5.0}
    found = {"runs": runs, "facts": {"sick": {"audits": 48}, "cured": {}}, "speedup": speedup}
    source = recorded(patient.name, tmp_path / "recorded", found)
    assembling.assemble(patient, source, tmp_path / "sample")
    told = json.loads((tmp_path / "sample" / "expected.json").read_text("utf-8"))
    assert told["measured_speedup"] == {"step-gap-scheduler": {"median": 5.0, "low": 4.0, "high": 6.0}}
    assert "audits 48 against 0" in (tmp_path / "sample" / "README.md").read_text("utf-8")
