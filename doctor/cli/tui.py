"""`doctor tui`: the diagnosis as a terminal application."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from doctor.cli.options import FrameworkName
from doctor.cli.output import is_terminal
from doctor.errors import UsageError

if TYPE_CHECKING:
    from doctor.diagnosis.options import DiagnosisOptions

_KEYBOARD_NEEDED = "a terminal application needs a keyboard and a screen"


@click.command("tui", short_help="The same diagnosis in a terminal application, with a time-line to look around in.")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--rules", type=click.Path(path_type=Path), metavar="DIR", help="Run the rules in this folder too.")
@click.option("--framework", type=FrameworkName(), help="Settings for it first; otherwise told from the evidence.")
def command(paths: tuple[str, ...], rules: Path | None, framework: str | None) -> None:
    """Look at a diagnosis: findings, time-line, kernels, steps, memory, and queries.

    PATH is a file, a folder, a pattern or a saved case, in any mix; without one the application asks for it.
    """
    from doctor.diagnosis.options import DiagnosisOptions

    run_application(paths, DiagnosisOptions(framework=framework), rules, "native")


def run_application(paths: tuple[str, ...], options: DiagnosisOptions, rules: Path | None, reader: str) -> None:
    """Run the application until it is left.

    Raises:
        UsageError: there is no terminal, the stream that Textual draws on is redirected, evidence is to come from
            standard input, which is the keyboard, or a path matches nothing.
        EvidenceError: nothing that the paths name is evidence.
    """
    if "-" in paths:
        raise UsageError(f"{_KEYBOARD_NEEDED}: save what comes from standard input and name the file")
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise UsageError(f"{_KEYBOARD_NEEDED}, and this is neither: use `doctor diagnose`")
    if not is_terminal(sys.stderr):
        raise UsageError("a terminal application draws on standard error: leave that to the terminal")
    if paths:
        _check_evidence(paths)
    from doctor.tui.app import DoctorApp

    app = DoctorApp(paths, options, rules, reader)
    try:
        app.run()
    finally:
        app.tidy_up()


def _check_evidence(paths: tuple[str, ...]) -> None:
    from doctor.discovery import discovered

    with discovered(paths):  # the application would take the screen before it says so
        pass
