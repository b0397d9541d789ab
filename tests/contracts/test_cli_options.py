"""Every command and option, pinned: a new one is a decision, not an accident."""

from __future__ import annotations

import click
import pytest

from doctor.cli.main import COMMANDS, doctor

OPTIONS = {
    "diagnose": [
        "--fail-on",
        "--format",
        "--framework",
        "--history",
        "--ignore",
        "--no-progress",
        "--output",
        "--range",
        "--reader",
        "--rules",
        "--save",
        "--select",
        "--strict",
        "--tui",
        "--unprofiled-seconds",
        "--window",
        "-o",
    ],
    "tui": ["--framework", "--rules"],
    "check": ["--allow", "--at-most", "--format", "--framework", "--only", "--output", "--strict", "-o"],
    "compare": ["--fail-on-regression", "--format"],
    "record": [
        "--attach",
        "--cuda-profiler-api",
        "--delay",
        "--graph-nodes",
        "--most-gib",
        "--output",
        "--profiler",
        "--seconds",
        "--skip-steps",
        "--steps",
        "--timeout",
        "-o",
    ],
    "tune": [
        "--at-least",
        "--format",
        "--least-win",
        "--most-runs",
        "--output",
        "--repeat",
        "--rules",
        "--timeout",
        "-o",
    ],
    "score": ["--format", "--no-progress", "--output", "-o"],
    "rules": ["--format", "--rules"],
    "explain": ["--rules"],
    "convert": ["--no-progress", "--output", "--strict", "-o"],
    "redact": ["--output", "-o"],
    "sql": ["--format"],
    "history": ["--evidence", "--format", "--history", "--most", "--output", "-o"],
    "vitals": ["--format", "--interval", "--watch"],
}


def command(name: str) -> click.Command:
    found = doctor.get_command(click.Context(doctor), name)
    assert found is not None
    return found


def test_the_commands_are_these() -> None:
    assert list(COMMANDS) == list(OPTIONS)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_options_of_a_command_are_these(name: str) -> None:
    options = [parameter for parameter in command(name).params if isinstance(parameter, click.Option)]
    assert sorted(word for option in options for word in option.opts) == OPTIONS[name]


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_and_command_has_its_line_of_help(name: str) -> None:
    assert command(name).short_help
    assert command(name).help
    for parameter in command(name).params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
