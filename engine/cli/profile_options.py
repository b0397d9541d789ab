"""`--profile nsys|torch` and what belongs to it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

if TYPE_CHECKING:
    from engine.execution.loop import EngineLoop

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """A capture that was asked for."""

    profiler: Literal["nsys", "torch"]
    trace: Path | None
    skip: int
    length: int

    def capture(self, loop: EngineLoop) -> AbstractContextManager[None]:
        """Capture a window of the steps of a loop."""
        from engine.profiling import Window, profiled  # noqa: PLC0415  torch is not needed to read options

        return profiled(loop, self.profiler, self.trace, Window(self.skip, self.length))


def profile_options(function: _Function) -> _Function:
    """Add `--profile`, `--trace`, `--profile-skip` and `--profile-steps`."""
    options = (
        click.option("--profile", type=click.Choice(("nsys", "torch")), help="Capture a steady window of steps."),
        click.option("--trace", type=Path, default=Path("trace.json.gz"), help="Where --profile torch writes."),
        click.option("--profile-skip", type=click.IntRange(0), default=8, help="Steps before the window."),
        click.option("--profile-steps", type=click.IntRange(1), default=16, help="Steps in the window."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def read_profile(options: dict[str, Any]) -> ProfileRequest | None:
    """Take these options out of all the options of a command."""
    profiler, trace = options.pop("profile"), options.pop("trace")
    skip, length = options.pop("profile_skip"), options.pop("profile_steps")
    return None if profiler is None else ProfileRequest(profiler, trace, skip, length)
