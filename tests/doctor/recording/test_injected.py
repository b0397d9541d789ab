"""What the injected recorder takes for a step, in a real process with the profiler of torch; graphs are played."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.recording import torch_injection
from doctor.recording.plan import Window

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from doctor_torch_recorder import Recorder
import torch

class Graph:
    def replay(self):
        torch.erfc(given)

given = torch.randn(4)
recorder = Recorder(sys.argv[2], skip_steps=3, steps=4, seconds=60)
recorder.install(torch)
recorder._watch_graphs(Graph)
model, graph = torch.nn.Linear(4, 4), Graph()
for _ in range(12):
    model(given)
for _ in range(10):
    graph.replay()
    model(given)
"""


def test_replays_are_the_steps_once_there_are_any(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra 'engine'")
    injected = Path(torch_injection.__file__).with_name("injected")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(injected), str(tmp_path)],
        env={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (trace,) = torch_injection.collect(tmp_path, Window()).traces
    names = [event.get("name") for event in json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]]
    assert names.count("aten::erfc") == 4
    assert len([name for name in names if name and name.startswith("ProfilerStep#")]) == 4


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        ([], "no Python process of the command imported torch"),
        ([{"steps": 0, "problem": None, "is_final": False}], "before Python could write"),
        ([{"steps": 0, "problem": None, "is_final": True}], "it has no steps to count"),
        ([{"steps": 5, "problem": None, "is_final": True}], "ran 5 steps, and the window begins after 8"),
        ([{"steps": 9, "problem": "RuntimeError: busy", "is_final": True}], "refused: RuntimeError: busy"),
    ],
)
def test_no_trace_has_a_reason(notes: list[dict[str, object]], reason: str, tmp_path: Path) -> None:
    for pid, note in enumerate(notes):
        (tmp_path / f"torch-{pid}.note").write_text(json.dumps(note))
    left = torch_injection.collect(tmp_path, Window())
    assert left.traces == ()
    assert reason in left.why_none
    assert list(tmp_path.iterdir()) == []
