"""`doctor compare`: what changed between two runs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from doctor.cli.exit_codes import ExitCode
from doctor.cli.options import Percentage
from doctor.cli.output import say, write
from doctor.errors import UsageError

if TYPE_CHECKING:
    from doctor.comparison.outcome import Comparison
    from doctor.comparison.sides import Side

SCHEMA = "doctor.comparison/1"


@click.command("compare", short_help="Show what changed between two runs.")
@click.argument("before")
@click.argument("after")
@click.option("--format", "output_format", type=click.Choice(("terminal", "json")), default="terminal", help="Kind.")
@click.option(
    "--fail-on-regression",
    "regression",
    type=Percentage(),
    metavar="PERCENT",
    help="Exit with 1 where steps take longer by more than this, beyond chance: 5%.",
)
def command(before: str, after: str, output_format: str, regression: float | None) -> int:
    """Show what changed from BEFORE to AFTER: two recordings, or two results of `python -m engine bench`."""
    from doctor.cli.screen import presentation_for
    from doctor.comparison.changes import compare
    from doctor.reports.comparison_page import comparison_page

    comparison = compare(_side(before), _side(after))
    if output_format == "json":
        write(json.dumps({"schema": SCHEMA, **dataclasses.asdict(comparison)}, indent=1) + "\n", None)
    else:
        write(comparison_page(comparison, presentation_for(None, None)), None)
    return ExitCode.DONE if regression is None else _exit_code(comparison, regression)


def _exit_code(comparison: Comparison, regression: float) -> ExitCode:
    if not comparison.speeds:
        raise UsageError("the speed of these runs cannot be compared: they have no kind of step in common")
    from doctor.reports.comparison_page import recorders_named

    reasons = [*comparison.unlike, *comparison.doubts]
    if reasons := [*reasons, recorders_named(comparison)] if comparison.recorders else reasons:
        say(f"the bar is put on runs that may not be alike: {'; '.join(reasons)}")
    slower = comparison.regressions(regression)
    for speed in slower:
        say(f"{speed.subject}: {1 / speed.speedup - 1:.1%} slower, over the bar of {regression:.1%}")
    return ExitCode.BAR_REACHED if slower else ExitCode.DONE


def _side(path: str) -> Side:
    from doctor.comparison.sides import read_bench, side_of_case

    bench = read_bench(Path(path))
    if bench is not None:
        return bench
    from doctor import api
    from doctor.diagnosis.catalogue import load_catalogue
    from doctor.diagnosis.options import DiagnosisOptions
    from doctor.diagnosis.runner import diagnose_case
    from doctor.reports.runs import other_runs_line_as_typed
    from doctor.reports.wording import incomplete_lines

    with contextlib.closing(api.load(path)) as case:
        rules = load_catalogue(None)
        diagnosis = diagnose_case(case, rules, DiagnosisOptions())
        for line in incomplete_lines(diagnosis):
            say(f"{path} is incomplete: {line}")
        if line := other_runs_line_as_typed(diagnosis):
            say(f"{path}: {line}")
        return side_of_case(case, diagnosis, rules)
