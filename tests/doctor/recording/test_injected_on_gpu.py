"""The recorder in a program that replays CUDA graphs: replays are the steps, not the calls of warm-up and capture."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
ROOT = Path(__file__).parents[3]
GRAPHED = """
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)]).cuda()
given = torch.randn(4, 512, device="cuda")
with torch.no_grad():
    for _ in range(12):
        model(given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(given)
    for _ in range(40):
        graph.replay()
    torch.cuda.synchronize()
"""


def test_replays_of_graphs_are_the_steps(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(GRAPHED)
    words = ["record", "-o", "case", "--profiler", "torch", "--skip-steps", "4", "--steps", "6"]
    done = subprocess.run(
        [sys.executable, "-m", "doctor.cli.main", *words, "--", sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "case").glob("torch-*.pt.trace.json.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        names = [event.get("name", "") for event in json.load(file)["traceEvents"]]
    assert names.count("cudaGraphLaunch") == 6
