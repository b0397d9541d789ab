"""`python -m engine simulate`: schedulers side by side on an arrival trace; needs no model and no torch."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import click

from engine.errors import ConfigError
from engine.scheduling.arrivals import PeakLoad, read_arrivals
from engine.scheduling.peak_load import Deployment, PeakLoadRow, measure_arrivals, measure_peak_load

_COLUMNS = ("strategy", "tok/s", "P99 latency", "P99 interactive", "P99 TTFT", "in time", "preempted", "prefix hits")


@click.command()
@click.option(
    "--arrivals",
    type=click.Path(dir_okay=False, path_type=Path),
    help="CSV with arrival_s, prompt_tokens, output_tokens and, optionally, deadline_s; else a peak of load is drawn.",
)
@click.option("--num-requests", type=click.IntRange(min=2), default=2000, show_default=True, help="Of the drawn load.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the drawn load.")
@click.option("--replicas", type=click.IntRange(min=1), default=2, show_default=True, help="Engines behind the queue.")
@click.option("--num-blocks", type=click.IntRange(min=1), help="KV blocks of 16 tokens in each.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array instead.")
def simulate(
    arrivals: Path | None, num_requests: int, seed: int, replicas: int, num_blocks: int | None, as_json: bool
) -> None:
    """Replay arrivals with every scheduling strategy, from static batches to deadlines, forecast and balancer.

    Times come from a cost model of about Llama 2 13 B on an A100. Rates and latencies are those of the peak; of a
    trace from a file, of the whole.
    """
    deployment = Deployment(num_replicas=replicas)
    if num_blocks is not None:
        deployment = replace(deployment, config=replace(deployment.config, num_blocks=num_blocks))
    if arrivals is None:
        rows = measure_peak_load(seed, PeakLoad(num_requests=num_requests), deployment)
    else:
        trace = read_arrivals(arrivals)
        if not trace:
            raise ConfigError(f"{arrivals}: holds no arrival")
        rows = measure_arrivals(trace, deployment)
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=1))
        return
    click.echo(f"| {' | '.join(_COLUMNS)} |")
    click.echo(f"|{'---|' * len(_COLUMNS)}")
    for row in rows:
        click.echo(f"| {' | '.join(_cells(row))} |")


def _cells(row: PeakLoadRow) -> tuple[str, ...]:
    return (
        row.strategy,
        f"{row.output_tokens_per_s:.0f}",
        f"{row.latency_us / 1e6:.1f} s",
        f"{row.interactive_latency_us / 1e6:.1f} s",
        f"{row.interactive_ttft_us / 1e6:.1f} s",
        f"{row.in_time_share:.0%}",
        str(row.preemptions),
        str(row.prefix_hit_tokens),
    )
