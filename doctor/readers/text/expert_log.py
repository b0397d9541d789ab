"""How evenly experts are used: vLLM's `EPLB step`, SGLang's `[Expert Balancedness]`, and tables of counts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.scanner import batch_of

_VLLM = re.compile(
    r"EPLB step:(?: (\d{1,9}) for model .{0,200}?:)? avg_tokens=(\d{1,12}(?:\.\d{1,6})?), max_tokens=(\d{1,12}),"
    r"\s?balancedness=(\d\.\d{1,6})"
)
_SGLANG = re.compile(r"\[Expert Balancedness\] forward_pass_id=(\d{1,12}) current_pass_balancedness=(\d\.\d{1,6})")
_COLUMNS = {
    "step": "step_id", "step_id": "step_id", "forward_pass_id": "step_id", "iteration": "step_id",
    "layer": "layer_id", "layer_id": "layer_id",
    "rank": "rank", "ep_rank": "rank", "gpu": "rank",
    "expert": "expert_id", "expert_id": "expert_id",
    "tokens": "token_count", "token_count": "token_count", "num_tokens": "token_count", "count": "token_count",
}  # fmt: skip
_NUMBER = re.compile(r"\d{1,9}(?:\.0{1,6})?$")
_MOST_LINE = 2000
_MOST_COLUMNS = 8


class ExpertLogScanner:
    """Lines and tables that tell of experts' load."""

    kind = "engine-log"
    clues = (
        "EPLB step:",
        "[Expert Balancedness]",
        "expert,",
        "expert_id,",
        "rank,",
        ",tokens",
        ",token_count",
        ",num_tokens",
    )

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._columns: list[str | None] = []
        self._count = 0

    @property
    def is_open(self) -> bool:
        """Behind the header of a table of counts."""
        return bool(self._columns)

    def line(self, number: int, text: str) -> None:
        """One line of a log, a header, or a row."""
        text = text[:_MOST_LINE]
        if (vllm := _VLLM.search(text)) is not None:
            step, mean, _, balance = vllm.groups()
            self._add(
                {
                    "step_id": _whole(step),
                    "token_count": round(float(mean)),
                    "balancedness_share": float(balance),
                    "window_count": 1,
                }
            )
        elif (sglang := _SGLANG.search(text)) is not None:
            self._add(
                {"step_id": int(sglang.group(1)), "balancedness_share": float(sglang.group(2)), "window_count": 1}
            )
        elif not self._header(text) and self._columns and not self._row(text):
            self._columns = []

    def drain(self) -> Iterator[TableBatch]:
        """Rows so far."""
        if self._rows:
            yield batch_of("expert_load", self._rows, self.kind)
            self._rows = []

    def facts(self) -> SourceFacts | None:
        """What was found."""
        return SourceFacts(self.kind, None, is_complete=True) if self._count else None

    def _add(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        self._count += 1

    def _header(self, text: str) -> bool:
        cells = [cell.strip().lower() for cell in text.strip().split(",")]
        if not 2 <= len(cells) <= _MOST_COLUMNS:
            return False
        columns = [_COLUMNS.get(cell) for cell in cells]
        if "token_count" not in columns or not {"rank", "expert_id"} & set(columns):
            return False
        self._columns = columns
        return True

    def _row(self, text: str) -> bool:
        cells = [cell.strip() for cell in text.strip().split(",")]
        if len(cells) != len(self._columns) or not all(_NUMBER.match(cell) for cell in cells):
            return False
        values = {name: int(float(cell)) for name, cell in zip(self._columns, cells, strict=True) if name is not None}
        self._add(values)
        return True


def _whole(text: str | None) -> int | None:
    return None if text is None else int(text)
