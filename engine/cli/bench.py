"""`python -m engine bench`: one engine, one workload, one JSON object."""

from __future__ import annotations

import json
from typing import Any

import click

from engine.cli.engine_options import engine_options, read_config
from engine.cli.profile_options import profile_options, read_profile
from engine.cli.workload_options import WorkloadChoice, workload_options
from engine.logs import log_to_stderr


@click.command()
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True, help="Runs; the median is printed.")
@workload_options
@profile_options
@engine_options
def bench(repeat: int, **options: Any) -> None:
    """Measure throughput, latency and memory, and print what the engine counted.

    Load and warm-up are not part of the time. With --repeat the object is that of the run with the median time, and
    "repeats" lists the seconds of all. With --profile the last run is captured, and slower for it.
    """
    profile = read_profile(options)
    workload = WorkloadChoice(options)
    config = read_config(options)
    log_to_stderr()
    from engine.benchmark import measure  # noqa: PLC0415  torch is not needed to read options
    from engine.llm import LLM  # noqa: PLC0415

    llm = LLM.from_config(config)
    requests = workload.requests(llm.core.vocabulary.size)
    runs = [measure(llm, requests) for _ in range(repeat - 1)]
    runs.append(measure(llm, requests, None if profile is None else profile.capture(llm.core.loop)))
    median = sorted(runs, key=lambda run: run.seconds)[len(runs) // 2]
    click.echo(json.dumps({**median.as_json(), "repeats": [run.seconds for run in runs]}))
