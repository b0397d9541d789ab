"""The size of a device as CUDA itself answers: `torch.cuda.mem_get_info()`, `total_memory` of its properties.

An engine that counts with another size has asked somebody else. What people quote of its belief (`it thinks it has
141 GB`) is kept apart from what it logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.oom_message import size_of
from doctor.readers.text.scanner import batch_of

_MOST_LINE = 1000
_MOST_ROWS = 1000
_ANSWER_LINES = 3
_UNIT = r"([KMGT]i?B|bytes|B)\b"
_ASKED = re.compile(
    r"mem_get_info|cudaMemGetInfo|get_device_properties\([^)\n]{0,40}\)\.total_memory|\btotal_memory\b", re.IGNORECASE
)
_PAIR = re.compile(r"\(\s{0,4}(\d{8,15})\s{0,4},\s{0,4}(\d{8,15})\s{0,4}\)")
_SIZED_PAIR = re.compile(
    rf"(\d{{1,12}}(?:\.\d{{1,6}})?)\s?(?:{_UNIT})?\s?(?:free)?\s?(?:/|of|,"
    rf"|out of)\s?(\d{{1,12}}(?:\.\d{{1,6}})?)\s?{_UNIT}",
    re.IGNORECASE,
)
_TOTAL = re.compile(
    rf"\btotal(?:_memory)?\b[^\d\n]{{0,16}}(\d{{1,15}}(?:\.\d{{1,6}})?)\s?{_UNIT}"
    rf"|(\d{{1,12}}(?:\.\d{{1,6}})?)\s?{_UNIT}\s?total\b",
    re.IGNORECASE,
)
_SAID = re.compile(
    rf"(?:mem_get_info|cudaMemGetInfo|total_memory)[^\d\n]{{0,40}}(\d{{1,12}}(?:\.\d{{1,6}})?)\s?{_UNIT}", re.IGNORECASE
)
_BARE = re.compile(r"(?:Out\[\d{1,4}\]: ?|[=:]\s{0,4})?(\d{9,15})\s{0,4}\Z")
_BARE_BEHIND = re.compile(r"total_memory\W{1,8}(\d{9,15})\b")
_LOGGED = re.compile(
    rf"\btotal (?:gpu |device )?memory\b[^\d\n]{{0,12}}(\d{{1,6}}(?:\.\d{{1,6}})?)\s?{_UNIT}(?=[^\n"
    rf"]{{0,120}}(?:utilization|fraction|request))",
    re.IGNORECASE,
)
_BELIEVED = re.compile(
    r"\b(?:vllm|sglang|engine|server|it|which|log|nvml|pynvml)\b[^.\d\n]{0,24}\b(?:says|thinks|reports"
    r"|sees|claims|believes|assumes|detects|shows)\b"
    rf"[^.\d\n]{{0,40}}(\d{{1,6}}(?:\.\d{{1,6}})?)\s?{_UNIT}(?![^.\n]{{0,24}}\b(?:free|used|in use|left"
    rf"|allocated|kv|cache)\b)",
    re.IGNORECASE,
)
_LEAST_BYTES = 2**30
_DIVIDED = re.compile(r"\bMIG[ -](?!(?:mode )?(?:is )?(?:off|disabled|not)\b)|\b\dg\.\d{1,3}gb\b", re.IGNORECASE)


class CudaMemoryScanner:
    """Questions to CUDA for the size of its device, and their answers; what an engine was told instead."""

    kind = "engine-config"
    clues = (
        "MIG", "mem_get_info", "MemGetInfo", "total_memory", "otal memory", "otal gpu memory", "otal GPU memory",
        " says ", " thinks ", " reports ", " sees ", " claims ", " believes ", " assumes ", " detects ",
    )  # fmt: skip

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._lines_left = 0
        self._is_found = False
        self._is_divided = False
        self._believed: dict[str, Any] | None = None

    @property
    def is_open(self) -> bool:
        """True while the answer may come."""
        return self._lines_left > 0

    def line(self, number: int, text: str) -> None:
        """A question, its answer, or what an engine counts with."""
        line = text[:_MOST_LINE]
        self._is_divided = self._is_divided or _DIVIDED.search(line) is not None
        is_asked = _ASKED.search(line) is not None
        if is_asked or self._lines_left > 0:
            total = _total_of(line, is_asked=is_asked)
            self._lines_left = 0 if total is not None else _ANSWER_LINES if is_asked else self._lines_left - 1
            self._keep(number, "cuda_total", total)
            if is_asked:
                return
        if (logged := _LOGGED.search(line)) is not None:
            self._keep(number, "total_memory", size_of(logged[1], logged[2]))
        elif (believed := _BELIEVED.search(line)) is not None:
            size = size_of(believed[1], believed[2])
            self._believed = {"line_id": number, "figure": "believed_total", "amount_bytes": size}

    def drain(self) -> Iterator[TableBatch]:
        """Figures found since the last call."""
        rows, self._rows = self._rows, []
        if rows:
            yield batch_of("engine_figure", rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """What was found; a belief counts beside a slice only."""
        if self._believed is not None and self._is_divided:
            self._rows.append(self._believed)
            self._believed, self._is_found = None, True
        return SourceFacts(self.kind, "sizes of the device", is_complete=True) if self._is_found else None

    def _keep(self, number: int, figure: str, size: int | None) -> None:
        if size is not None and size >= _LEAST_BYTES and len(self._rows) < _MOST_ROWS:
            self._is_found = True
            self._rows.append({"line_id": number, "figure": figure, "amount_bytes": size})


def _total_of(line: str, *, is_asked: bool) -> int | None:
    """The size in an answer, in whatever form it was printed."""
    if (pair := _PAIR.search(line)) is not None:
        return size_of(pair[2], "B")
    if (behind := _BARE_BEHIND.search(line)) is not None:
        return size_of(behind[1], "B")
    if (sized := _SIZED_PAIR.search(line)) is not None:
        return size_of(sized[3], sized[4])
    if (total := _TOTAL.search(line)) is not None:
        return size_of(total[1] or total[3], total[2] or total[4])
    if (said := _SAID.search(line)) is not None and is_asked:
        return size_of(said[1], said[2])
    bare = None if is_asked else _BARE.match(line.strip())
    return None if bare is None else size_of(bare[1], "B")
