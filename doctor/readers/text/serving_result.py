"""What `vllm bench serve`, `vllm bench throughput` and SGLang's `bench_serving` print at their end: a row a run.

Reports put several results below one another, each under a heading or the command of its server: what these say of the
run is its condition, so that two results can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.bench_rows import row_of
from doctor.readers.text.engine_lines import number as figure_of
from doctor.readers.text.engine_lines import whole
from doctor.readers.text.result_heading import conditions_of, filled
from doctor.readers.text.scanner import batch_of

_HEAD = "Serving Benchmark Result"
_LINE = re.compile(r"[\s>|*]{0,12}([A-Z][\w ()/%.\-]{2,60}?):\s{1,40}([\d.,]{1,40}|inf|nan)[\s*|]{0,40}\Z")
FIRST_ROW = 1_000_000
"""Behind every row of a table that stands in the same text."""
MOST_HELD = 1000
"""Results that wait for the end of the text, to be compared; further ones are passed on without a condition."""
_OFFLINE = re.compile(
    r"Throughput: ([\d.]{1,20}) requests/s, ([\d.]{1,20}) (?:total )?tokens/s(?:, ([\d.]{1,20}) output tokens/s)?"
)
_SCRIPT = re.compile(r"\s{0,8}Output throughput: ([\d.]{1,20}) token/s\s{0,8}\Z")
"""What the benchmark scripts of SGLang's repository print."""
_MS = 10**6
_TOTAL_PROMPT = "total_prompt"
_SAME_PROMPTS = 1.1
_FIELDS: dict[str, tuple[str, float]] = {
    "Successful requests": ("completed_count", 1),
    "Total input tokens": (_TOTAL_PROMPT, 1),
    "Maximum request concurrency": ("concurrency_count", 1),
    "Max request concurrency": ("concurrency_count", 1),
    "Concurrency": ("concurrency_count", 1),
    "Request rate configured (RPS)": ("request_rate_hz", 1),
    "Traffic request rate": ("request_rate_hz", 1),
    "Request throughput (req/s)": ("request_hz", 1),
    "Output token throughput (tok/s)": ("output_token_hz", 1),
    "Total Token throughput (tok/s)": ("total_token_hz", 1),
    "Total token throughput (tok/s)": ("total_token_hz", 1),
    "Median TTFT (ms)": ("ttft_p50_ns", _MS),
    "P99 TTFT (ms)": ("ttft_p99_ns", _MS),
    "Median TPOT (ms)": ("tpot_p50_ns", _MS),
    "P99 TPOT (ms)": ("tpot_p99_ns", _MS),
    "Median ITL (ms)": ("itl_p50_ns", _MS),
    "P99 ITL (ms)": ("itl_p99_ns", _MS),
    "Median E2EL (ms)": ("latency_ns", _MS),
    "Median E2E Latency (ms)": ("latency_ns", _MS),
    "P99 E2EL (ms)": ("latency_p99_ns", _MS),
    "Accept length": ("accept_length_count", 1),
    "Acceptance length": ("accept_length_count", 1),
}


class ServingResultScanner:
    """Blocks between a line of `=` with the title and the closing line of `=`."""

    kind = "bench-table"
    clues = (_HEAD, "Throughput: ", "Output throughput: ")
    lead_lines = 24

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._held: list[tuple[dict[str, Any], dict[str, str]]] = []
        self._told: dict[str, str] = {}
        self._look_back: Callable[[], Sequence[str]] = tuple
        self._row: dict[str, Any] | None = None
        self._count = 0
        self._lines_left = 0

    @property
    def is_open(self) -> bool:
        """True inside a result."""
        return self._row is not None

    def lead(self, look_back: Callable[[], Sequence[str]]) -> None:
        """Remember how to see the lines above."""
        self._look_back = look_back

    def line(self, number: int, text: str) -> None:
        """Look at one line."""
        if self._row is None:
            self._told = conditions_of(self._look_back())
        if self._row is None and (found := _OFFLINE.search(text)) is not None:
            values = zip(("request_hz", "total_token_hz", "output_token_hz"), found.groups(), strict=True)
            self._row = {name: value for name, told in values if (value := figure_of(told)) is not None}
            self._close()
        elif self._row is None and (found := _SCRIPT.match(text)) is not None:
            self._row = {"output_token_hz": figure_of(found[1])}
            self._close()
        elif _HEAD in text:
            self._close()
            self._row, self._lines_left = {}, 80
        elif self._row is not None:
            self._lines_left -= 1
            self._field(text)
            if text.lstrip().startswith("=====") or self._lines_left == 0:
                self._close()

    def drain(self) -> Iterator[TableBatch]:
        """Results found since the last call."""
        rows, self._rows = self._rows, []
        if rows:
            yield batch_of("bench_row", rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """The tool; None where the text holds no result."""
        self._close()
        held, self._held = self._held, []
        _fill_prompts([row for row, _ in held])
        for row, told in filled(held):
            condition = row_of((*told.items(), ("output_throughput", 1.0)), "serving") or {}
            kept = {
                name: value
                for name, value in condition.items()
                if name not in {"tool", "output_token_hz"} and value is not None
            }
            self._rows.append({**kept, **row})
        return SourceFacts(self.kind, "serving benchmark", is_complete=True) if self._count else None

    def _field(self, text: str) -> None:
        found = _LINE.match(text)
        if found is None or self._row is None:
            return
        value, known = figure_of(found[2]), _FIELDS.get(found[1].strip())
        if known is not None and value is not None and value != float("inf"):
            column, scale = known
            self._row[column] = whole(value * scale) if column.endswith("_ns") else value

    def _close(self) -> None:
        row, self._row = self._row, None
        if row:
            numbered = {"row_id": FIRST_ROW + self._count, "tool": "serving", **row}
            if len(self._held) < MOST_HELD:
                self._held.append((numbered, self._told))
            else:
                numbered.pop(_TOTAL_PROMPT, None)
                self._rows.append(numbered)
            self._count += 1


def _fill_prompts(rows: Sequence[dict[str, Any]]) -> None:
    """Prompt tokens a request out of the sums: one length for all results of a text, so that they stay comparable."""
    lengths = [
        total / row["completed_count"]
        for row in rows
        if (total := row.pop(_TOTAL_PROMPT, None)) and row.get("completed_count")
    ]
    if lengths and len(lengths) == len(rows) and max(lengths) <= _SAME_PROMPTS * min(lengths):
        for row in rows:
            row["prompt_token_count"] = sum(lengths) / len(lengths)
