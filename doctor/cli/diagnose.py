"""`doctor diagnose`: evidence in, diagnosis out."""

from __future__ import annotations

import time
import uuid
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from doctor.cli.exit_codes import ExitCode
from doctor.cli.options import FrameworkName, Seconds, SeverityName, TimeWindow
from doctor.cli.output import check_writable, refuse_to_replace, say, say_what_was_left_out, write
from doctor.cli.progress import ProgressBars
from doctor.cli.tui import run_application
from doctor.errors import UsageError
from doctor.rule import Severity
from doctor.version import __version__

if TYPE_CHECKING:
    from doctor.diagnosis.options import DiagnosisOptions
    from doctor.diagnosis.outcome import Diagnosis
    from doctor.discovery import Discovered
    from doctor.history.store import History

_FORMATS = ("terminal", "json", "markdown", "html", "sarif", "junit", "github")
_READERS = ("native", "nsys")
_NAMES_SHOWN = 3


@dataclass(frozen=True)
class _Request:
    """The options as parsed; a field per option."""

    paths: tuple[str, ...]
    output_format: str
    output: Path | None
    fail_on: Severity | None
    rules: Path | None
    select: tuple[str, ...]
    ignore: tuple[str, ...]
    range_name: str | None
    window: tuple[int, int] | None
    unprofiled_seconds: float | None
    framework: str | None
    reader: str
    save: Path | None
    history: str | None
    has_progress: bool
    is_strict: bool
    in_tui: bool


@click.command("diagnose", short_help="Read evidence and say what is wrong, what it costs and which setting cures it.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--format", "output_format", type=click.Choice(_FORMATS), default="terminal", help="Kind of output.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write here, not to the screen.")
@click.option("--fail-on", type=SeverityName(), help="Exit with 1 where a finding is at least this severe.")
@click.option("--rules", type=click.Path(path_type=Path), metavar="DIR", help="Run the rules in this folder too.")
@click.option("--select", multiple=True, metavar="RULE", help="Run only this rule; may be repeated.")
@click.option("--ignore", multiple=True, metavar="RULE", help="Do not run this rule; may be repeated.")
@click.option("--range", "range_name", metavar="NAME", help="Look from the first to the last NVTX range of this name.")
@click.option("--window", type=TimeWindow(), metavar="A:B", help="Look only here; ns, or with a unit: 1.2s:1.5s.")
@click.option(
    "--unprofiled-seconds",
    type=Seconds(),
    metavar="S",
    help="Time of the same window without the profiler; narrows the expected win.",
)
@click.option("--framework", type=FrameworkName(), help="Settings for it first; otherwise told from the evidence.")
@click.option("--reader", type=click.Choice(_READERS), default="native", help="Who reads a .nsys-rep.")
@click.option("--save", type=click.Path(path_type=Path), metavar="CASE.duckdb", help="Keep the case for `doctor sql`.")
@click.option("--history", metavar="URL", help="Keep the diagnosis for `doctor history`: a file, or postgresql://...")
@click.option("--no-progress", "has_progress", flag_value=False, default=True, help="No progress bars.")
@click.option("--tui", "in_tui", is_flag=True, help="Show it in a terminal application.")
@click.option("--strict", "is_strict", is_flag=True, help="Exit with 3 where evidence is incomplete.")
def command(**options: Any) -> int:
    """Read evidence and say what is wrong, what it costs and which setting cures it.

    PATH is a file, a folder, a pattern, or - for standard input, in any mix; its kind is told by content. Anything may
    be wrapped in .gz or .zst. A case that --save kept is diagnosed again without reading the evidence.
    """
    return _run(_Request(**options))


def _run(request: _Request) -> int:
    from doctor.api import load_evidence
    from doctor.case.derive import WindowChoice
    from doctor.case.diagnosis_queries import unread_files
    from doctor.case.store import naming_case_trouble
    from doctor.cli.screen import presentation_for
    from doctor.diagnosis.catalogue import load_catalogue, unread_by
    from doctor.diagnosis.runner import diagnose_case
    from doctor.discovery import discovered
    from doctor.fingerprint import with_fingerprints
    from doctor.reports.presentation import render
    from doctor.reports.runs import other_runs_line_as_typed

    _check(request)
    history = _history(request.history)
    if request.in_tui:
        run_application(request.paths, _options(request), request.rules, request.reader)
        return ExitCode.DONE
    rules = load_catalogue(request.rules)
    window = WindowChoice(request.window, request.range_name)
    with ProgressBars(is_wanted=request.has_progress) as bars, discovered(request.paths) as found:
        _say_what_was_skipped(found)
        refuse_to_replace((file.path for file in found.evidence), request.output)
        with _kept_when_done(request.save) as place:
            case = load_evidence(found.evidence, place, request.reader, bars.file, window, unread_by(rules))
            with closing(case), bars.stage("diagnosing"):
                say_what_was_left_out(unread_files(case))
                diagnosis = diagnose_case(case, rules, _options(request))
                if place is not None:
                    with naming_case_trouble():
                        case.execute("CHECKPOINT")  # closing would do it too, and say nothing of a full disk
        is_on_screen = request.output_format == "terminal" and request.output is None
        if not is_on_screen and (line := other_runs_line_as_typed(diagnosis)):
            say(line)
        if request.output_format == "html" or request.history is not None:
            diagnosis = with_fingerprints(diagnosis, found.evidence)
    write(render(diagnosis, request.output_format, presentation_for(request.output, request.fail_on)), request.output)
    if history is not None:
        _keep(diagnosis, history)
    return _exit_code(diagnosis, request)


def _kept_when_done(save: Path | None) -> AbstractContextManager[Path | None]:
    """Where to write the case. One that cannot be diagnosed is not kept: it would stand in the way of the next attempt.

    Nor has one its name before: another process that saves under it would end over a case that may never be whole.
    """
    from doctor.api import saved_as

    return nullcontext() if save is None else saved_as(save)


def _check(request: _Request) -> None:
    """Refuse before the work what could only fail after it."""
    if request.window is not None and request.range_name is not None:
        raise UsageError("--window and --range both choose where to look: give one")
    if request.in_tui and (request.save or request.output or request.history or request.fail_on is not None):
        raise UsageError(
            "--tui shows the diagnosis and writes nothing: leave out --save, --output, --history and --fail-on"
        )
    for target in (request.output, request.save):
        if target is not None:
            check_writable(target)
    if request.save is not None and request.save.exists():
        raise UsageError(f"{request.save} exists already: name another file or remove it first")


def _history(address: str | None) -> History | None:
    if address is None:
        return None
    from doctor.history.address import file_of, parse_address
    from doctor.history.store import History

    file = file_of(parse_address(address))
    if file is not None:
        check_writable(file)
    return History(address)


def _keep(diagnosis: Diagnosis, history: History) -> None:
    """After the output: a database that refuses takes no diagnosis away."""
    from doctor.history.entries import entry_of

    history.add(entry_of(diagnosis, uuid.uuid4().hex, time.time_ns() // 10**6, __version__))


def _options(request: _Request) -> DiagnosisOptions:
    from doctor.diagnosis.options import DiagnosisOptions

    return DiagnosisOptions(
        window=request.window,
        range_name=request.range_name,
        unprofiled_seconds=request.unprofiled_seconds,
        select=request.select,
        ignore=request.ignore,
        framework=request.framework,
        is_zoomable=request.output_format == "html",
    )


def _say_what_was_skipped(found: Discovered) -> None:
    if found.skipped:
        names = ", ".join(Path(name).name for name in found.skipped[:_NAMES_SHOWN])
        more = f" and {len(found.skipped) - _NAMES_SHOWN} more" if len(found.skipped) > _NAMES_SHOWN else ""
        say(f"passed by, since no reader knows them: {names}{more}")


def _exit_code(diagnosis: Diagnosis, request: _Request) -> ExitCode:
    if request.is_strict and not diagnosis.is_complete:
        say("evidence is incomplete, and --strict was given: see the notes on the recording")
        return ExitCode.INCOMPLETE
    worst = diagnosis.worst
    if request.fail_on is not None and worst is not None and worst >= request.fail_on:
        return ExitCode.BAR_REACHED
    return ExitCode.DONE
