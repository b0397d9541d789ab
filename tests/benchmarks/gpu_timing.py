"""Timing on the GPU: a captured graph of several calls over rotating data, replayed between events."""

from __future__ import annotations

import json
import platform
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def time_calls(calls: Sequence[Callable[[], object]], repeats: int = 15) -> float:
    """Seconds per call, median over replays of one graph that holds all `calls` one after the other."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for call in calls:
                call()
    torch.cuda.current_stream().wait_stream(stream)
    return time_replays(graph, repeats) / len(calls)


def time_replays(graph: torch.cuda.CUDAGraph, repeats: int = 15) -> float:
    """Seconds per replay, median."""
    for _ in range(3):
        graph.replay()
    samples: list[float] = []
    for _ in range(repeats):
        start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1e-3)
    return statistics.median(samples)


def write_results(path: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """Write rows with the command and the machine they come from."""
    document = {
        "benchmark": name,
        "command": ["python", "-m", f"tests.benchmarks.{Path(sys.argv[0]).stem}", *sys.argv[1:]],
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "rows": rows,
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
