"""Sick command lines of the engine, tuned by `doctor tune`, against the speed of the documented cure. Needs a GPU.

Usage: python -m tests.benchmarks.gpu_tune --size 0.85B --folder /tmp/m0.85B --out FOLDER
Each condition is written as plain options on the command line: `doctor tune` is not told which one it is. Conditions
whose report lies in FOLDER are skipped, so a run that was cut off goes on where it stopped. FOLDER gets NAME.json and
NAME.md for each, and table.md with the speeds sick, tuned and cured (output tokens a second, median).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from engine.conditions import find_condition
from tests.benchmarks.gpu_race import SHAPES, make_checkpoint

CONDITIONS = (
    "no-cuda-graphs",
    "micro-batch-small",
    "sync-every-layer",
    "fp32",
    "slow-scheduler",
    "eager-attention",
    "unpaged-kv",
    "pageable-copies",
    "empty-cache-every-step",
    "pageable-staging",
    "single-request",
    "low-acceptance-draft",
)
WORKLOAD = {
    "max_model_len": 1024,
    "max_num_seqs": 16,
    "prefix_caching": False,
    "num_requests": 16,
    "prompt_tokens": (64, 64),
    "output_tokens": (48, 48),
}


def command(folder: Path, options: dict[str, Any]) -> list[str]:
    """The command line of the benchmark with these options of the engine."""
    return [sys.executable, "-m", "engine", "bench", "--model", str(folder), *words(WORKLOAD | options)]


def words(options: dict[str, Any]) -> list[str]:
    """Options of the engine as they are typed; None is left to its default."""
    typed: list[str] = []
    for name, value in options.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            typed.append(f"--{option}" if value else f"--no-{option}")
        elif isinstance(value, tuple):
            typed += [f"--{option}", *map(str, value)]
        elif value is not None:
            typed += [f"--{option}", str(value)]
    return typed


def cured_speed(folder: Path, cure: dict[str, Any], known: dict[str, float], repeats: int) -> float:
    """Median output tokens a second with the cure; conditions cured by the same command share one measurement."""
    line = command(folder, cure)
    key = " ".join(words(cure))
    if key not in known:
        done = subprocess.run([*line, "--repeat", str(repeats)], capture_output=True, check=True, text=True)
        result = json.loads(done.stdout.splitlines()[-1])
        known[key] = result["output_tokens"] / statistics.median(result["repeats"])
    return known[key]


def tuned(folder: Path, sick: dict[str, Any], repeats: int) -> dict[str, Any]:
    """What `doctor tune` makes of a sick command line: its report as JSON, and as Markdown under `page`."""
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "tune"
        options = ["--repeat", str(repeats), "--at-least", "medium", "-o", str(target)]
        doctor = [sys.executable, "-m", "doctor.cli.main", "tune", *options, "--"]
        subprocess.run([*doctor, *command(folder, sick)], stdout=subprocess.DEVNULL, check=True)
        report: dict[str, Any] = json.loads((target / "tuning.json").read_text("utf-8"))
        return {**report, "page": (target / "tuning.md").read_text("utf-8")}


def table(out: Path) -> str:
    """The conditions done so far, as Markdown."""
    lines = [
        "| condition | sick | tuned | cured | tuned / cured | runs | changes |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in CONDITIONS:
        path = out / f"{name}.json"
        if path.exists():
            entry = json.loads(path.read_text("utf-8"))
            sick, best = (entry["steps"][place]["tokens_per_s"]["median"] for place in (0, -1))
            lines.append(
                f"| {name} | {sick:,.0f} | {best:,.0f} | {entry['cured_tokens_per_s']:,.0f} |"
                f" {best / entry['cured_tokens_per_s']:.2f} | {entry['runs']} | {'; '.join(entry['changes'])} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Parse, run, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SHAPES, default="tiny")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1e9, help="No condition is begun after these.")
    parser.add_argument("conditions", nargs="*", default=CONDITIONS)
    arguments = parser.parse_args()
    began = time.monotonic()
    make_checkpoint(SHAPES[arguments.size], arguments.folder)
    arguments.out.mkdir(parents=True, exist_ok=True)
    cured = arguments.out / "cured.json"
    known: dict[str, float] = json.loads(cured.read_text("utf-8")) if cured.exists() else {}
    for name in arguments.conditions:
        path = arguments.out / f"{name}.json"
        if path.exists() or time.monotonic() - began > arguments.seconds:
            continue
        condition = find_condition(name)
        try:
            report = tuned(arguments.folder, condition.sick, arguments.repeat)
            report["cured_tokens_per_s"] = cured_speed(arguments.folder, condition.cure, known, arguments.repeat)
        except (subprocess.CalledProcessError, OSError, ValueError) as error:
            print(f"{name}: {error}"[:300], flush=True)
            continue
        cured.write_text(json.dumps(known, indent=1), encoding="utf-8")
        path.with_suffix(".md").write_text(report.pop("page"), encoding="utf-8")
        path.write_text(json.dumps(report, indent=1), encoding="utf-8")
        (arguments.out / "table.md").write_text(table(arguments.out), encoding="utf-8")
        print(f"{name} after {time.monotonic() - began:.0f} s: {', '.join(report['changes'])}", flush=True)
    print(table(arguments.out))


if __name__ == "__main__":
    main()
