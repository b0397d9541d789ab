"""The log of an inference engine, or a piece of one: settings, figures, state over time, events.

Which engine it is, each line says itself: the kinds of lines of all engines are known at once, and a paste of several
logs gives all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text import (
    framework_lines,
    lmdeploy_log,
    own_engine_log,
    sglang_log,
    tensorrt_llm_log,
    tgi_log,
    vllm_log,
)
from doctor.readers.text.engine_lines import Kind, Row
from doctor.readers.text.scanner import batch_of
from doctor.readers.text.stamp import Stamp, stamp_of

MOST_BLOCK_LINES = 400
_COMPOSED = re.compile(r"^[\w.\-]{1,60} {0,20}\| ?")
_NAMES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt-llm": "TensorRT-LLM",
    "tgi": "text-generation-inference",
    "lmdeploy": "lmdeploy",
    "engine": "engine",
}
_KINDS: tuple[Kind, ...] = (
    *vllm_log.KINDS,
    *sglang_log.KINDS,
    *own_engine_log.KINDS,
    *tensorrt_llm_log.KINDS,
    *lmdeploy_log.KINDS,
    *tgi_log.KINDS,
    *framework_lines.KINDS,
)
_FREQUENT = tuple(kind for kind in _KINDS if kind.is_last)
_OTHERS = tuple(kind for kind in _KINDS if not kind.is_last)


class EngineLogScanner:
    """Lines of vLLM, SGLang, TensorRT-LLM, text-generation-inference, lmdeploy and the engine of this project."""

    kind = "engine-log"
    clues = tuple(dict.fromkeys((*(kind.clue for kind in _KINDS), tgi_log.BLOCK_CLUE)))

    def __init__(self) -> None:
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._engines: dict[str, int] = {}
        self._versions: dict[str, str] = {}
        self._block: list[str] = []
        self._block_at: Stamp | None = None
        self._is_found = False

    @property
    def is_open(self) -> bool:
        """True inside the launcher's arguments of text-generation-inference."""
        return self._block_at is not None

    def line(self, number: int, text: str) -> None:
        """Look at one line."""
        if self._block_at is not None and _is_inside(text):
            self._block_line(text)
            return
        if self._block_at is not None:  # cut short: the line belongs to somebody else
            self._close_block()
        if tgi_log.BLOCK_CLUE in text:
            self._block_at, self._block = stamp_of(number, text), []
            self._block_line(text)
            return
        for row in _rows_of(text, number):
            self._keep(row)

    def drain(self) -> Iterator[TableBatch]:
        """Rows found since the last call."""
        rows, self._rows = self._rows, {}
        for table, listed in rows.items():
            yield batch_of(table, listed, self.kind)

    def facts(self) -> SourceFacts | None:
        """The engine that says most, with its version; None where no line was an engine's."""
        if self._block_at is not None:
            self._close_block()
        if not self._is_found:
            return None
        engine = max(self._engines, key=lambda name: self._engines[name], default=None)
        tool = None if engine is None else f"{_NAMES.get(engine, engine)} {self._versions.get(engine, '')}".strip()
        return SourceFacts(self.kind, tool, is_complete=True)

    def _block_line(self, text: str) -> None:
        self._block.append(text)
        ends = text.rstrip().endswith("}") if len(self._block) == 1 else text.strip() == "}"
        if ends or len(self._block) >= MOST_BLOCK_LINES:
            self._close_block()

    def _close_block(self) -> None:
        assert self._block_at is not None
        for row in tgi_log.arguments(" ".join(line.strip() for line in self._block), self._block_at):
            self._keep(row)
        self._block_at, self._block = None, []

    def _keep(self, row: Row) -> None:
        self._is_found = True
        engine = row.values.get("engine")
        if engine is not None:
            self._engines[engine] = self._engines.get(engine, 0) + 1
            if row.values.get("event") == "version":
                self._versions[engine] = row.values["detail"]
        self._rows.setdefault(row.table, []).append(row.values)


def _is_inside(text: str) -> bool:
    """True for lines of a printed structure: indented, or its end; behind the name that Compose puts before lines."""
    inner = _COMPOSED.sub("", text, count=1)
    return inner[:1] in {"", " ", "\t", "}"}


def _rows_of(text: str, number: int) -> Iterator[Row]:
    at = None
    for kind in _FREQUENT:
        if kind.clue in text:
            rows = tuple(kind.rows(text, stamp_of(number, text)))
            if rows:
                yield from rows
                return
    for kind in _OTHERS:
        if kind.clue in text:
            at = at or stamp_of(number, text)
            yield from kind.rows(text, at)
