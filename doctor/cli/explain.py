"""`doctor explain`: the manual page of one rule."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

import click

from doctor.cli.output import write
from doctor.errors import UsageError


@click.command(
    "explain", short_help="Explain one problem: how it is measured, how it is fooled, how to fix and verify it."
)
@click.argument("rule", metavar="RULE")
@click.option("--rules", type=click.Path(path_type=Path), metavar="DIR", help="With the rules in this folder.")
def command(rule: str, rules: Path | None) -> None:
    """Explain RULE: what it means, how it is measured and fooled, how to fix it in each framework, how to verify."""
    from doctor.cli.screen import presentation_for
    from doctor.diagnosis.catalogue import load_catalogue
    from doctor.reports.manual import rule_page

    catalogue = {known.about.id: known for known in load_catalogue(rules)}
    if rule not in catalogue:
        close = get_close_matches(rule, catalogue, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UsageError(f"there is no rule '{rule}': {hint}`doctor rules` lists them")
    write(rule_page(catalogue[rule], presentation_for(None, None)), None)
