"""Command lines that start an engine, in scripts, notes and pastes: their options, never hosts, paths or keys.

Reports often quote the options alone: a line of them, a line each, or a list out of a Compose or Kubernetes file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.formats.engine_options import ENGINES, Setting, command_of, settings_of
from doctor.formats.engine_options.command import CLUES, options_of
from doctor.readers.text.scanner import batch_of

MOST_COMMAND_LINES = 200
MOST_COMMAND_CHARACTERS = 64 * 1024
MOST_BARE_WORDS = 2
"""More words behind an option are the text of a manual."""
BARE_CLUES = (
    "--gpu-memory-utilization", "--gpu_memory_utilization", "--max-model-len", "--max_model_len", "--max-num-seqs",
    "--enforce-eager", "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size",
    "--max-num-batched-tokens", "--mem-fraction-static", "--chunked-prefill-size", "--disable-cuda-graph",
    "--cuda-graph-max-bs", "--disable-radix-cache", "--max-running-requests", "--quantization", "--kv-cache-dtype",
    "--max-batch-prefill-tokens", "--cache-max-entry-count",
)  # fmt: skip
_BARE = re.compile(r"[>|\s]{0,16}(?:- {0,8})?[\"']?--[a-z]")
_LISTED = re.compile(r"[>|\s]{0,16}- {0,8}[\"']?[\w./{\[]")
_ITEM = re.compile(r"[>|\s]{0,16}(?:- {0,8})?")


class CommandLineScanner:
    """Commands of one line, or of several that end in a backslash."""

    kind = "engine-config"
    clues = (*CLUES, *BARE_CLUES)

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._parts: list[str] = []
        self._bare: list[str] = []
        self._number = 0
        self._engine: str | None = None

    @property
    def is_open(self) -> bool:
        """True while the command goes on in the next line."""
        return bool(self._parts or self._bare)

    def line(self, number: int, text: str) -> None:
        """Look at one line."""
        if not self._parts and self._takes_bare(number, text):
            return
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
        self._close_bare()
        self._close()
        return None if self._engine is None else SourceFacts(self.kind, f"command line of {self._engine}", True)

    def _close(self) -> None:
        command = command_of(" ".join(self._parts)[:MOST_COMMAND_CHARACTERS]) if self._parts else None
        self._parts = []
        if command is None:
            return
        for kept in settings_of(command.engine, command.options):
            self._keep(command.engine, kept)

    def _takes_bare(self, number: int, text: str) -> bool:
        """Options without the program before them: kept open as long as such lines follow."""
        goes_on = bool(self._bare) and len(self._bare) < MOST_COMMAND_LINES and _LISTED.match(text) is not None
        if _BARE.match(text) is None and not goes_on:
            self._close_bare()
            return False
        if not self._bare:
            self._number = number
        self._bare.append(_ITEM.sub("", text[:MOST_COMMAND_CHARACTERS], count=1).strip().strip("\\,\"'").strip())
        return True

    def _close_bare(self) -> None:
        """The options of the engine that alone knows most of them."""
        lines, self._bare = self._bare, []
        options = [
            (name, value)
            for name, value in options_of(" ".join(lines).replace('"', " ").replace("'", " ").split())
            if value.count(",") < MOST_BARE_WORDS
        ]
        told = {
            engine: list(settings_of(engine, options)) for engine in ENGINES if engine not in {"transformers", "engine"}
        }
        ranked = sorted(told, key=lambda engine: -len(told[engine]))
        if len(told[ranked[0]]) > len(told[ranked[1]]):
            for kept in told[ranked[0]]:
                self._keep(ranked[0], kept)

    def _keep(self, engine: str, kept: Setting) -> None:
        self._engine = engine
        self._rows.append(kept.row_of_command(engine, self._number))
