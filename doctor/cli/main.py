"""The program `doctor`: finds the command, turns every failure into one line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module

import click

from doctor.cli.exit_codes import ExitCode
from doctor.cli.interruption import listening
from doctor.cli.output import is_terminal, say
from doctor.errors import DoctorError
from doctor.version import __version__

COMMANDS = (
    "diagnose",
    "tui",
    "check",
    "compare",
    "record",
    "tune",
    "score",
    "rules",
    "explain",
    "convert",
    "redact",
    "sql",
    "history",
    "vitals",
)
_EXAMPLES = """\b
Examples:
  doctor diagnose trace.nsys-rep          what is wrong, and what to change
  doctor explain host-dispatch-bound      the manual page of one problem
"""  # \\b keeps click from wrapping the lines
_NO_BUGS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}
_WANT_OF_MEMORY = (
    "failed to map segment",
    "annot allocate memory",
    "can't start new thread",
    "error return without exception set",
)
_REPORT_AT = "https://github.com/inference-doctor/inference-doctor/issues"


class _LazyGroup(click.Group):
    """Imports `doctor.cli.<command>` only when the command is named; its attribute `command` is the command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"doctor.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:  # click would write an empty line first
            raise click.exceptions.Abort from error


@click.group(cls=_LazyGroup, epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="doctor")
def doctor() -> None:
    """Say what is wrong with a slow or out-of-memory LLM inference run, and the setting that cures it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code; no exception leaves here."""
    if not _is_debugging():
        warnings.simplefilter("ignore")  # a library's warning on standard error is no line of ours
    with listening() as heard:
        try:
            code = doctor.main(args=arguments, prog_name="doctor", standalone_mode=False)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - a traceback on a user's screen is always a bug
            if heard.number is not None or isinstance(error, click.exceptions.Abort | KeyboardInterrupt):
                if is_terminal(sys.stderr):
                    click.echo(err=True)  # the keyboard's ^C stands there
                heard.forget()
                say(heard.words)  # whatever the error: DuckDB makes one of its own out of a signal
                return heard.exit_code
            return _failed(error)
    return int(code or ExitCode.DONE)


def _failed(error: BaseException) -> int:
    """Say in a line what went wrong, and give the exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message())
        return ExitCode.DONE
    if isinstance(error, click.ClickException):
        say(_usage_line(error))
        return ExitCode.UNUSABLE
    for line in error.lines if isinstance(error, DoctorError) else (_unexpected_line(error),):
        say(line)
    _trace_when_debugging(error)
    return error.exit_code if isinstance(error, DoctorError) else ExitCode.UNUSABLE


def _usage_line(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    where = f" (see '{context.command_path} --help')" if context is not None else ""
    return f"{error.format_message().rstrip('.')}{where}"


def _unexpected_line(error: BaseException) -> str:
    if isinstance(error, PermissionError):
        return f"{error.filename or 'a file'} may not be opened: {error.strerror or error}"
    if isinstance(error, OSError) and error.errno in _NO_BUGS:
        return f"{error.filename or 'the output'} cannot be written: {error.strerror or error}"
    if isinstance(error, OSError) and error.errno in {errno.ENAMETOOLONG, errno.ELOOP}:
        return f"{error.filename or 'a file'} cannot be opened: {error.strerror or error}"
    if _is_want_of_memory(error):
        return "there is too little memory for this: free some, raise the limit (ulimit -v), or give less at once"
    words = str(error).splitlines()[0] if str(error) else "no message"
    return (
        f"unexpected {type(error).__name__}: {words}. This is a bug in doctor: run again with DOCTOR_DEBUG=1 and "
        f"report the traceback at {_REPORT_AT}"
    )


def _is_want_of_memory(error: BaseException) -> bool:
    """Tell it in all its guises: of DuckDB (told by name, since it may not be imported), of a library, of a thread."""
    if isinstance(error, ImportError | RuntimeError | SystemError):
        return any(words in str(error) for words in _WANT_OF_MEMORY)
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryException"


def _trace_when_debugging(error: BaseException) -> None:
    if _is_debugging():
        traceback.print_exception(error)


def _is_debugging() -> bool:
    return os.environ.get("DOCTOR_DEBUG", "") not in {"", "0"}


if __name__ == "__main__":
    sys.exit(main())
