"""A Python session that asks a model for its type or its size: `>>> model.dtype`, and the answer below it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.engine_lines import MOST_WHOLE
from doctor.readers.text.scanner import emptied

MOST_ANSWER_LINES = 3
ENGINE = "transformers"
_ASKED_TYPE = re.compile(r"\b(?:model|pipe\.model|base_model|llm)\.dtype\b|\bparameters\(\)\)\.dtype\b")
_MADE = re.compile(r"\b(\w{1,40}) ?= ?(?:\w{1,60}\.){1,4}from_pretrained\(")
_NAMED_TYPE = re.compile(r"\b(\w{1,40})\.dtype\b")
_MOST_MODELS = 100
_ASKED_SIZE = re.compile(
    r"\.get_memory_footprint\(\)(?P<scale>(?: ?/ ?(?:1e9|10\*\*9|2\*\*30|1024\*\*3|1e6|2\*\*20))?)\s*\)?\s*$"
)
_MARKS = ("->", "=>", "# ", "→")
"""What people put between a question and the answer behind it."""
_TYPE = re.compile(r"(?:Out\[\d{1,4}\]: ?|#+ ?(?:->|=>)? ?)?torch\.(float32|float16|bfloat16)\s*$")
_SIZE = re.compile(r"(?:Out\[\d{1,4}\]: ?|#+ ?(?:->|=>)? ?)?(\d{1,15}(?:\.\d{1,20})?)\s*$")
_SCALES = {"1e9": 1e9, "10**9": 1e9, "2**30": 2.0**30, "1024**3": 2.0**30, "1e6": 1e6, "2**20": 2.0**20}


class PythonSessionScanner:
    """A question within a session, and the line that answers it."""

    kind = "engine-config"
    clues = ("from_pretrained(", ".dtype", ".get_memory_footprint()")

    def __init__(self) -> None:
        self._rows: dict[str, list[dict[str, Any]]] = {"engine_setting": [], "engine_figure": []}
        self._asked: str | None = None
        self._scale = 1.0
        self._lines_left = 0
        self._is_found = False
        self._models: set[str] = set()

    @property
    def is_open(self) -> bool:
        """True while the answer may come."""
        return self._lines_left > 0

    def line(self, number: int, text: str) -> None:
        """A question, or what may be its answer."""
        line = text.strip()
        if self._asked is not None and self._answers(number, line):
            self._asked, self._lines_left = None, 0
            return
        if self._answers_itself(number, line):
            return
        self._lines_left = max(self._lines_left - 1, 0)
        if (made := _MADE.search(line)) is not None and len(self._models) < _MOST_MODELS:
            self._models.add(made[1])
        self._ask(line)

    def drain(self) -> Iterator[TableBatch]:
        """Answers found since the last call."""
        yield from emptied(self._rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """A session; None where none was answered."""
        return SourceFacts(self.kind, "Python session", is_complete=True) if self._is_found else None

    def _answers_itself(self, number: int, line: str) -> bool:
        """A question whose answer stands behind it: `print(model.dtype)  # torch.float32`, `... -> 52312473600`."""
        question, mark, answer = next((parts for parts in map(line.partition, _MARKS) if parts[1]), (line, "", ""))
        if not mark:
            return False
        asked = self._asked, self._scale, self._lines_left
        self._ask(question)
        if self._asked is not None and self._asked != asked[0] and self._answers(number, answer.strip()):
            self._asked, self._lines_left = None, 0
            return True
        self._asked, self._scale, self._lines_left = asked
        return False

    def _ask(self, line: str) -> None:
        if self._asks_type(line):
            self._asked, self._lines_left = "dtype", MOST_ANSWER_LINES
        elif (size := _ASKED_SIZE.search(line.rstrip())) is not None:
            self._asked, self._lines_left = "size", MOST_ANSWER_LINES
            self._scale = _SCALES.get(size["scale"].replace(" ", "").lstrip("/"), 1.0)

    def _asks_type(self, line: str) -> bool:
        named = _NAMED_TYPE.search(line)
        return "=" not in line and (
            _ASKED_TYPE.search(line) is not None or (named is not None and named[1] in self._models)
        )

    def _answers(self, number: int, line: str) -> bool:
        found = (_TYPE if self._asked == "dtype" else _SIZE).match(line)
        if found is None:
            return False
        row: dict[str, Any] = {"engine": ENGINE, "line_id": number}
        if self._asked == "dtype":
            told = {"setting": "dtype", "spelled": "model.dtype", "told": found[1], "said_by": "log"}
            self._rows["engine_setting"].append(row | told)
        elif (size := float(found[1]) * self._scale) < MOST_WHOLE:
            self._rows["engine_figure"].append(row | {"figure": "weights", "amount_bytes": round(size)})
        self._is_found = True
        return True
