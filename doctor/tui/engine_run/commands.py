"""Command lines of the engine, and what it says about its conditions."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from doctor.errors import ToolMissingError

_ENGINE = (sys.executable, "-m", "engine")


@dataclass(frozen=True)
class Condition:
    """One documented problem that the engine can be made to have."""

    name: str
    problem: str
    sick: str
    cure: str
    proof: str
    needs: str


@dataclass(frozen=True)
class BenchRun:
    """One benchmark of the engine with a recording.

    Attributes:
        model: folder of a checkpoint.
        condition: name of the condition.
        is_cured: run its cure instead.
        trace: where the recording goes.
        further: further options, as typed.
    """

    model: str
    condition: str
    is_cured: bool
    trace: Path
    further: str = ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The command line.

        Raises:
            ValueError: the further options have an open quotation mark.
        """
        cured = ("--cured",) if self.is_cured else ()
        recorded = ("--profile", "torch", "--trace", str(self.trace))
        chosen = ("--model", self.model, "--condition", self.condition)
        return (*_ENGINE, "bench", *chosen, *cured, *recorded, *shlex.split(self.further))


async def conditions() -> tuple[Condition, ...]:
    """Ask the engine what it can be made to suffer from.

    Raises:
        ToolMissingError: the engine is not installed or does not answer.
    """
    process = await asyncio.create_subprocess_exec(
        *_ENGINE,
        "conditions",
        "--json",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    if process.returncode != 0:
        last = (errors.decode(errors="replace").strip().splitlines() or ["it says nothing"])[-1]
        raise ToolMissingError(f"the engine does not run here ({last}): install the extra 'engine'")
    return tuple(_condition(entry) for entry in json.loads(out))


def _condition(entry: dict[str, Any]) -> Condition:
    sick, cure = (" ".join(f"{name}={value}" for name, value in entry[kind].items()) for kind in ("sick", "cure"))
    return Condition(entry["name"], entry["problem"], sick, cure, entry["proof"], entry["needs"])
