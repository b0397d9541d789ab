"""Command-line options of the engine, made from the fields of `EngineConfig`: one place, one default."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

from engine.conditions import find_condition
from engine.config import EngineConfig

_Function = TypeVar("_Function", bound=Callable[..., Any])
_DESCRIPTIONS = dict(re.findall(r"^ {8}(\w+): ((?:.|\n {12})+)$", EngineConfig.__doc__ or "", re.MULTILINE))
_NONE = "none"


def engine_options(function: _Function) -> _Function:
    """Add an option for every field of `EngineConfig`, and `--condition`."""
    function = click.option("--cured", is_flag=True, help="With --condition: run its cure instead.")(function)
    function = click.option(
        "--condition", metavar="NAME", help="Make the engine ill; `python -m engine conditions` lists them."
    )(function)
    hints = get_type_hints(EngineConfig)
    for field in reversed(fields(EngineConfig)):
        function = _option(field, hints[field.name])(function)
    return function


def read_config(options: dict[str, Any]) -> EngineConfig:
    """Take the options of the engine out of all the options of a command, and build the configuration.

    Raises:
        ConfigError: a value is unusable, or the condition is unknown.
    """
    condition, is_cured = options.pop("condition"), options.pop("cured")
    config = EngineConfig.from_options({field.name: options.pop(field.name) for field in fields(EngineConfig)})
    return config if condition is None else find_condition(condition).apply(config, is_cured)


def as_typed(name: str, value: object) -> str:
    """An option of the engine with a value, as it is typed: `--kv paged`, `--no-cuda-graphs`."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    if value is None and _is_flag(get_type_hints(EngineConfig)[name]):
        return f"--{flag} left to the engine"
    return f"--{flag} {_NONE if value is None else value}"


class _OrNone(click.ParamType[Any]):
    """A value, or `none` for what an option means where it is not given."""

    def __init__(self, kind: click.ParamType[Any]) -> None:
        self._kind = kind
        self.name = f"{kind.name}|{_NONE}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        is_none = isinstance(value, str) and value.lower() == _NONE
        return None if is_none else self._kind.convert(value, param, ctx)


def _option(field: Field[Any], hint: Any) -> Callable[[_Function], _Function]:
    name = field.name.replace("_", "-")
    is_required = field.default is MISSING
    words = " ".join(_DESCRIPTIONS[field.name].split())
    return click.option(
        f"--{name}/--no-{name}" if _is_flag(hint) else f"--{name}",
        field.name,
        type=_click_type(hint),
        default=None if is_required else field.default,
        required=is_required,
        show_default=not is_required and field.default is not None,
        help=words[0].upper() + words[1:],
    )


def _is_flag(hint: Any) -> bool:
    return bool in (hint, *get_args(hint))


def _click_type(hint: Any) -> Any:
    if get_origin(hint) is Literal:
        return click.Choice(get_args(hint))
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    if kinds and not _is_flag(hint):
        return _OrNone(click.types.convert_type(kinds[0]))
    return kinds[0] if kinds else hint
