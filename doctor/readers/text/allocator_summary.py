"""The table that `torch.cuda.memory_summary()` prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.oom_message import size_of
from doctor.readers.text.scanner import batch_of

KIND = "memory-snapshot"
_MOST_LINES = 60
_HEAD = re.compile(r"PyTorch CUDA memory summary, device ID (\d{1,3})")
_COUNTS = re.compile(r"CUDA OOMs:\s{0,20}(\d{1,12})\s{0,20}\|\s{0,20}cudaMalloc retries:\s{0,20}(\d{1,12})")
_ROW = re.compile(
    r"^\s{0,8}\|\s{0,4}(Allocated|Active|GPU reserved|Non-releasable) memory\s{0,20}"
    r"\|\s{0,20}(\d{1,15})\s{1,4}([KMGT]?i?B)\s{0,4}\|"
)
_COLUMNS = {
    "Allocated": "allocated_bytes",
    "Active": "active_bytes",
    "GPU reserved": "reserved_bytes",
    "Non-releasable": "unreleasable_bytes",
}


class AllocatorSummaryScanner:
    """Summaries of PyTorch's caching allocator."""

    kind = KIND
    clues = ("PyTorch CUDA memory summary, device ID",)

    def __init__(self) -> None:
        self._row: dict[str, Any] | None = None
        self._lines = 0
        self._rows: list[dict[str, Any]] = []
        self._has_any = False

    @property
    def is_open(self) -> bool:
        """True inside the table."""
        return self._row is not None

    def line(self, number: int, text: str) -> None:
        """Look at one line."""
        head = _HEAD.search(text)
        if head is not None:
            self._close()
            self._row, self._lines = {"device_id": int(head[1])}, 0
            return
        self._lines += 1
        if self._row is None or self._lines > _MOST_LINES or (self._lines > 1 and "|" not in text):
            self._close()
        elif counts := _COUNTS.search(text):
            self._row |= {"oom_count": int(counts[1]), "retry_count": int(counts[2])}
        elif (found := _ROW.match(text)) and (column := _COLUMNS[found[1]]) not in self._row:
            self._row[column] = size_of(found[2], found[3])

    def drain(self) -> Iterator[TableBatch]:
        """Rows so far."""
        if self._rows:
            yield batch_of("allocator_summary", self._rows, KIND)
        self._rows = []

    def facts(self) -> SourceFacts | None:
        """Facts of the source; None where no table was found."""
        self._close()
        return SourceFacts(kind=KIND, tool="torch", is_complete=True) if self._has_any else None

    def _close(self) -> None:
        if self._row is not None and len(self._row) > 1:
            self._rows.append(self._row)
            self._has_any = True
        self._row = None
