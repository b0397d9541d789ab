"""`doctor convert`: a native Nsight Systems report to NVIDIA's own SQLite or Parquet layout."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("convert", short_help="Convert a .nsys-rep to NVIDIA's SQLite or Parquet layout.")
@click.argument("report", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="A new file OUT.sqlite, or a new folder OUT.parquet/.",
)
def command(report: Path, output: Path) -> None:
    """Convert REPORT (.nsys-rep, .qdrep) to the layout of NVIDIA's export, without NVIDIA's tools.

    The kind of output is told by its name: .sqlite or .db is an SQLite file, anything that ends in .parquet is a folder
    with one Parquet file a table. Environment, command lines, host and user names are not written.
    """
    from doctor.convert.conversion import convert_report  # noqa: PLC0415 - pyarrow is not loaded for --help

    done = convert_report(report, output)
    for note in done.notes:
        click.echo(f"note: {note}", err=True)
    click.echo(
        f"{output}: {done.num_rows} rows in {done.num_tables} tables" + ("" if done.is_complete else ", incomplete"),
        err=True,
    )
