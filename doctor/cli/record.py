"""`doctor record -- COMMAND`: run a command, come back with a case folder."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from doctor.cli.exit_codes import ExitCode
from doctor.cli.options import Seconds
from doctor.cli.output import say
from doctor.errors import ToolMissingError, UsageError

if TYPE_CHECKING:
    from doctor.nsight import Nsys
    from doctor.recording.case import Recorded
    from doctor.recording.plan import Plan


@dataclass(frozen=True)
class _Request:
    """The options as parsed; a field per option."""

    command: tuple[str, ...]
    output: Path | None
    profiler: str
    seconds: float
    delay: float | None
    is_chosen_by_program: bool
    skip_steps: int
    steps: int
    has_graph_nodes: bool
    attach: int | None
    timeout: float | None
    most_gib: float


@click.command("record", short_help="Run a command and record it: a folder that diagnose reads.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FOLDER", help="Case folder; new or empty.")
@click.option(
    "--profiler",
    type=click.Choice(("auto", "nsys", "torch")),
    default="auto",
    help="Who records; auto takes nsys where it is complete, else the profiler of torch.",
)
@click.option("--seconds", type=Seconds(), default=30.0, show_default=True, help="Longest window.")
@click.option("--delay", type=Seconds(), help="nsys: time before the window.")
@click.option(
    "--cuda-profiler-api",
    "is_chosen_by_program",
    is_flag=True,
    help="nsys: from cudaProfilerStart to cudaProfilerStop.",
)
@click.option(
    "--skip-steps", type=click.IntRange(0), default=8, show_default=True, help="torch: steps before the window."
)
@click.option("--steps", type=click.IntRange(1), default=16, show_default=True, help="torch: steps in the window.")
@click.option("--graph-nodes", "has_graph_nodes", is_flag=True, help="nsys: a row for every kernel of CUDA graphs.")
@click.option("--attach", type=click.IntRange(1), metavar="PID", help="nsys: record a process that runs already.")
@click.option("--timeout", type=Seconds(), help="Tell the command to end after so many seconds.")
@click.option(
    "--most-gib", type=click.FloatRange(0, min_open=True), default=4.0, show_default=True, help="Largest size."
)
def command(**options: Any) -> int:
    """Run COMMAND under a profiler, with the vitals of the devices sampled beside it, and keep what diagnose reads.

    The exit code is that of COMMAND, and signals go on to it; 2 where nothing could be recorded. Nothing private is
    kept: no environment, command lines, host and user names.
    """
    return _run(_Request(**options))


def _run(request: _Request) -> int:
    if bool(request.command) == (request.attach is not None):
        raise UsageError("say what to record: `doctor record -- COMMAND...`, or --attach PID")
    plan = _plan(request)
    recorded = _recorded(request, plan)
    for note in recorded.notes:
        say(note)
    if not recorded.has_recording:
        if recorded.evidence:
            say(f"only the vitals of the devices were kept; they can be diagnosed: doctor diagnose {plan.folder}")
        return recorded.ending.exit_code or ExitCode.UNUSABLE
    say(f"recorded {', '.join(path.name for path in recorded.evidence)}; now: doctor diagnose {plan.folder}")
    return recorded.ending.exit_code


def _plan(request: _Request) -> Plan:
    from doctor.recording.plan import Limits, Plan, Window

    window = Window(
        seconds=request.seconds,
        delay_seconds=request.delay or 0.0,
        is_chosen_by_program=request.is_chosen_by_program,
        skip_steps=request.skip_steps,
        steps=request.steps,
    )
    folder = request.output or Path(time.strftime("recording-%Y%m%d-%H%M%S"))
    return Plan(folder, window, Limits(request.timeout, int(request.most_gib * 2**30)), request.has_graph_nodes)


def _recorded(request: _Request, plan: Plan) -> Recorded:
    from doctor.recording.case import record_with_nsys, record_with_torch
    from doctor.redact.redaction import redact

    nsys = _nsys(request)
    if nsys is None:
        return record_with_torch(plan, request.command, redact)
    return record_with_nsys(nsys, plan, request.command or request.attach or 0, redact)


def _nsys(request: _Request) -> Nsys | None:
    """The nsys to record with, None where the profiler of torch records."""
    from doctor.nsight import installed

    is_wanted = request.profiler == "nsys" or request.attach is not None
    if request.profiler == "torch":
        if is_wanted:
            raise UsageError("the profiler of torch cannot attach to a process that runs already")
        return None
    nsys = installed()
    if nsys is None or nsys.missing:
        reason = (
            "nsys is not installed here (looked in PATH, the folders of Nsight Systems and inside Nsight Compute)"
            if nsys is None
            else f"{nsys.program} is incomplete: {'; '.join(nsys.missing)}"
        )
        if is_wanted:
            raise ToolMissingError(f"{reason}; --profiler torch records Python commands without it")
        say(f"{reason}; recording with the profiler of torch")
        return None
    return nsys
