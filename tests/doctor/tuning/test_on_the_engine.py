"""`doctor tune` on the engine itself, which counts what a device's recording would show."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra 'engine'")

from doctor.cli.main import main
from tests.support.tiny_models import make_model, save_model

ROOT = Path(__file__).parents[3]
WORKLOAD = ("--device", "cpu", "--num-requests", "8", "--prompt-tokens", "8", "8", "--output-tokens", "12", "12")


def test_steps_in_pieces_become_whole(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    model = save_model(make_model("llama"), tmp_path / "model")
    command = [sys.executable, "-m", "engine", "bench", "--model", str(model), *WORKLOAD, "--micro-batch-size", "1"]
    code = main(["tune", "--repeat", "1", "--format", "json", "--", *command])
    printed = capfd.readouterr()
    assert code == 0, printed.err
    report = json.loads(printed.out)
    assert report["changes"] == ["drop --micro-batch-size 1"]
    [trial] = report["steps"][0]["trials"]
    assert (trial["rule"], trial["verdict"]) == ("micro-batch-too-small", "kept")
    assert str(tmp_path) not in printed.out


def test_recordings_of_a_device_lead_to_graphs_and_to_what_they_need_at_once(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    sick = ("--layer-boundary", "synchronize", "--no-cuda-graphs")
    command = [sys.executable, "-m", "tests.support.recorded_engine", "bench", "--model", "recorded", *sick]
    code = main(["tune", "--repeat", "1", "--at-least", "medium", "--format", "json", "--", *command])
    printed = capfd.readouterr()
    assert code == 0, printed.err
    report = json.loads(printed.out)
    [kept] = report["steps"][0]["trials"]
    assert kept["verdict"] == "kept"
    assert set(report["changes"]) == {
        "--layer-boundary synchronize -> --layer-boundary free",
        "--no-cuda-graphs -> --cuda-graphs",
    }
