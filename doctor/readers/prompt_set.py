"""The requests of a load, one JSON object a line: how long prompts are and how much they share. No prompt is kept.

Known are the engine's own requests (`prompt_token_ids`), completions and chats of the OpenAI API, and its batch files.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.errors import DamagedEvidenceError
from doctor.formats.json_escapes import with_whole_characters
from doctor.readers.evidence_file import open_evidence
from doctor.readers.protocol import Progress, no_progress
from doctor.readers.text.scanner import batch_of

MOST_PROMPTS = 5000
MOST_PROMPT_CHARACTERS = 64 * 1024
CHARACTERS_A_TOKEN = 4
"""Of text without a tokenizer: rule of thumb for English."""
_KEYS = (b'"prompt_token_ids"', b'"prompt"', b'"messages"')


class PromptSetReader:
    """Requests as JSON lines."""

    kind = "bench-table"

    def recognises(self, path: Path, head: bytes) -> bool:
        """Tell whether a file holds requests, one a line.

        Args:
            path: an existing file.
            head: its first 64 KiB after decompression.
        """
        first = head.partition(b"\n")[0]
        if not first.lstrip().startswith(b"{") or not any(key in head for key in _KEYS):
            return False
        return any(True for _ in _prompts(path, no_progress, 1))

    def read(self, path: Path, progress: Progress) -> Iterator[TableBatch | SourceFacts]:
        """Yield one row of `bench_row`.

        Raises:
            DamagedEvidenceError: no line holds a prompt.
        """
        prompts = list(_prompts(path, progress, MOST_PROMPTS))
        if not prompts:
            raise DamagedEvidenceError(f"{path} holds no request with a prompt: give one JSON object a line")
        lengths = sorted(len(prompt) / _scale(prompt) for prompt in prompts)
        shared = sorted(_shared(prompts))
        row = {
            "row_id": 0,
            "tool": "prompts",
            "completed_count": float(len(prompts)),
            "prompt_token_count": lengths[len(lengths) // 2],
            "shared_prefix_count": shared[len(shared) // 2] if shared else 0.0,
        }
        yield batch_of("bench_row", [row], self.kind)
        notes = () if isinstance(prompts[0], tuple) else ("tokens of text are estimated: four characters each",)
        yield SourceFacts(self.kind, "requests", is_complete=True, notes=notes)


def _prompts(path: Path, progress: Progress, most: int) -> Iterator[str | tuple[int, ...]]:
    pending, found = b"", 0
    for chunk in open_evidence(path).chunks(progress):
        *lines, pending = (pending + chunk).split(b"\n")
        if len(pending) > 16 * MOST_PROMPT_CHARACTERS:
            return
        for line in lines:
            prompt = _prompt(line)
            if prompt:
                yield prompt
                found += 1
                if found >= most:
                    return
    if prompt := _prompt(pending):
        yield prompt


def _prompt(line: bytes) -> str | tuple[int, ...] | None:
    try:
        request: Any = json.loads(with_whole_characters(line))
    except (ValueError, RecursionError):
        return None
    if isinstance(request, dict) and isinstance(request.get("body"), dict):
        request = request["body"]
    if not isinstance(request, dict):
        return None
    tokens = request.get("prompt_token_ids")
    if isinstance(tokens, list) and all(isinstance(token, int) for token in tokens):
        return tuple(tokens[:MOST_PROMPT_CHARACTERS])
    if isinstance(request.get("prompt"), str):
        return str(request["prompt"])[:MOST_PROMPT_CHARACTERS]
    messages = request.get("messages")
    if isinstance(messages, list) and all(isinstance(message, dict) for message in messages):
        return json.dumps([[m.get("role"), m.get("content")] for m in messages])[:MOST_PROMPT_CHARACTERS]
    return None


def _shared(prompts: Sequence[str | tuple[int, ...]]) -> Iterator[float]:
    """Tokens that each prompt shares with the one most like it: its neighbour where they stand in order."""
    kind = type(prompts[0])
    alike: list[Any] = sorted(prompt for prompt in prompts if isinstance(prompt, kind))
    for before, after in itertools.pairwise(alike):
        if before != after:  # the same request twice says nothing of prefixes
            yield _common(before, after) / _scale(before)


def _common(one: Sequence[Any], other: Sequence[Any]) -> int:
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _scale(prompt: str | tuple[int, ...]) -> int:
    return CHARACTERS_A_TOKEN if isinstance(prompt, str) else 1
