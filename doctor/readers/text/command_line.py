"""Command lines that start an engine, in scripts, notes and pastes: their options, never hosts, paths or keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.formats.engine_options import command_of, settings_of
from doctor.formats.engine_options.command import CLUES
from doctor.readers.text.scanner import batch_of

MOST_COMMAND_LINES = 200
MOST_COMMAND_CHARACTERS = 64 * 1024


class CommandLineScanner:
    """Commands of one line, or of several that end in a backslash."""

    kind = "engine-config"
    clues = CLUES

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._parts: list[str] = []
        self._number = 0
        self._engine: str | None = None

    @property
    def is_open(self) -> bool:
        """True while the command goes on in the next line."""
        return bool(self._parts)

    def line(self, number: int, text: str) -> None:
        """Look at one line."""
        if not self._parts:
            self._number = number
        goes_on = text.rstrip().endswith("\\") and len(self._parts) < MOST_COMMAND_LINES
        self._parts.append(text.rstrip().removesuffix("\\"))
        if not goes_on:
            self._close()

    def drain(self) -> Iterator[TableBatch]:
        """Settings found since the last call."""
        rows, self._rows = self._rows, []
        if rows:
            yield batch_of("engine_setting", rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """The engine of the last command; None where none had an option that is kept."""
        self._close()
        return None if self._engine is None else SourceFacts(self.kind, f"command line of {self._engine}", True)

    def _close(self) -> None:
        command = command_of(" ".join(self._parts)[:MOST_COMMAND_CHARACTERS]) if self._parts else None
        self._parts = []
        if command is None:
            return
        for kept in settings_of(command.engine, command.options):
            self._engine = command.engine
            self._rows.append(
                {
                    "engine": command.engine,
                    "setting": kept.setting,
                    "spelled": kept.spelled,
                    "told": kept.told,
                    "said_by": "command",
                    "line_id": self._number,
                }
            )
