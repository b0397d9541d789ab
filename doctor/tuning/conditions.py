"""What a named condition of the program fixes: options that another option sets, whatever else is given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from doctor.tuning.command_line import CommandLine, Option, Setting

_CONDITION, _CURED = "condition", "cured"


@dataclass(frozen=True)
class Fixed:
    """Options that cannot be changed as long as another one is given.

    Attributes:
        values: by key, what is fixed, as the program writes it.
        by: the option that fixes them, as typed; empty where nothing does.
    """

    values: Mapping[str, str]
    by: str = ""

    def forbids(self, setting: Setting) -> str:
        """Why a setting cannot be applied, in a few words; empty where it can, or where it is fixed already."""
        wanted = {option.key: _value(option) for option in setting.options} | dict.fromkeys(setting.dropped, "")
        fixed = [f"{key}={self.values[key]}" for key, value in wanted.items() if self.values.get(key, value) != value]
        return f"{self.by} fixes {', '.join(fixed)}" if fixed else ""


def _value(option: Option) -> str:
    """As the program writes it: a flag is true or false."""
    return " ".join(option.values) or str(option.name == f"--{option.key}").lower()


FREE = Fixed({})


def asks_for_condition(line: CommandLine) -> bool:
    """True where the command names a condition."""
    return line.given(_CONDITION) is not None


def fixed_by(line: CommandLine, told: str) -> Fixed:
    """What the condition of a command fixes.

    Args:
        line: the command.
        told: what `conditions --json` of its program printed: a list of objects with `name`, `sick` and `cure`, the
            latter two objects of options by name; anything else fixes nothing.
    """
    given = line.given(_CONDITION)
    name = "" if given is None else " ".join(given.values)
    options = next((one for one in _objects(told) if one.get("name") == name), {})
    chosen = options.get("cure" if line.given(_CURED) is not None else "sick")
    if not isinstance(chosen, dict):
        return FREE
    return Fixed({str(key).replace("_", "-"): str(value).lower() for key, value in chosen.items()}, str(given))


def _objects(told: str) -> list[dict[str, Any]]:
    try:
        document = json.loads(told)
    except (ValueError, RecursionError):
        return []
    return [one for one in document if isinstance(one, dict)] if isinstance(document, list) else []
