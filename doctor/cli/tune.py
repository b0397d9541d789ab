"""`doctor tune`: run, diagnose, apply what is suggested, run again, keep what won."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from doctor.cli.options import Seconds, SeverityName
from doctor.cli.output import say, write
from doctor.errors import UsageError
from doctor.rule import Severity

_FORMATS = ("terminal", "json", "markdown")


@dataclass(frozen=True)
class _Request:
    """The options as parsed; a field per option."""

    repeats: int
    least_win: float
    at_least: Severity
    most_runs: int
    timeout_s: float
    rules: Path | None
    output_format: str
    folder: Path | None


@click.command(
    "tune",
    short_help="Run a benchmark, apply what its diagnosis suggests, keep what wins.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("command_words", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- COMMAND...")
@click.option("--repeat", "repeats", type=click.IntRange(1), default=3, show_default=True, help="Runs in each start.")
@click.option(
    "--least-win", type=click.FloatRange(0), default=0.02, show_default=True, help="Share of more speed worth keeping."
)
@click.option("--at-least", type=SeverityName(), default="low", show_default=True, help="Findings below are left.")
@click.option("--most-runs", type=click.IntRange(1), default=20, show_default=True, help="Starts of the program.")
@click.option("--timeout", "timeout_s", type=Seconds(), default=900.0, show_default=True, help="Of one start, seconds.")
@click.option("--rules", type=click.Path(path_type=Path), metavar="DIR", help="Run the rules in this folder too.")
@click.option("--format", "output_format", type=click.Choice(_FORMATS), default="terminal", help="Kind of output.")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Keep tuning.md, tuning.json and the recordings in this new folder.",
)
def command(command_words: tuple[str, ...], **options: Any) -> None:
    """Run COMMAND, diagnose it, apply the options that the findings suggest, and keep those that make it faster.

    COMMAND is `python -m engine bench` with its options, or a program that prints the same JSON and records with the
    same options. Faster is more output tokens a second, in the median, beyond the spread of the runs.
    """
    from doctor.cli.screen import presentation_for
    from doctor.reports.tuning_page import render_tuning
    from doctor.tuning.search import Plan, tune

    request = _Request(**options)
    plan = Plan(
        request.repeats, request.least_win, request.at_least, request.most_runs, request.timeout_s, request.rules
    )
    with _workplace(request.folder) as folder:
        tuning = tune(command_words, plan, folder, say)
        if request.folder is not None:
            for name, output_format in (("tuning.md", "markdown"), ("tuning.json", "json")):
                write(render_tuning(tuning, output_format, presentation_for(folder / name, None)), folder / name)
    write(render_tuning(tuning, request.output_format, presentation_for(None, None)), None)


@contextmanager
def _workplace(folder: Path | None) -> Iterator[Path]:
    """A folder for recordings: the new one asked for, or one that is gone afterwards."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="doctor-tune-", ignore_cleanup_errors=True) as scratch:
            yield Path(scratch)
        return
    try:
        folder.mkdir(parents=False)
    except FileExistsError:
        raise UsageError(f"{folder} exists already: name a new folder") from None
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror or error}") from error
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):  # only an empty folder can be removed: recordings stay
            folder.rmdir()
