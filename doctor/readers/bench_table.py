"""Results of benchmarks: CSV tables, JSON of `vllm bench`, JSON lines of SGLang's `bench_serving`, `engine.bench/1`.

Columns are known by their names, whatever their order; what is neither a known figure nor a short word is dropped.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.errors import DamagedEvidenceError
from doctor.readers.bench_rows import is_header, number_of, row_of
from doctor.readers.protocol import Progress
from doctor.readers.structured_text import contents_of, json_values
from doctor.readers.text.scanner import batch_of

MOST_ROWS = 20_000
_MOST_COUNTS = 200
_MOST_NAME = 60
_ENGINE_BENCH, _COUNTS = "engine-bench", "counts"


class BenchTableReader:
    """A table of throughput or latency."""

    kind = "bench-table"

    def recognises(self, path: Path, head: bytes) -> bool:
        """Tell whether a file is a table of benchmark results.

        Args:
            path: an existing file.
            head: its first 64 KiB after decompression.
        """
        if b"\x00" in head or b"traceEvents" in head[:4096]:
            return False
        if head.lstrip()[:1] not in (b"{", b"["):
            return _has_header(head)
        if not re.search(rb"throughput|latenc|tokens?_per_s|engine\.bench|ttft|tpot|tok_?s|tps", head, re.IGNORECASE):
            return False
        text = contents_of(path)
        return text is not None and any(True for _ in _json_rows(text))

    def read(self, path: Path, progress: Progress) -> Iterator[TableBatch | SourceFacts]:
        """Yield a row for each run.

        Raises:
            DamagedEvidenceError: no line of the table has a figure.
        """
        text = contents_of(path, progress)
        if text is None:
            raise DamagedEvidenceError(f"{path} is larger than any table of benchmarks: give the part that matters")
        source = _json_rows(text) if text.lstrip()[:1] in (b"{", b"[") else _csv_rows(text)
        rows = [{"row_id": place, **row} for place, row in enumerate(source)][:MOST_ROWS]
        if not rows:
            raise DamagedEvidenceError(f"{path} holds no line with a figure: give the table with its header")
        counts = [{"row_id": row["row_id"], **count} for row in rows for count in row.pop(_COUNTS, ())]
        yield batch_of("bench_row", rows, self.kind)
        if counts:
            yield batch_of("bench_count", counts, self.kind)
        yield SourceFacts(self.kind, str(rows[0]["tool"]), is_complete=True)


def _has_header(head: bytes) -> bool:
    lines = head.splitlines()
    if len(lines) < 2 or len(lines[0]) > 4000:
        return False
    first = lines[0].decode("utf-8", errors="replace").lstrip("\ufeff")
    delimiter = max(",;\t", key=first.count)
    return is_header(first.split(delimiter)) and lines[1].count(delimiter.encode()) > 0


def _csv_rows(text: bytes) -> Iterator[dict[str, Any]]:
    plain = text.decode("utf-8", errors="replace").lstrip("\ufeff")
    delimiter = max(",;\t", key=plain.partition("\n")[0].count)
    try:
        for record in csv.DictReader(io.StringIO(plain), delimiter=delimiter):
            row = row_of(((name, value) for name, value in record.items() if name is not None), "table")
            if row is not None:
                yield row
    except csv.Error:  # a field without end: what came before counts
        return


def _json_rows(text: bytes) -> Iterator[dict[str, Any]]:
    for value in json_values(text) or ():
        yield from _rows_in(value, 3)


def _rows_in(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    """Results lie at the top, in a list, or in a list under `results` and the like."""
    if isinstance(value, list) and depth:
        for entry in value:
            yield from _rows_in(entry, depth - 1)
    elif isinstance(value, dict):
        row = row_of(_fields(value), _tool(value))
        if row is not None:
            yield row | ({_COUNTS: _counts(value)} if _tool(value) == _ENGINE_BENCH else {})
        elif depth:
            for inner in value.values():
                if isinstance(inner, list) and inner and isinstance(inner[0], dict):
                    yield from _rows_in(inner, depth - 1)


def _fields(record: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and scalar values; the parts of inner dictionaries by `outer_inner`."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from (
                (f"{name}_{part}", inner) for part, inner in value.items() if not isinstance(inner, dict | list)
            )
        elif not isinstance(value, list):
            yield name, value


def _counts(record: dict[str, Any]) -> list[dict[str, Any]]:
    """What this project's engine counted, by name."""
    told = [record[part] for part in ("counters", "derived") if isinstance(record.get(part), dict)]
    named = ((str(name)[:_MOST_NAME], number_of(value)) for part in told for name, value in part.items())
    return [{"counted": name, "reading": value} for name, value in named if value is not None][:_MOST_COUNTS]


def _tool(record: dict[str, Any]) -> str:
    if record.get("schema") == "engine.bench/1":
        return _ENGINE_BENCH
    if "avg_latency" in record:
        return "vllm-latency"
    if "elapsed_time" in record and "requests_per_second" in record:
        return "vllm-throughput"
    if "endpoint_type" in record or "mean_e2el_ms" in record:
        return "vllm-serve"
    if "mean_e2e_latency_ms" in record or "total_output_tokens_retokenized" in record:
        return "sglang-serve"
    return "serving" if "mean_ttft_ms" in record else "table"
