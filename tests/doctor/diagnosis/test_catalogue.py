"""Where rules come from: the package, a user's folder, plug-ins; and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from doctor.diagnosis.catalogue import load_catalogue
from doctor.errors import CatalogueError
from doctor.rule import Stage
from tests.support.rule_files import write_rule

ROOT = Path(__file__).parents[3]
RUN_DOCTOR = "import sys; from doctor.cli.main import main; sys.exit(main(sys.argv[1:]))"


def test_rules_come_in_the_decision_order() -> None:
    stages = [list(Stage).index(rule.about.stage) for rule in load_catalogue()]
    assert stages == sorted(stages)
    assert load_catalogue()[0].about.stage is Stage.RECORDING


@pytest.mark.parametrize("shadow", ["rules/__init__.py", "rules.py"])
def test_a_foreign_package_named_rules_is_refused_and_named(shadow: str, tmp_path: Path) -> None:
    foreign = tmp_path / shadow
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text('"""Rules of a card game."""\n', encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-c", RUN_DOCTOR, "rules"],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert run.stdout == ""
    (line,) = run.stderr.splitlines()
    assert f"the importable package `rules` ({foreign}) is not Inference Doctor's" in line
    assert "rename yours" in line


def test_an_unusable_folder_of_rules_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="is not a folder"):
        load_catalogue(tmp_path / "missing")
    with pytest.raises(CatalogueError, match="holds no rule files"):
        load_catalogue(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def judge(:\n", "does not load: SyntaxError"),
        ("import no_such_package\n", "does not load: ModuleNotFoundError"),
        ("RULE = 'drop --enforce-eager'\n", "has no RULE of type doctor.rule.Rule"),
        ("", "has no RULE of type doctor.rule.Rule"),
    ],
)
def test_a_file_that_is_no_rule_is_refused_by_name(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    with pytest.raises(CatalogueError, match=message) as refused:
        load_catalogue(tmp_path)
    assert "mine.py" in refused.value.message


def test_files_that_begin_with_an_underscore_are_no_rules(tmp_path: Path) -> None:
    write_rule(tmp_path, "house-rule")
    (tmp_path / "_shared.py").write_text("raise RuntimeError\n", encoding="utf-8")
    assert "house-rule" in {rule.about.id for rule in load_catalogue(tmp_path)}


def install_plugin(folder: Path, target: str) -> None:
    """Lay down what pip would: a package's metadata with an entry point of ours."""
    info = folder / "house_rules-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: house-rules\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[doctor.rules]\nhouse = {target}\n", encoding="utf-8")


@pytest.mark.parametrize("attribute", ["RULE", "RULES"])
def test_an_installed_plug_in_brings_one_rule_or_several(
    attribute: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = write_rule(tmp_path, f"house-{attribute.lower()}") / f"house_{attribute.lower()}.py"
    with module.open("a", encoding="utf-8") as file:
        file.write("RULES = [RULE]\n")
    install_plugin(tmp_path, f"{module.stem}:{attribute}")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert f"house-{attribute.lower()}" in {rule.about.id for rule in load_catalogue()}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no_such_house:RULE", "the rules of no_such_house:RULE do not load: ModuleNotFoundError"),
        ("json:dumps", "the entry point json:dumps gives something other than doctor.rule.Rule"),
    ],
)
def test_a_broken_plug_in_is_refused_by_name(
    target: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_plugin(tmp_path, target)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(CatalogueError, match=message):
        load_catalogue()
