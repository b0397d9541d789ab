"""Answers for the engine on a device: its own options and refusals, recordings of real runs, measured speeds.

`python -m tests.support.recorded_engine bench ...` takes every option of `python -m engine bench`, builds the real
configuration, and gives the recording under `samples/` that was made with it. Speeds are put together from the wins
that were measured for each patient (its `README.md`), as a share of the healthy engine's.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from engine.cli.engine_options import engine_options, read_config
from engine.config import EngineConfig
from engine.errors import EngineError
from tests.support.samples import SAMPLES

HEALTHY_TOKENS_PER_S = 15_000.0
HEALTHY, EAGER, STREAMED = "healthy-engine-decode", "engine-eager-decode", "engine-streamed-weights"
CURED_BY: dict[str, str] = {
    EAGER: HEALTHY,
    "engine-eager-attention": EAGER,
    "engine-sync-every-layer": EAGER,
    STREAMED: EAGER,
    "engine-pageable-offload": STREAMED,
    "engine-growing-kv": HEALTHY,
    "engine-small-micro-batches": HEALTHY,
    "engine-fp32-prompts": HEALTHY,
    "engine-slow-scheduler": HEALTHY,
    "engine-poor-draft": HEALTHY,
}
"""What each patient was measured against."""


@click.group()
def engine() -> None:
    """Answer for an engine."""


@engine.command()
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True)
@click.option("--profile", type=click.Choice(("torch",)))
@click.option("--trace", type=click.Path(path_type=Path))
@engine_options
def bench(repeat: int, profile: str | None, trace: Path | None, **options: Any) -> None:
    """Measure."""
    del profile
    try:
        sample = sample_of(read_config(options))
    except EngineError as error:
        sys.stderr.write(f"engine: {error}\n")
        raise SystemExit(error.exit_code) from error
    if trace is not None:
        give(SAMPLES / sample, trace)
    seconds = 768 / speed_of(sample)
    click.echo(json.dumps({"schema": "engine.bench/1", "output_tokens": 768, "seconds": seconds,
                           "output_tokens_per_s": 768 / seconds, "repeats": [seconds] * repeat}))  # fmt: skip


def give(folder: Path, trace: Path) -> None:
    """Put the recording of a sample where a trace is asked for; where only a log was kept, say the log."""
    recordings = [*folder.glob("*.pt.trace.json.gz"), *folder.glob("*.nsys-rep")]
    if recordings:
        shutil.copyfile(recordings[0], trace)
    for log in folder.glob("*.log"):
        sys.stderr.write(log.read_text("utf-8"))


def sample_of(config: EngineConfig) -> str:
    """The sample that was recorded with what is most wrong in a configuration."""
    is_eager = config.cuda_graphs is False or not config.can_record_graphs
    wrong = (
        (config.kv == "concat", "engine-growing-kv"),
        (config.attention == "eager", "engine-eager-attention"),
        (config.weight_offload > 0 and config.weight_copies == "blocking", "engine-pageable-offload"),
        (config.weight_offload > 0, STREAMED),
        (config.dtype == "float32", "engine-fp32-prompts"),
        (config.micro_batch_size is not None, "engine-small-micro-batches"),
        (config.speculate is not None, "engine-poor-draft"),
        (config.bookkeeping == "audit", "engine-slow-scheduler"),
        (config.layer_boundary == "synchronize", "engine-sync-every-layer"),
        (is_eager, EAGER),
    )
    return next((sample for is_wrong, sample in wrong if is_wrong), HEALTHY)


def speed_of(sample: str) -> float:
    """Output tokens a second: the healthy engine's over every win that was measured on the way to it."""
    if sample == HEALTHY:
        return HEALTHY_TOKENS_PER_S
    note = (SAMPLES / sample / "README.md").read_text("utf-8")
    [win] = re.findall(r"without a profiler, ill over cured, .*: ([\d.]+) \(", note)
    return speed_of(CURED_BY[sample]) / float(win)


if __name__ == "__main__":
    engine()
