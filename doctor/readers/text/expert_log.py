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
_LIST_HEAD = re.compile(
    r"\btokens (?:per|routed|received|sent|by|on|for|seen)\b[^\n]{0,40}\b(?:rank|expert|gpu)s?\b"
    r"|\b(?:ep|expert)[ -]?(?:parallel )?ranks?\b[^\n]{0,40}\btokens\b",
    re.IGNORECASE,
)
_LIST_ROW = re.compile(
    r"[\s>*\-•]{0,8}(?:ep[ _-]?)?(rank|expert|gpu)[ _#]{0,2}(\d{1,5})\s{0,4}(?:[:=|]|->"
    r"|→)\s{0,4}(\d{1,3}(?:,\d{3}){1,4}|\d{1,12})(?: tokens?)?[\s.,;]{0,4}\Z",
    re.IGNORECASE,
)
_LIST_LINE = re.compile(
    r"\btokens (?:per|routed|received|sent|by|on|for|seen)\b[^\n:=]{0,40}\b(rank|expert"
    r"|gpu)s?\b[^\n\d]{0,16}[:=]\s{0,4}[\[(]?"
    r"(\d[\d.,kKM\s;]{8,2000})",
    re.IGNORECASE,
)
_LIST_AMOUNT = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s?([kKM]?)(?=[\s,;\])]|\Z)")
_LEAST_LIST = 3
_LIST_GAP = 3
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
        "okens by",
        "okens on",
        "okens for",
        "xpert parallel",
        "EP rank",
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
        self._lines_left = 0

    @property
    def is_open(self) -> bool:
        """Behind the header of a table of counts, or the line above a list of them."""
        return bool(self._columns) or self._lines_left > 0

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
        elif (listed := _LIST_LINE.search(text)) is not None and self._listed(listed[1], listed[2]):
            self._lines_left = 0
        elif self._lines_left > 0 and (row := _LIST_ROW.match(text)) is not None:
            self._lines_left = _LIST_GAP
            place = "expert_id" if row[1].lower() == "expert" else "rank"
            self._add({place: int(row[2]), "token_count": int(row[3].replace(",", ""))})
        elif not self._header(text) and self._columns and not self._row(text):
            self._columns = []
        elif not self._columns:
            is_head = _LIST_HEAD.search(text) is not None
            self._lines_left = _LIST_GAP if is_head else max(self._lines_left - 1, 0)

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

    def _listed(self, place: str, amounts: str) -> bool:
        """Counts one behind the other, a rank or an expert each: `512k, 498k, 1.61M`."""
        told = [
            round(float(amount) * {"": 1, "k": 10**3, "m": 10**6}[scale.lower()])
            for amount, scale in _LIST_AMOUNT.findall(amounts.replace(", ", " ; "))
        ]
        if len(told) < _LEAST_LIST:
            return False
        name = "expert_id" if place.lower() == "expert" else "rank"
        for number, count in enumerate(told):
            self._add({name: number, "token_count": count})
        return True

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
