"""`doctor tune` on recordings of sick engines: which options it finds, and the speed they were measured to bring.

Usage: python -m tests.benchmarks.tune_on_recordings [--out FILE.md]
Needs no GPU: `tests.support.recorded_engine` answers with recordings and measured wins in place of the engine, and
refuses what the engine refuses. `gpu_tune.py` does the same on a device. Prints a table: the speed as given, tuned,
and with the documented cure of the condition, and what was changed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from engine.conditions import find_condition
from engine.config import EngineConfig
from tests.benchmarks.gpu_tune import words
from tests.support.recorded_engine import sample_of, speed_of

CONDITIONS = (
    "no-cuda-graphs",
    "micro-batch-small",
    "sync-every-layer",
    "eager-attention",
    "unpaged-kv",
    "fp32",
    "slow-scheduler",
    "pageable-copies",
    "low-acceptance-draft",
)


def tuned(sick: dict[str, Any]) -> dict[str, Any]:
    """The report of `doctor tune` on a sick command line."""
    command = [sys.executable, "-m", "tests.support.recorded_engine", "bench", "--model", "recorded", *words(sick)]
    doctor = [sys.executable, "-m", "doctor.cli.main", "tune", "--repeat", "1", "--at-least", "medium"]
    done = subprocess.run([*doctor, "--format", "json", "--", *command], capture_output=True, check=True, text=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def row(name: str) -> str:
    """A line of the table."""
    condition = find_condition(name)
    report = tuned(condition.sick)
    cured = speed_of(sample_of(EngineConfig("recorded", **condition.cure)))
    sick, best = (report["steps"][place]["tokens_per_s"]["median"] for place in (0, -1))
    rules = [trial["rule"] for step in report["steps"] for trial in step["trials"] if trial["verdict"] == "kept"]
    return (
        f"| {name} | {sick:,.0f} | {best:,.0f} | {cured:,.0f} | {best / cured:.2f} | {report['runs']} |"
        f" {', '.join(rules)} | {'; '.join(report['changes'])} |"
    )


def main() -> None:
    """Tune every condition and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("conditions", nargs="*", default=CONDITIONS)
    arguments = parser.parse_args()
    lines = [
        "| condition | as given | tuned | cured | tuned / cured | runs | findings | changes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in arguments.conditions:
        lines.append(row(name))
        print(lines[-1], flush=True)
    if arguments.out is not None:
        arguments.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
