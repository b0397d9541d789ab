"""`python -m engine strategies`: the decoding strategies side by side, on this machine and this model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from engine.cli.engine_options import engine_options, read_config
from engine.cli.workload_options import WorkloadChoice, workload_options
from engine.config import EngineConfig
from engine.errors import ConfigError

if TYPE_CHECKING:
    from engine.benchmark import Measurement

_COLUMNS = (
    "strategy",
    "memory",
    "throughput",
    "TTFT p50",
    "ITL p50",
    "ITL p99",
    "prefix hits",
    "block use",
    "accepted",
)


@click.command()
@click.option("--draft", metavar="DIR", help="Checkpoint of a draft model; adds speculation by it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with all measurements instead.")
@workload_options
@engine_options
def strategies(draft: str | None, as_json: bool, **options: Any) -> None:
    """Measure plain, static, dynamic, continuous and speculative decoding one after the other.

    Memory is weights and KV blocks at their peak. Block use is the share of the slots of KV blocks in use that hold a
    token. Prefix hits are prompt tokens found in the prefix cache.
    """
    workload = WorkloadChoice(options)
    config = read_config(options)
    if config.speculate is not None:
        raise ConfigError("strategies chooses speculation itself: leave --speculate out, and name a draft with --draft")
    rows = {name: _measure(one, workload) for name, one in _strategies(config, draft).items()}
    if as_json:
        click.echo(json.dumps({name: row.as_json() for name, row in rows.items()}))
        return
    click.echo(f"| {' | '.join(_COLUMNS)} |")
    click.echo(f"|{'---|' * len(_COLUMNS)}")
    for name, row in rows.items():
        click.echo(f"| {' | '.join((name, *_cells(row)))} |")


def _strategies(config: EngineConfig, draft: str | None) -> dict[str, EngineConfig]:
    overlap: dict[str, Any] = {"overlap": False}
    chosen = {
        "plain autoregressive": config.with_options(batching="single"),
        "static batching": config.with_options(batching="static"),
        "dynamic batching": config.with_options(batching="dynamic"),
        "continuous batching": config.with_options(batching="continuous"),
        "speculative (n-gram)": config.with_options(batching="continuous", speculate="ngram", **overlap),
    }
    if draft is not None:
        options = {"batching": "continuous", "speculate": f"draft:{draft}", **overlap}
        chosen["speculative (draft model)"] = config.with_options(**options)
    return chosen


def _measure(config: EngineConfig, workload: WorkloadChoice) -> Measurement:
    from engine.benchmark import measure  # noqa: PLC0415  torch is not needed to read options
    from engine.llm import LLM  # noqa: PLC0415

    llm = LLM.from_config(config)
    return measure(llm, workload.requests(llm.core.vocabulary.size))


def _cells(row: Measurement) -> tuple[str, ...]:
    numbers = row.as_json()
    ratios = numbers["derived"]
    return (
        f"{(row.weight_bytes + row.kv_peak_bytes) / 2**20:.1f} MiB",
        f"{numbers['output_tokens_per_s']:.1f} tok/s",
        _milliseconds(numbers["ttft_s"]["p50"]),
        _milliseconds(numbers["itl_s"]["p50"]),
        _milliseconds(numbers["itl_s"]["p99"]),
        _percent(ratios["prefix_hit_share"]),
        _percent(ratios["kv_utilisation"]),
        _percent(ratios["acceptance"]),
    )


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.1f} ms"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
