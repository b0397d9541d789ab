"""`doctor rules`: the catalogue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from doctor.cli.output import write

if TYPE_CHECKING:
    from doctor.rule import Rule


@click.command("rules", short_help="List the problems that doctor knows.")
@click.option("--rules", type=click.Path(path_type=Path), metavar="DIR", help="With the rules in this folder.")
@click.option("--format", "output_format", type=click.Choice(("terminal", "json")), default="terminal", help="Kind.")
def command(rules: Path | None, output_format: str) -> None:
    """List the problems that doctor knows, in the order in which they are looked at."""
    from doctor.cli.screen import presentation_for
    from doctor.diagnosis.catalogue import load_catalogue
    from doctor.reports.manual import catalogue_page

    catalogue = load_catalogue(rules)
    if output_format == "json":
        write(json.dumps([_entry(rule) for rule in catalogue], indent=1) + "\n", None)
    else:
        write(catalogue_page(catalogue, presentation_for(None, None)), None)


def _entry(rule: Rule) -> dict[str, object]:
    about = rule.about
    return {"rule": about.id, "title": about.title, "stage": about.stage.value, "needs": list(rule.needs)}
