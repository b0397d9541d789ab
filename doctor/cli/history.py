"""`doctor history`: diagnoses over time."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from doctor.cli.output import check_writable, write
from doctor.errors import UsageError

SCHEMA = "doctor.history/1"
DEFAULT_ADDRESS = "doctor-history.duckdb"


@click.command("history", short_help="List the diagnoses that --history kept, and plot their trends.")
@click.argument("named", required=False, metavar="[URL]")
@click.option("--history", "address", metavar="URL", help="The same, named as `doctor diagnose` names it.")
@click.option("--most", type=click.IntRange(1, 10_000), default=20, show_default=True, help="The newest so many.")
@click.option("--evidence", metavar="NAME", help="Only diagnoses of a file with this base name.")
@click.option("--format", "output_format", type=click.Choice(("terminal", "json")), default="terminal", help="Kind.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write here, not to the screen.")
def command(
    named: str | None, address: str | None, most: int, evidence: str | None, output_format: str, output: Path | None
) -> None:
    """List what `doctor diagnose ... --history URL` kept, oldest first, and plot the trend of each figure.

    URL is a DuckDB file, doctor-history.duckdb where none is named, or postgresql://USER@HOST/DATABASE.

    Keep the password of a database out of the URL: PGPASSWORD and ~/.pgpass are read, as by every PostgreSQL program.
    """
    from doctor.cli.screen import presentation_for
    from doctor.history.store import History
    from doctor.reports.history_page import history_page

    if output is not None:
        check_writable(output)
    if named is not None and address is not None:
        raise UsageError("the history is named twice: give URL or --history URL")
    entries = History(named or address or DEFAULT_ADDRESS).entries(most, evidence)
    if output_format == "json":
        document = {"schema": SCHEMA, "diagnoses": [dataclasses.asdict(entry) for entry in entries]}
        write(json.dumps(document, indent=1) + "\n", output)
    else:
        write(history_page(entries, presentation_for(output, None)), output)
