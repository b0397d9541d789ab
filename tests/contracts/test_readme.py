"""README promises nothing that is not there."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

import click
import pytest

from doctor.checks.settings import read_checks
from doctor.cli.main import doctor
from doctor.diagnosis.catalogue import load_catalogue
from tests.support.samples import sample, trace_of

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def commands() -> list[list[str]]:
    """Every call of `doctor` in README, in code spans and blocks, as words; `PATH...`-like words included."""
    blocks = re.findall(r"^```bash\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in re.split(r"\n|&&", block)]
    lines += re.findall(r"(?<!`)`([^`\n]+)`(?!`)", README)
    calls = [line.strip().removeprefix(".venv/bin/") for line in lines]
    return [shlex.split(call)[1:] for call in calls if call.startswith("doctor ")]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_and_option_exists(words: list[str]) -> None:
    command = doctor.get_command(click.Context(doctor), words[0])
    assert command is not None
    known = {spelling for parameter in command.params for spelling in parameter.opts}
    own = itertools.takewhile(lambda word: word != "--", words[1:])  # what follows is a command of the user's
    assert {word for word in own if re.match(r"--?[a-z]", word)} <= known


def test_every_path_in_the_two_commands_exists() -> None:
    for path in re.findall(r"\b(?:samples|tests)/[\w./-]+", README):
        assert (ROOT / path).exists(), path


def test_every_rule_is_in_the_table() -> None:
    listed = dict(re.findall(r"^\| `([a-z0-9-]+)` \| (.*) \|$", README, re.MULTILINE))
    assert {rule.about.id: rule.doc.strip().splitlines()[0] for rule in load_catalogue(None)} == listed


def test_the_example_of_health_checks_is_read(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```toml\n(\[tool\.doctor.*?)^```", README, re.MULTILINE | re.DOTALL)
    path = tmp_path / "pyproject.toml"
    path.write_text(example, "utf-8")
    assert [check.name for check in read_checks(path)] == ["decode"]


def test_the_example_in_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    trace = trace_of(sample("launch-bound-decode-nsys-report"))
    exec(example.replace("trace.nsys-rep", str(trace)), {})
    assert "critical" in capsys.readouterr().out


def test_the_two_commands_are_marked_for_ci() -> None:
    assert re.findall(r"<!-- command (\d) -->", README) == ["1", "2"]
    assert "samples/" in README.split("<!-- command 1 -->")[1].split("<!-- command 2 -->")[0]
    assert "pytest" in README.split("<!-- command 2 -->")[1].split("```")[1]
