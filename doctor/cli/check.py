"""`doctor check`: health checks for CI."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from doctor.cli.exit_codes import ExitCode
from doctor.cli.options import FrameworkName, SeverityName
from doctor.cli.output import check_writable, refuse_to_replace, say, write
from doctor.errors import UsageError
from doctor.rule import Severity

if TYPE_CHECKING:
    from doctor.checks.check import Check, CheckResult

_FORMATS = ("terminal", "json", "markdown", "sarif", "junit", "github")


@dataclass(frozen=True)
class _Request:
    """The options as parsed; a field per option."""

    only: tuple[str, ...]
    at_most: Severity | None
    allow: tuple[str, ...]
    framework: str | None
    output_format: str
    output: Path | None
    is_strict: bool


@click.command("check", short_help="Run the health checks of doctor.toml or pyproject.toml; for CI.")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--only", multiple=True, metavar="NAME", help="Run only this check; may be repeated.")
@click.option("--at-most", type=SeverityName(), help="Worst severity let pass, for evidence named by itself.")
@click.option("--allow", multiple=True, metavar="RULE", help="Let this rule pass, for evidence named by itself.")
@click.option("--framework", type=FrameworkName(), help="Settings for it first; otherwise told from the evidence.")
@click.option("--format", "output_format", type=click.Choice(_FORMATS), default="terminal", help="Kind of output.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write here, not to the screen.")
@click.option("--strict", "is_strict", is_flag=True, help="Exit with 3 where evidence is incomplete.")
def command(paths: tuple[str, ...], **options: Any) -> int:
    """Run health checks and exit with 1 where one of them fails.

    PATH is a TOML file with checks, a folder with doctor.toml or pyproject.toml, or evidence, which is then held
    against what the file with checks demands of all. Without PATH the nearest file with checks is taken, from here
    upwards.
    """
    from doctor.checks.running import run_check
    from doctor.reports.check_pages import render_checks

    request = _Request(**options)
    if request.output is not None:
        check_writable(request.output)
        refuse_to_replace(map(Path, paths), request.output)
    checks = _chosen(_checks(paths, request), request.only)
    results = tuple(run_check(_for_framework(check, request.framework)) for check in checks)
    _say_what_was_left_out(results)
    write(render_checks(results, request.output_format), request.output)
    return _exit_code(results, is_strict=request.is_strict)


def _checks(paths: tuple[str, ...], request: _Request) -> tuple[Check, ...]:
    from doctor.checks.check import Demand
    from doctor.checks.running import checks_of
    from doctor.checks.settings import default_demand, find_settings

    written = default_demand(find_settings(Path()))
    at_most = written.at_most if request.at_most is None else request.at_most
    return checks_of(paths, Demand(at_most, (*written.allow, *request.allow), written.bounds), Path())


def _chosen(checks: tuple[Check, ...], only: tuple[str, ...]) -> tuple[Check, ...]:
    unknown = [name for name in only if name not in {check.name for check in checks}]
    if unknown:
        raise UsageError(
            f"no check is called {', '.join(unknown)}: there are {', '.join(each.name for each in checks)}"
        )
    return tuple(check for check in checks if not only or check.name in only)


def _for_framework(check: Check, framework: str | None) -> Check:
    return check if framework is None else replace(check, options=replace(check.options, framework=framework))


def _say_what_was_left_out(results: tuple[CheckResult, ...]) -> None:
    from doctor.reports.wording import incomplete_lines

    for result in results:
        if result.diagnosis is not None:
            for line in incomplete_lines(result.diagnosis):
                say(f"the evidence of the check {result.check.name} is incomplete: {line}")


def _exit_code(results: tuple[CheckResult, ...], *, is_strict: bool) -> ExitCode:
    unusable = [result for result in results if result.error is not None]
    if unusable:
        say(f"the check {unusable[0].check.name} could not be made: {unusable[0].error}")
        return ExitCode.UNUSABLE
    if is_strict and any(result.diagnosis is not None and not result.diagnosis.is_complete for result in results):
        say("evidence is incomplete, and --strict was given")
        return ExitCode.INCOMPLETE
    return ExitCode.DONE if all(result.is_healthy for result in results) else ExitCode.BAR_REACHED
