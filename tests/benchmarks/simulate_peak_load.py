"""What the adaptive scheduler is worth at peak load against first come, first served, simulated for several seeds.

Usage: python -m tests.benchmarks.simulate_peak_load [--seeds 0 1 2] [--requests 2000] [--out FILE]
Two loads on two replicas of about Llama 2 13 B: people who chat beside long batch jobs, and long answers only. Every
strategy serves the same arrivals; the ratios compare the adaptive scheduler (last row) with each of the others.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from engine.scheduling.arrivals import PeakLoad
from engine.scheduling.peak_load import Deployment, PeakLoadRow, measure_peak_load


def loads(num_requests: int) -> dict[str, PeakLoad]:
    """Traffic by name."""
    return {
        "chat beside batch jobs": PeakLoad(num_requests=num_requests),
        "long answers": PeakLoad(
            num_requests=3 * num_requests // 10,
            rate_per_s=1.2,
            batch_share=0.0,
            prefix_tokens=0,
            interactive_prompt=(30, 300),
            interactive_output=(300, 3000),
            interactive_limit=4096,
            slack_s=10.0,
            slack_per_token_s=0.12,
        ),
    }


def main() -> None:
    """Print the rows of every seed, then the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for name, load in loads(options.requests).items():
        print(f"{name}: {load.num_requests} requests, {Deployment().num_replicas} replicas")
        runs = [show_rows(seed, measure_peak_load(seed, load)) for seed in options.seeds]
        for line in ratios(runs):
            print(line)
        results[name] = {seed: [asdict(row) for row in run] for seed, run in zip(options.seeds, runs, strict=True)}
    if options.out is not None:
        options.out.write_text(json.dumps({"schema": "engine.peak_load/1", "loads": results}, indent=1) + "\n")


def show_rows(seed: int, rows: tuple[PeakLoadRow, ...]) -> tuple[PeakLoadRow, ...]:
    """Print one line per strategy."""
    print(f"  seed {seed:<30} tok/s in peak  overall  P99 latency: interactive      all  P99 TTFT  in time  preempted")
    for row in rows:
        print(
            f"  {row.strategy:<35} {row.output_tokens_per_s:13.0f} {row.overall_tokens_per_s:8.0f}"
            f" {row.interactive_latency_us / 1e6:24.1f} s {row.latency_us / 1e6:6.1f} s"
            f" {row.interactive_ttft_us / 1e6:7.1f} s {row.in_time_share:8.0%} {row.preemptions:10}",
            flush=True,
        )
    return rows


def ratios(runs: list[tuple[PeakLoadRow, ...]]) -> Iterator[str]:
    """Median, lowest and highest ratio over the seeds, of the last strategy to each other one."""
    for index, name in enumerate(row.strategy for row in runs[0][:-1]):
        pairs = [(run[-1], run[index]) for run in runs]
        yield (
            f"  against {name:<27}"
            f" throughput in the peak {spread([a.output_tokens_per_s / b.output_tokens_per_s for a, b in pairs])},"
            f" overall {spread([a.overall_tokens_per_s / b.overall_tokens_per_s for a, b in pairs])},"
            f" interactive P99 {spread([a.interactive_latency_us / b.interactive_latency_us for a, b in pairs])},"
            f" P99 of all {spread([a.latency_us / b.latency_us for a, b in pairs])}"
        )


def spread(values: list[float]) -> str:
    """Median and range."""
    return f"x{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
