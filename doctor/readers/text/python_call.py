"""Calls in pasted Python that make an engine or load a model: `LLM(model=..., enforce_eager=True)` and the like."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.formats.engine_options import pairs, settings_of
from doctor.readers.text.scanner import batch_of

MOST_CALL_LINES = 60
MOST_CALL_CHARACTERS = 16_000
_CALL = re.compile(
    r"\b(?P<name>LLM|AsyncEngineArgs|EngineArgs|sgl\.Engine|Engine|from_pretrained|generate|TurbomindEngineConfig"
    r"|PytorchEngineConfig|BitsAndBytesConfig)\((?P<rest>.*)"
)
_ENGINES = {
    "LLM": ("vllm", "tensorrt-llm"),
    "AsyncEngineArgs": ("vllm",),
    "EngineArgs": ("vllm",),
    "sgl.Engine": ("sglang",),
    "Engine": ("sglang",),
    "TurbomindEngineConfig": ("lmdeploy",),
    "PytorchEngineConfig": ("lmdeploy",),
}


class PythonCallScanner:
    """A call of one line or of several, up to the bracket that ends it."""

    kind = "engine-config"
    clues = ("LLM(", "EngineArgs(", "Engine(", "from_pretrained(", ".generate(", "EngineConfig(", "BitsAndBytesConfig(")

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._call: list[str] = []
        self._name = ""
        self._number = 0
        self._engine: str | None = None

    @property
    def is_open(self) -> bool:
        """True until the call's bracket closes."""
        return bool(self._call)

    def line(self, number: int, text: str) -> None:
        """Look at one line."""
        if not self._call:
            found = _CALL.search(text)
            if found is None or "`" in text[: found.start()]:  # advice, not code
                return
            self._name, self._number, self._call = found["name"], number, [found["rest"][:MOST_CALL_CHARACTERS]]
        else:
            self._call.append(text[:MOST_CALL_CHARACTERS])
        inner = _up_to_its_end(" ".join(self._call)[:MOST_CALL_CHARACTERS])
        if inner is not None:
            self._keep(inner)
        if inner is not None or len(self._call) >= MOST_CALL_LINES:
            self._call = []

    def drain(self) -> Iterator[TableBatch]:
        """Settings found since the last call."""
        rows, self._rows = self._rows, []
        if rows:
            yield batch_of("engine_setting", rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """The engine of the last call; None where none had a setting that is kept."""
        return None if self._engine is None else SourceFacts(self.kind, f"Python that calls {self._engine}", True)

    def _keep(self, inner: str) -> None:
        options = list(pairs(inner))
        told = {engine: list(settings_of(engine, options)) for engine in _ENGINES.get(self._name, ("transformers",))}
        engine = max(told, key=lambda name: len(told[name]))
        for kept in told[engine]:
            self._engine = engine
            self._rows.append(kept.row_of_command(engine, self._number))


def _up_to_its_end(text: str) -> str | None:
    """What stands before the bracket that closes the call; None where it is still open."""
    depth, quote = 1, ""
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth == 0:
                return text[:place]
    return None
