"""Checks carried out: evidence is read, diagnosed and judged."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from doctor import api
from doctor.checks.check import Check, CheckResult, Demand
from doctor.checks.judging import breaches
from doctor.checks.settings import find_settings, read_checks
from doctor.diagnosis.catalogue import load_catalogue
from doctor.errors import DoctorError, UsageError


def run_check(check: Check) -> CheckResult:
    """Diagnose the evidence of a check and judge it; unusable evidence is a result as well, with its reason."""
    try:
        diagnosis = api.diagnose(*check.evidence, options=check.options)
    except DoctorError as error:
        return CheckResult(check, None, (), error.message)
    return CheckResult(check, diagnosis, breaches(diagnosis, check.demand))


def refuse_unknown_rules(checks: Iterable[Check | Demand]) -> None:
    """Refuse names of rules that do not exist: a misspelt one would allow nothing, in silence.

    Raises:
        UsageError: a rule that is allowed does not exist.
    """
    known = {rule.about.id for rule in load_catalogue(None)}
    for check in checks:
        demand = check.demand if isinstance(check, Check) else check
        unknown = [rule for rule in demand.allow if rule not in known]
        if unknown:
            place = f" in the check {check.name}" if isinstance(check, Check) else ""
            raise UsageError(f"allow names {', '.join(unknown)}{place}, and no rule is called so: see `doctor rules`")


def checks_of(names: Iterable[str], demand: Demand, here: Path) -> tuple[Check, ...]:
    """The checks that the names stand for: files or folders with checks, otherwise evidence under `demand`.

    Args:
        names: TOML files with checks, folders with one, or evidence; nothing means the folder `here`.
        demand: for evidence that is named by itself.
        here: where to look for a file with checks, upwards, where nothing is named.

    Raises:
        UsageError: there are no checks, or a file with checks is unusable.
    """
    found = [check for name in names for check in _named(name, demand)] or list(_near(here))
    refuse_unknown_rules(found)
    return tuple(found)


def _named(name: str, demand: Demand) -> tuple[Check, ...]:
    path = Path(name)
    if path.suffix == ".toml":
        return _of_file(path)
    if path.is_dir() and (settings := _inside(path)) is not None:
        return _of_file(settings)
    return (Check(name, (name,), demand),)


def _inside(folder: Path) -> Path | None:
    settings = find_settings(folder)
    return settings if settings is not None and settings.parent == folder.resolve() else None


def _near(here: Path) -> tuple[Check, ...]:
    settings = find_settings(here)
    if settings is None:
        raise UsageError(
            "there are no checks here: write [checks.NAME] in doctor.toml or [tool.doctor.checks.NAME] in "
            "pyproject.toml, or name evidence"
        )
    return _of_file(settings)


def _of_file(path: Path) -> tuple[Check, ...]:
    checks = read_checks(path)
    if not checks:
        raise UsageError(f"{path} holds no check: add a table [checks.NAME] with `evidence`")
    return checks
