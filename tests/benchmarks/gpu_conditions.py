"""Conditions that only a GPU shows, sick and cured, by what the engine counts and a trace of each. Needs a GPU.

Usage: python -m tests.benchmarks.gpu_conditions --folder /tmp/m085 --size 0.85B --out FILE --traces FILE.tar
Each condition runs 16 requests of 64 prompt and 48 answer tokens; the trace holds 12 steps of the torch profiler.
"""

from __future__ import annotations

import argparse
import gc
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import torch

from engine import LLM, EngineConfig
from engine.benchmark import Workload, measure, timed_requests
from engine.conditions import find_condition
from engine.profiling import Window, profiled
from tests.benchmarks.gpu_race import SHAPES, make_checkpoint

RUNS = (
    ("healthy", None, True),
    ("no-cuda-graphs", "no-cuda-graphs", False),
    ("sync-every-layer", "sync-every-layer", False),
    ("pageable-copies", "pageable-copies", False),
    ("pageable-copies cured", "pageable-copies", True),
    ("pageable-staging", "pageable-staging", False),
    ("unpaged-kv", "unpaged-kv", False),
    ("empty-cache-every-step", "empty-cache-every-step", False),
    ("slow-scheduler", "slow-scheduler", False),
    ("eager-attention", "eager-attention", False),
    ("micro-batch-small", "micro-batch-small", False),
    ("fp32", "fp32", False),
)


def run(folder: Path, condition: str | None, is_cured: bool, trace: Path) -> dict[str, Any]:
    """Measure one configuration without a profiler, then record some of its steps."""
    config = EngineConfig(str(folder), max_model_len=1024, max_num_seqs=16, prefix_caching=False)
    if condition is not None:
        config = find_condition(condition).apply(config, is_cured)
    llm = LLM.from_config(config)
    requests = timed_requests(Workload(16, (64, 64), (48, 48)), llm.core.vocabulary.size)
    result = measure(llm, requests).as_json()
    measure(llm, requests, profiled(llm.core.loop, "torch", trace, Window(skip=8, length=12)))
    return result


def main() -> None:
    """Parse, run, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SHAPES, default="tiny")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--traces", type=Path, required=True)
    arguments = parser.parse_args()
    make_checkpoint(SHAPES[arguments.size], arguments.folder)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(arguments.traces, "w") as archive:
        for name, condition, is_cured in RUNS:
            trace = Path(scratch) / f"{name.replace(' ', '-')}.json.gz"
            try:
                results[name] = run(arguments.folder, condition, is_cured, trace)
                archive.add(trace, trace.name)
                line = f"{results[name]['output_tokens_per_s']:.0f} tok/s"
            except Exception as error:  # noqa: BLE001  one that fails must not cost the figures of the others
                results[name] = {"error": f"{type(error).__name__}: {error}"[:300]}
                line = results[name]["error"]
            print(name, line, flush=True)
            gc.collect()
            torch.cuda.empty_cache()
            arguments.out.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
