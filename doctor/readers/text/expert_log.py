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
    "rank": "rank", "ep_rank": "rank", "gpu": "rank", "device": "rank", "rank_id": "rank",
    "expert": "expert_id", "expert_id": "expert_id",
    "tokens": "token_count", "token_count": "token_count", "num_tokens": "token_count", "count": "token_count",
    "tokens_per_step": "token_count", "routed_tokens": "token_count", "tokens_routed": "token_count",
    "tokens_received": "token_count", "received_tokens": "token_count", "tokens_per_rank": "token_count",
    "tokens_per_expert": "token_count", "avg_tokens": "token_count", "mean_tokens": "token_count",
}  # fmt: skip
_NUMBER = re.compile(r"\d{1,9}(?:\.0{1,6})?$")
_RULE = re.compile(r"[\s|:+\-]{3,400}\Z")
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
        "| tokens",
        "| Tokens",
        "tokens |",
        "Tokens |",
        "okens per",
        "okens routed",
        "okens received",
        "outed tokens",
        "\ttokens",
        ";tokens",
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
        cells = [re.sub(r"[ \-]", "_", re.sub(r"[*`]|\(.{0,20}?\)", "", cell).strip()) for cell in _cells(text.lower())]
        if not 2 <= len(cells) <= _MOST_COLUMNS:
            return False
        columns = [_COLUMNS.get(cell) for cell in cells]
        if "token_count" not in columns or not {"rank", "expert_id"} & set(columns):
            return False
        self._columns = columns
        return True

    def _row(self, text: str) -> bool:
        if _RULE.match(text):
            return True
        told = list(zip(self._columns, cells, strict=True)) if len(cells := _cells(text)) == len(self._columns) else []
        kept = [(name, cell.replace(",", "")) for name, cell in told if name is not None]
        if not kept or not all(_NUMBER.match(cell) for _, cell in kept):
            return False
        values = {name: int(float(cell)) for name, cell in kept}
        self._add(values)
        return True


def _cells(text: str) -> list[str]:
    """Cells of a line, parted by bars, tabs, semicolons or commas."""
    delimiter = next((mark for mark in "|\t;" if mark in text), ",")
    return [cell.strip() for cell in text.strip().strip("|").split(delimiter)]


def _whole(text: str | None) -> int | None:
    return None if text is None else int(text)
