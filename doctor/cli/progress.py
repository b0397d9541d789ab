"""Progress on standard error: shown after one second, and only to a person."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath
from threading import Timer
from types import TracebackType
from typing import TYPE_CHECKING, Self

from doctor.cli.output import is_terminal

if TYPE_CHECKING:  # the module of readers imports pyarrow, which `doctor --help` must not pay for
    from doctor.readers.protocol import Progress

_QUIET_SECONDS = 1.0


class ProgressBars:
    """A context in which files and stages show how far they are; silent where standard error is no terminal."""

    def __init__(self, *, is_wanted: bool) -> None:
        self._is_shown = is_wanted and is_terminal(sys.stderr) and os.environ.get("TERM", "dumb") != "dumb"

    def __enter__(self) -> Self:
        if self._is_shown:
            from rich.console import Console
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as RichProgress

            self._bars = RichProgress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                console=Console(stderr=True, markup=False, highlight=False),
                transient=True,
            )
            self._timer = Timer(_QUIET_SECONDS, self._bars.start)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shown:
            self._timer.cancel()
            self._timer.join()  # a start that is under way must not outlive the stop
            self._bars.stop()

    def file(self, name: str) -> Progress:
        """A bar for one file; call the result with bytes done and bytes in all."""
        if not self._is_shown:
            return lambda done_bytes, total_bytes: None
        task = self._bars.add_task(f"reading {PurePath(name).name}", total=None)

        def advance(done_bytes: int, total_bytes: int) -> None:
            self._bars.update(task, completed=done_bytes, total=total_bytes or None)

        return advance

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """One bar without an end, in place of the files', for work that cannot say how far it is."""
        if not self._is_shown:
            yield
            return
        for done in self._bars.task_ids:
            self._bars.remove_task(done)
        self._bars.add_task(name, total=None)
        yield
