"""`python -m engine conditions`: what the engine can be made to suffer from."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from engine.cli.engine_options import as_typed
from engine.conditions import CONDITIONS


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array instead.")
def conditions(as_json: bool) -> None:
    """List the documented problems, what makes them and what cures them."""
    if as_json:
        click.echo(json.dumps([asdict(condition) for condition in CONDITIONS.values()], indent=1))
        return
    for condition in CONDITIONS.values():
        needs = f" (needs {condition.needs})" if condition.needs else ""
        click.echo(f"{condition.name}: {condition.problem}{needs}")
        click.echo(f"    sick: {_options(condition.sick)}")
        click.echo(f"    cure: {_options(condition.cure)}")
        click.echo(f"    proof: {condition.proof}")


def _options(options: dict[str, object]) -> str:
    return " ".join(as_typed(name, value) for name, value in options.items())
