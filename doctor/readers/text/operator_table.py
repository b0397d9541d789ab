"""The table of PyTorch's profiler, `prof.key_averages().table()`: sums of calls, kernels, copies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.profile_sums import MOST
from doctor.readers.text.scanner import batch_of

MOST_ROWS = 5000
_MOST_LINE = 4000
_MOST_NAME = 400
_MOST_OTHER_LINES = 2
_HEADINGS = ("Self CPU", "CPU total", "Self CUDA", "CUDA total", "Self XPU", "XPU total")
_WIDE = re.compile(r"\s{2,}")
_RULE = re.compile(r"[\s\-]{3,4000}\Z")
_COUNT = re.compile(r"[0-9]{1,12}\Z")
_TIME = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(ns|us|μs|µs|ms|s)\Z")
_NS = {"ns": 1, "us": 1_000, "μs": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_CALL = re.compile(r"(?:cuda|hip|cu)[A-Z]\w{2,80}\Z")
_COPY = re.compile(r"Mem(?:cpy|set) \w")


class OperatorTableScanner:
    """Rows under such headings; operators only where the device has no column: else their kernels have rows."""

    kind = "profile-sums"
    clues = ("Self CPU", "# of Calls")

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._places: dict[str, int] = {}
        self._table = -1
        self._count = 0
        self._others = 0

    @property
    def is_open(self) -> bool:
        """True inside a table."""
        return bool(self._places)

    def line(self, number: int, text: str) -> None:
        """Look at one line."""
        cells = _WIDE.split(text[:_MOST_LINE].strip())
        if "# of Calls" in cells and any(heading in cells for heading in _HEADINGS):
            self._places = {cell.lower().replace("xpu", "cuda"): place for place, cell in enumerate(cells)}
            self._table, self._others = self._table + 1, 0
        elif self._places and not _RULE.match(text[:_MOST_LINE]) and not self._take(cells):
            self._others += 1
            if self._others > _MOST_OTHER_LINES or text.startswith("Self CPU time total"):
                self._places = {}

    def drain(self) -> Iterator[TableBatch]:
        """Rows found since the last call."""
        rows, self._rows = self._rows, []
        if rows:
            yield batch_of("profile_sum", rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """Sums; None where the text holds no such table."""
        self._places = {}
        return SourceFacts(self.kind, "PyTorch profiler, table", is_complete=True) if self._count else None

    def _take(self, cells: list[str]) -> bool:
        if len(cells) != len(self._places) or self._count >= MOST_ROWS:
            return False
        name, count = cells[0], cells[self._places["# of calls"]]
        host, device = self._time(cells, "self cpu", "cpu total"), self._time(cells, "self cuda", "cuda total")
        if not _COUNT.match(count) or (host is None and device is None):
            return False
        if _CALL.match(name):
            self._keep("api", name, int(count), host or 0)
        elif _COPY.match(name):
            self._keep("copy", name, int(count), device or 0)
        elif device and not host:
            self._keep("kernel", name, int(count), device)
        elif not any("cuda" in heading for heading in self._places):
            self._keep("operator", name, int(count), host or 0)
        return True

    def _time(self, cells: list[str], *headings: str) -> int | None:
        """The first of the columns that the table has."""
        place = next((self._places[heading] for heading in headings if heading in self._places), None)
        found = None if place is None else _TIME.match(cells[place])
        return None if found is None else int(min(float(found[1]) * _NS[found[2]], MOST))

    def _keep(self, report: str, name: str, count: int, total_ns: int) -> None:
        self._rows.append({
            "table_id": self._table,
            "report": report,
            "name": name[:_MOST_NAME],
            "call_count": count,
            "total_ns": total_ns,
            "mean_ns": total_ns / max(count, 1),
        })  # fmt: skip
        self._count += 1
