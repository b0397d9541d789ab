"""Rooms stay small enough to be read at one sitting."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(path for package in ("doctor", "rules") for path in (ROOT / package).rglob("*.py"))
MOST_LINES_OF_A_MODULE = 400
MOST_LINES_OF_A_FUNCTION = 50

every_module = pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@every_module
def test_a_module_fits_a_sitting(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= MOST_LINES_OF_A_MODULE


@every_module
def test_a_function_fits_a_screen(path: Path) -> None:
    for function in functions(path):
        assert (function.end_lineno or 0) - function.lineno < MOST_LINES_OF_A_FUNCTION, function.name


@every_module
def test_a_module_says_what_it_is(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    assert ast.get_docstring(tree) or not tree.body
