"""Tables of the nccl-tests and rccl-tests programs (`all_reduce_perf` and the like): time and bandwidth by size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.scanner import batch_of

_PROGRAM = re.compile(
    r"\b(all_reduce|all_gather|reduce_scatter|broadcast|reduce|alltoall|sendrecv|gather|scatter|hypercube)_perf\b"
)
_ROW = re.compile(
    r"\s*(\d{1,13})\s+\d{1,13}\s+[a-z]\w{1,14}\s+(?:[a-z]\w{1,10}\s+)?(?:-?\d{1,5}\s+)?"
    r"(\d{1,9}(?:\.\d{1,4})?)\s+(\d{1,6}(?:\.\d{1,4})?)\s+(\d{1,6}(?:\.\d{1,4})?)\s"
)
_RANK = re.compile(r"#\s+Rank\s{1,4}(\d{1,6}) ")
_MOST_LINE = 400
_MOST_ROWS = 10_000


class NcclTestsScanner:
    """Tables of measured collectives within a text."""

    kind = "nccl-log"
    clues = ("algbw", "_perf", "#  Rank ", "#   Rank ")

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._operation: str | None = None
        self._rank_count: int | None = None
        self._count = 0
        self._open = False

    @property
    def is_open(self) -> bool:
        """Behind the header of a table."""
        return self._open

    def line(self, number: int, text: str) -> None:
        """The program's name, its ranks, the header, or a row."""
        line = " ".join(text[:_MOST_LINE].split()) + " "
        if (program := _PROGRAM.search(line)) is not None:
            self._operation = program.group(1)
        if (rank := _RANK.search(line)) is not None:
            self._rank_count = max(self._rank_count or 0, int(rank.group(1)) + 1)
        elif "algbw" in line and "busbw" in line:
            self._open = True
        elif self._open and (row := _ROW.match(line)) is not None:
            self._take(*row.groups())
        elif self._open and not line.startswith("#") and line.strip():
            self._open = False

    def drain(self) -> Iterator[TableBatch]:
        """Rows so far."""
        if self._rows:
            yield batch_of("collective_bench", self._rows, self.kind)
            self._rows = []

    def facts(self) -> SourceFacts | None:
        """What was found."""
        return SourceFacts(self.kind, "nccl-tests", is_complete=True) if self._count else None

    def _take(self, size: str, microseconds: str, algorithm: str, bus: str) -> None:
        if self._count >= _MOST_ROWS:
            return
        self._count += 1
        self._rows.append(
            {
                "operation": self._operation,
                "size_bytes": int(size),
                "dur_ns": round(float(microseconds) * 1000),
                "algorithm_bytes_per_s": float(algorithm) * 1e9,
                "bus_bytes_per_s": float(bus) * 1e9,
                "rank_count": self._rank_count,
            }
        )
