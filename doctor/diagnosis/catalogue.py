"""Finds the rules: the package `rules`, a user's folder, and plug-ins with the entry point `doctor.rules`.

The one place with dynamic imports. A rule is a module with an attribute `RULE`.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from doctor.case.schema import QUERY_ONLY, Columns
from doctor.errors import CatalogueError
from doctor.rule import Rule, Stage

ENTRY_POINT_GROUP = "doctor.rules"
_MARKER = "doctor.rule"


def load_catalogue(extra: Path | None = None) -> tuple[Rule, ...]:
    """All rules, in the decision order.

    Args:
        extra: folder with rule files of the user's own; a rule there replaces ours of the same id.

    Raises:
        CatalogueError: the importable `rules` is not ours, a rule file does not load, or two rules share an id.
    """
    found: dict[str, Rule] = {}
    for rule in _own_rules():
        if rule.about.id in found:
            raise CatalogueError(f"two rules share the id {rule.about.id}")
        found[rule.about.id] = rule
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        found |= {rule.about.id: rule for rule in _entry_rules(entry)}
    if extra is not None:
        found |= {rule.about.id: rule for rule in _folder_rules(extra)}
    return tuple(sorted(found.values(), key=_decision_order))


def unread_by(rules: Iterable[Rule]) -> Columns:
    """Columns of a case that none of the rules reads; which those are is known of the package's own alone."""
    own = {id(rule) for rule in _own_rules()}
    return QUERY_ONLY if all(id(rule) in own for rule in rules) else {}


def _decision_order(rule: Rule) -> tuple[int, str, int, str]:
    return list(Stage).index(rule.about.stage), rule.about.group, rule.about.group_rank, rule.about.id


def _own_rules() -> list[Rule]:
    try:
        package = importlib.import_module("rules")
    except ImportError as error:
        raise CatalogueError(f"the package `rules` of Inference Doctor is missing ({error}): reinstall it") from error
    if _MARKER not in (package.__doc__ or "") or not hasattr(package, "__path__"):
        raise CatalogueError(
            f"the importable package `rules` ({getattr(package, '__file__', 'namespace')}) is not Inference Doctor's: "
            "run from another folder or rename yours"
        )
    names = [info.name for info in pkgutil.walk_packages(package.__path__, "rules.") if not info.ispkg]
    return [_rule_of(_imported(name), name) for name in sorted(names)]


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise CatalogueError(f"the rule file {name} does not load: {type(error).__name__}: {error}") from error


def _rule_of(module: ModuleType, name: str) -> Rule:
    rule = getattr(module, "RULE", None)
    if not isinstance(rule, Rule):
        raise CatalogueError(f"the rule file {name} has no RULE of type doctor.rule.Rule")
    return rule


def _entry_rules(entry: EntryPoint) -> list[Rule]:
    try:
        loaded = entry.load()
    except Exception as error:
        raise CatalogueError(f"the rules of {entry.value} do not load: {type(error).__name__}: {error}") from error
    rules = list(loaded) if isinstance(loaded, list | tuple) else [loaded]
    if not all(isinstance(rule, Rule) for rule in rules):
        raise CatalogueError(f"the entry point {entry.value} gives something other than doctor.rule.Rule")
    return rules


def _folder_rules(folder: Path) -> list[Rule]:
    if not folder.is_dir():
        raise CatalogueError(f"{folder} is not a folder: --rules wants a folder with rule files")
    files = sorted(path for path in folder.rglob("*.py") if not path.name.startswith("_"))
    if not files:
        raise CatalogueError(f"{folder} holds no rule files (*.py)")
    return [_rule_of(_from_file(path), str(path)) for path in files]


def _from_file(path: Path) -> ModuleType:
    name = f"doctor_user_rules.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # NamedTuple and dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a script among them may end itself
        raise CatalogueError(f"the rule file {path} does not load: {type(error).__name__}: {error}") from error
    return module
