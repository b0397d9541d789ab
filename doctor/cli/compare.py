"""`doctor compare`: what changed between two runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from doctor.cli.output import write

if TYPE_CHECKING:
    from doctor.comparison.sides import Side

SCHEMA = "doctor.comparison/1"


@click.command("compare", short_help="Show what changed between two runs.")
@click.argument("before")
@click.argument("after")
@click.option("--format", "output_format", type=click.Choice(("terminal", "json")), default="terminal", help="Kind.")
def command(before: str, after: str, output_format: str) -> None:
    """Show what changed from BEFORE to AFTER: two recordings, or two results of `python -m engine bench`."""
    from doctor.cli.screen import presentation_for
    from doctor.comparison.changes import compare
    from doctor.reports.comparison_page import comparison_page

    comparison = compare(_side(before), _side(after))
    if output_format == "json":
        write(json.dumps({"schema": SCHEMA, **dataclasses.asdict(comparison)}, indent=1) + "\n", None)
    else:
        write(comparison_page(comparison, presentation_for(None, None)), None)


def _side(path: str) -> Side:
    from doctor.comparison.sides import read_bench, side_of_diagnosis

    bench = read_bench(Path(path))
    if bench is not None:
        return bench
    from doctor import api

    return side_of_diagnosis(api.diagnose(path))
