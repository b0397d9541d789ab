"""Plays the part of an engine on a device, as a program: options in, `engine.bench/1` and a Kineto trace out.

The clock of the trace builder says how long a run takes, so that what a setting wins is exact and the same everywhere.
Run as `python -m tests.support.played_engine bench ...`; there is no model in it and no device.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from tests.support.trace_builder import ADD, FLASH, GEMM, HEAD_GEMM, LAYER, Program

STEPS, BATCH, LAYERS = 8, 8, 8
MIB = 2**20
FUSED, IN_PIECES = (FLASH,), (GEMM, ADD, ADD, ADD, GEMM)
"""Attention as one kernel, and as several."""
CONDITIONS: dict[str, dict[str, Any]] = {
    "no-cuda-graphs": {"cuda_graphs": False},
    "micro-batch-small": {"micro_batch_size": 1},
}
"""Options that a condition fixes."""


@click.group()
def engine() -> None:
    """Play an engine."""


@engine.command()
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True)
@click.option("--profile", type=click.Choice(("torch",)))
@click.option("--trace", type=click.Path(path_type=Path))
@click.option("--cuda-graphs/--no-cuda-graphs", default=None, help="Replay recorded steps; none does so where it can.")
@click.option("--layer-boundary", type=click.Choice(("free", "synchronize")), default="free", show_default=True)
@click.option("--attention", type=click.Choice(("auto", "eager")), default="auto", show_default=True)
@click.option("--kv", type=click.Choice(("paged", "concat")), default="paged", show_default=True)
@click.option("--staging", type=click.Choice(("pinned", "pageable")), default="pinned", show_default=True)
@click.option("--moe-routing", type=click.Choice(("grouped", "loop")), default="grouped", show_default=True)
@click.option("--weight-offload", type=float, default=0.0, show_default=True)
@click.option("--weight-copies", type=click.Choice(("prefetch", "blocking")), default="prefetch", show_default=True)
@click.option("--bookkeeping", type=click.Choice(("lean", "audit")), default="lean", show_default=True)
@click.option("--micro-batch-size", type=click.IntRange(1))
@click.option("--memory", type=float, default=1.0, help="Share of the weights that fit on the device.")
@click.option("--unsteady", type=float, default=0.0, help="Share by which every other run is slower.")
@click.option("--thinking", type=float, default=20.0, help="Microseconds between steps that no option takes away.")
@click.option("--overlap/--no-overlap", default=None)
@click.option("--condition", type=click.Choice(("no-cuda-graphs", "micro-batch-small")))
@click.option("--speechless", is_flag=True, help="Print something else.")
@click.option("--slow-start", is_flag=True, help="Never come to an end.")
def bench(repeat: int, trace: Path | None, **options: Any) -> None:
    """Measure."""
    while options["slow_start"]:
        sys.stdin.read()
        time.sleep(1)
    options.update(CONDITIONS.get(options["condition"], {}))
    refuse(options)
    program = played(options)
    if trace is not None:
        trace.write_bytes(gzip.compress(json.dumps(program.document()).encode()))
    seconds = (program.now_us - Program().now_us) / 1e6
    repeats = [seconds * (1 + options["unsteady"] * (place % 2)) for place in range(repeat)]
    if options["speechless"]:
        click.echo("done")
        return
    click.echo(json.dumps({"schema": "engine.bench/1", "output_tokens": STEPS * BATCH, "seconds": seconds,
                           "output_tokens_per_s": STEPS * BATCH / seconds, "repeats": repeats}))  # fmt: skip


@engine.command()
@click.option("--json", "as_json", is_flag=True)
def conditions(as_json: bool) -> None:
    """List conditions."""
    click.echo(json.dumps([{"name": name, "sick": sick, "cure": {}} for name, sick in CONDITIONS.items()]))


def refuse(options: dict[str, Any]) -> None:
    """End with a line and exit code 2 where options do not go together, as the engine does."""
    if options["cuda_graphs"] and not can_record(options):
        sys.stderr.write("engine: cuda_graphs needs attention=auto, kv=paged, weights on the device and no waits\n")
        raise SystemExit(2)
    if 1.0 - options["weight_offload"] > options["memory"]:
        sys.stderr.write("engine: out of memory while loading /home/somebody/models/large\n")
        raise SystemExit(2)


def can_record(options: dict[str, Any]) -> bool:
    """Whether a step may be a graph."""
    needed = {"layer_boundary": "free", "attention": "auto", "kv": "paged", "weight_offload": 0.0}
    return all(options[name] == value for name, value in needed.items())


def played(options: dict[str, Any]) -> Program:
    """All steps of a run."""
    program = Program()
    for _ in range(STEPS):
        with program.annotation("step"):
            step(program, options)
    return program


def step(program: Program, options: dict[str, Any]) -> None:
    """One decode step."""
    program.silence(options["thinking"] + (2_000 if options["bookkeeping"] == "audit" else 0))
    program.copy("HtoD pinned", 64)
    is_graph = can_record(options) and options["cuda_graphs"] is not False
    for _ in range(BATCH // (options["micro_batch_size"] or BATCH)):
        if is_graph:
            program.graph([(kernel, 6.0) for kernel in (*LAYER * LAYERS, HEAD_GEMM)])
        else:
            eager_pass(program, options)
    program.copy("DtoH pinned", 64)
    program.wait()


def eager_pass(program: Program, options: dict[str, Any]) -> None:
    """A forward pass, kernel by kernel."""
    attention = FUSED if options["attention"] == "auto" else IN_PIECES
    for layer in range(LAYERS):
        if layer < options["weight_offload"] * LAYERS:
            memory, rate = ("pageable", 6) if options["weight_copies"] == "blocking" else ("pinned", 50)
            program.copy(f"HtoD {memory}", 8 * MIB, gigabytes_per_s=rate, stream=7 if memory == "pageable" else 13)
        for kernel in (ADD, GEMM, ADD, ADD, *attention, GEMM, ADD, ADD):
            program.silence(12)
            program.launch(kernel, 6.0)
        if options["layer_boundary"] == "synchronize":
            program.wait()
    program.launch(HEAD_GEMM, 12.0)


if __name__ == "__main__":
    engine()
