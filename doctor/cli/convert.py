"""`doctor convert`: a native Nsight Systems report to NVIDIA's own SQLite or Parquet layout."""

from __future__ import annotations

from pathlib import Path

import click

from doctor.cli.exit_codes import ExitCode
from doctor.cli.output import say
from doctor.cli.progress import ProgressBars
from doctor.errors import EvidenceError


@click.command("convert", short_help="Write a .nsys-rep as NVIDIA's SQLite or Parquet export.")
@click.argument("report", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="A new file OUT.sqlite, or a new folder OUT.parquet/.",
)
@click.option("--no-progress", is_flag=True, help="No progress bars.")
@click.option("--strict", is_flag=True, help="Exit with 3 where part of the report could not be read.")
def command(report: Path, output: Path, no_progress: bool, strict: bool) -> int:
    """Write REPORT in the layout of NVIDIA's export, without NVIDIA's tools.

    REPORT is a .nsys-rep or .qdrep, also packed as .gz or .zst.

    The ending of OUT decides: .sqlite, .sqlite3 and .db make an SQLite file, .parquet a folder with one file a table.
    The environment, command lines, host and user names in the report are not written.
    """
    from doctor.convert.conversion import convert_report
    from doctor.readers.evidence_file import open_evidence

    with ProgressBars(is_wanted=not no_progress) as bars, open_evidence(report).unpacked() as plain:
        try:
            done = convert_report(plain, output, bars.file(report.name))
        except EvidenceError as error:  # the user never saw the name of the unpacked copy
            raise type(error)(error.message.replace(str(plain), str(report))) from error
    for note in done.notes:
        say(f"{report}: {note}")
    incomplete = "" if done.is_complete else "; the report is incomplete"
    say(f"{output}: {done.num_rows:,} rows in {done.num_tables} tables{incomplete}")
    return ExitCode.INCOMPLETE if strict and not done.is_complete else ExitCode.DONE
