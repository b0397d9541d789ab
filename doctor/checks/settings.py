"""Checks as they are written: `doctor.toml`, or `[tool.doctor]` in pyproject.toml.

    at_most = "low"                      # for every check that says nothing else
    allow = ["lazy-module-load"]

    [checks.decode]
    evidence = ["traces/decode.nsys-rep"]  # beside this file; files, folders or patterns
    at_most = "medium"
    allow = ["tiny-kernels"]             # beside those for every check
    range = "decode_step"                # or window = "1.2s:1.5s"
    unprofiled_seconds = 1.31

    [checks.decode.vitals]
    gpu_busy = 0.6                       # at least: busy is good
    syncs_per_step = 1                   # at most: syncs are bad
    step_seconds = { at_most = 0.02 }    # or said in full

In pyproject.toml the same stands under `[tool.doctor]` and `[tool.doctor.checks.decode]`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from doctor.checks.check import Check, Demand
from doctor.checks.judging import bounds_of, severity_named
from doctor.diagnosis.options import DiagnosisOptions
from doctor.errors import UsageError
from doctor.rule import Severity
from doctor.units import parse_ns

OWN_FILE = "doctor.toml"
PROJECT_FILE = "pyproject.toml"
_Built = TypeVar("_Built")


class _CheckTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[checks.NAME]` as written."""

    evidence: str | tuple[str, ...]
    at_most: str | None = None
    allow: tuple[str, ...] = ()
    vitals: dict[str, Any] = {}
    range: str | None = None
    window: str | None = None
    unprofiled_seconds: float | None = None


class _Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file as written."""

    checks: dict[str, _CheckTable] = {}
    at_most: str | None = None
    allow: tuple[str, ...] = ()
    vitals: dict[str, Any] = {}


def find_settings(folder: Path) -> Path | None:
    """The file with checks for a folder: in it, or in the nearest folder above; `doctor.toml` before pyproject.toml."""
    for place in (folder.resolve(), *folder.resolve().parents):
        for name in (OWN_FILE, PROJECT_FILE):
            if (place / name).is_file() and holds_checks(place / name):
                return place / name
    return None


def holds_checks(path: Path) -> bool:
    """Tell whether a TOML file speaks of health checks; a file that cannot be read does not."""
    try:
        table = _own_table(path, _read(path))
    except UsageError:
        return path.name == OWN_FILE
    return table is not None and (path.name == PROJECT_FILE or "checks" in table)


def read_checks(path: Path) -> tuple[Check, ...]:
    """The checks of a file, in its order; evidence is named from the file's own folder.

    Raises:
        UsageError: it cannot be read, or a value is unusable; the message names file and place.
    """
    tables = _tables(path)
    return tuple(_check(path, tables, name, table) for name, table in tables.checks.items())


def default_demand(path: Path | None) -> Demand:
    """What a file demands of every check; the built-in demand where there is no file.

    Raises:
        UsageError: it cannot be read, or a value is unusable.
    """
    if path is None:
        return Demand()
    tables = _tables(path)
    return _placed(path, "", lambda: _demand(tables, None))


def _tables(path: Path) -> _Tables:
    table = _own_table(path, _read(path))
    try:
        return msgspec.convert(table or {}, _Tables, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {str(error).replace('Object', 'the table')}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{path} cannot be read: {reason}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}") from error


def _own_table(path: Path, document: dict[str, Any]) -> dict[str, Any] | None:
    """The part of the file that is ours, None where there is none."""
    if path.name != PROJECT_FILE:
        return document
    tool = document.get("tool", {})
    table = tool.get("doctor") if isinstance(tool, dict) else None
    return table if isinstance(table, dict) else None


def _check(path: Path, tables: _Tables, name: str, table: _CheckTable) -> Check:
    evidence = (table.evidence,) if isinstance(table.evidence, str) else table.evidence
    if not evidence:
        raise UsageError(f"{path}: the check {name} names no evidence")
    return Check(
        name,
        tuple(_from_here(path.parent / each) for each in evidence),
        _placed(path, name, lambda: _demand(tables, table)),
        _placed(path, name, lambda: _options(table)),
        path,
    )


def _from_here(path: Path) -> str:
    """The path as seen from the working folder where it lies below it: code hosts want paths inside the checkout."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _placed(path: Path, name: str, build: Callable[[], _Built]) -> _Built:
    """What `build` gives; its complaint names the file and the check."""
    try:
        return build()
    except UsageError as error:
        where = f"{path}, check {name}" if name else str(path)
        raise UsageError(f"{where}: {error.message}") from error


def _demand(tables: _Tables, table: _CheckTable | None) -> Demand:
    at_most = (table and table.at_most) or tables.at_most or Severity.LOW
    allow = dict.fromkeys((*tables.allow, *(table.allow if table else ())))
    vitals: Mapping[str, object] = {**tables.vitals, **(table.vitals if table else {})}
    return Demand(severity_named(at_most), tuple(allow), bounds_of(vitals))


def _options(table: _CheckTable) -> DiagnosisOptions:
    if table.window is not None and table.range is not None:
        raise UsageError("window and range both choose where to look: give one")
    if table.unprofiled_seconds is not None and not table.unprofiled_seconds > 0:
        raise UsageError("unprofiled_seconds must be over zero")
    return DiagnosisOptions(
        window=None if table.window is None else _window(table.window),
        range_name=table.range,
        unprofiled_seconds=table.unprofiled_seconds,
    )


def _window(text: str) -> tuple[int, int]:
    try:
        start, end = (parse_ns(part) for part in text.split(":"))
    except ValueError as error:
        raise UsageError(f"window is '{text}', but must be two times such as 1.2s:1.5s") from error
    if start >= end:
        raise UsageError(f"window '{text}' ends before it starts")
    return start, end
