"""`doctor redact`: a copy of the evidence that can be given away."""

from __future__ import annotations

from pathlib import Path

import click

from doctor.cli.output import say


@click.command("redact", short_help="Copy evidence without environment, command lines, hosts and users.")
@click.argument("evidence", metavar="IN", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="A new file.")
def command(evidence: Path, output: Path) -> None:
    """Copy IN (.nsys-rep, SQLite export, PyTorch trace; plain, .gz or .zst) without anything private.

    Gone are the environment, command lines, process lists, host and user names, what the programs printed, and the
    folders of paths. Times, structure, kernel names and NVTX texts stay: look through those yourself if you named
    something private in them.
    """
    from doctor.redact.redaction import redact

    done = redact(evidence, output)
    cut = "" if done.is_whole else "; the trace is cut: it ends within its list, and so does the copy"
    say(f"{output}: {done.kind} without private texts; names of kernels and NVTX ranges are as they were{cut}")
