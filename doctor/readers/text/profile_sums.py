"""Sums of `nsys stats` and of nvprof: tables by columns, by bars or by commas, whole or pasted in part.

A table says what it sums by its title, else by its headings and by the names in it. A row without headings is taken
where its total is its count times its mean: no other table has that.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.scanner import batch_of

MOST_ROWS = 20_000
_MOST_LINE = 4000
_MOST_NAME = 400
_MOST_OTHER_LINES = 2
_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "sec": 1_000_000_000}
_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_FIELDS = {
    "time": "share", "totaltime": "total", "total": "total", "numcalls": "count", "calls": "count",
    "instances": "count", "count": "count", "operations": "count", "avg": "mean", "average": "mean", "med": "median",
    "median": "median", "min": "least", "minimum": "least", "max": "most", "maximum": "most", "stddev": "spread",
    "name": "name", "range": "name", "operation": "name", "function": "name", "kernelname": "name", "style": "style",
    "category": "style", "gridxyz": "grid", "blockxyz": "grid", "type": "type",
}  # fmt: skip
_HEADING = re.compile(
    r"(Total Time|Time|Total|Num Calls|Calls|Instances|Count|Operations|Avg|Average|Med|Median|Min|Minimum|Max|Maximum"
    r"|StdDev|Name|Range|Operation|Function|Kernel Name|Style|Category|GridXYZ|BlockXYZ|Type)"
    r"(?: {0,2}\((%|\w{1,3})\))?",
    re.IGNORECASE,
)
_TITLE = re.compile(
    r"\((?:cuda_?)?(api|gpu_?kern|kern|gpu_?mem_?time|gpu_?mem_?size|nvtx|osrt)\w{0,20}\)", re.IGNORECASE
)
_OLD_TITLE = re.compile(
    r"(CUDA API|CUDA (?:GPU )?Kernel|Operating System Runtime API|NVTX)\w{0,12} (?:Statistics|Summary)"
)
_REPORTS = {
    "api": "api", "gpukern": "kernel", "kern": "kernel", "gpumemtime": "copy", "gpumemsize": "size", "nvtx": "range",
    "osrt": "os", "cudaapi": "api", "cudakernel": "kernel", "cudagpukernel": "kernel",
    "operatingsystemruntimeapi": "os",
}  # fmt: skip
_NUMBER = r"\d[\d.,]{0,30}"
_TIME = rf"({_NUMBER})(ns|us|ms|s)\s{{1,20}}"
_NVPROF = re.compile(
    rf"\s{{0,60}}(?:(GPU activities|API calls):)?\s{{0,20}}({_NUMBER})%\s{{1,20}}{_TIME}(\d{{1,12}})\s{{1,20}}"
    rf"{_TIME}{_TIME}{_TIME}(\S.{{0,{_MOST_NAME}}})"
)
_BARE = re.compile(
    rf"\s{{0,60}}({_NUMBER}%?(?:\s{{1,30}}{_NUMBER}){{5,7}})\s{{1,30}}([A-Za-z_\[(:][^|]{{1,{_MOST_NAME}}})"
)
_CUDA_CALL = re.compile(r"cu(?:da)?[A-Z]\w{2,80}(?:_v\d{1,6})?\Z")
_GRID = re.compile(r"(?:\d{1,10}\s{1,10}){6}")
_QUOTE = re.compile(r"\A\s{0,8}(?:>\s?){1,8}")
_RULE = re.compile(r"[\s|:+=\-]{3,4000}\Z")
_CLUES = (
    "Total Time (", "Total Time", "Time (%)", "Time(%)", "Profiling result:", "GPU activities:", "API calls:", "_sum)",
    "apisum)", "kernsum)", "timesum)", "sizesum)", "Kernel Statistics", "API Statistics", "Total (MB)", "[CUDA mem",
    "cudaLaunchKernel", "cudaMemcpy", "cudaStreamSync", "cudaDeviceSync", "cudaEventSync", "cudaMalloc", "cudaFree",
    "ncclDevKernel", "ncclKernel", "cuLaunchKernel", "void ", "nvjet", "gemm", "flash_fwd",
)  # fmt: skip
MOST = 2**52
"""Of any figure: 52 days in ns, 4 PiB. What is larger is cut to this, so that no sum of many leaves 64 bits."""


class ProfileSumsScanner:
    """Tables of sums over a whole recording."""

    kind = "profile-sums"
    clues = _CLUES

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._report: str | None = None
        self._names: list[tuple[str, int]] = []
        self._delimiter = ""
        self._table = -1
        self._count = 0
        self._others = 0
        self._tool: str | None = None
        self._is_pending = False

    @property
    def is_open(self) -> bool:
        """True inside a table, and behind its title."""
        return bool(self._names) or self._is_pending

    def line(self, number: int, text: str) -> None:
        """Look at one line."""
        text = _QUOTE.sub("", text[:_MOST_LINE], count=1)
        if (title := _report_of(text)) is not None:
            self._begin(title)
        elif self._take_nvprof(text) or _RULE.match(text):
            self._others = 0
        elif (found := _headings(text)) is not None:
            self._begin(self._report if self._is_pending else None)
            self._names, self._delimiter = found
            self._is_pending = False
        elif not (self._take_json(text) or self._take(text)):
            self._others += 1
            if self._others > _MOST_OTHER_LINES or (self._names and not text.strip()):
                self._names, self._is_pending, self._report = [], False, None

    def drain(self) -> Iterator[TableBatch]:
        """Rows found since the last call."""
        rows, self._rows = self._rows, []
        if rows:
            yield batch_of("profile_sum", rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """Sums; None where the text holds none."""
        self._names, self._is_pending = [], False
        if not self._count:
            return None
        note = "sums of a profile: neither order nor overlap nor idle time is in them; the recording itself tells more"
        return SourceFacts(self.kind, self._tool or "nsys stats", is_complete=True, notes=(note,))

    def _begin(self, report: str | None) -> None:
        self._table += 1
        self._others, self._report, self._names, self._is_pending = 0, report, [], True

    def _take_nvprof(self, text: str) -> bool:
        if "==" in text and "Profiling result:" in text:
            self._begin(None)
            return True
        found = _NVPROF.match(text)
        if found is None:
            return False
        if found[1] is not None:
            self._report = "api" if found[1] == "API calls" else "kernel"
        times = [_number(found[place]) * _NS[found[place + 1]] for place in (3, 6, 8, 10)]
        self._tool, self._is_pending = "nvprof", True
        values = {
            "share": _number(found[2]),
            "total": times[0],
            "count": float(found[5]),
            "mean": times[1],
            "least": times[2],
            "most": times[3],
        }
        self._keep(values, found[12])
        return True

    def _take_json(self, text: str) -> bool:
        """A line of `nsys stats --format json`: an object a row."""
        body = text.strip().strip("[],")
        if not body.startswith("{") or '"Total' not in body:
            return False
        try:
            told = json.loads(body)
        except ValueError:
            return False
        fields = [(_field(heading), str(value)) for heading, value in told.items()]
        known = [(field, value) for field, value in fields if field is not None]
        if self._table < 0:
            self._begin(None)
        return self._take_cells([field for field, _ in known], [value for _, value in known])

    def _take(self, text: str) -> bool:
        if not self._names:
            return self._take_bare(text)
        if self._delimiter:
            cells = _parted(text, self._delimiter)
            if self._delimiter == ";":  # where the semicolon parts cells, the comma parts decimals
                cells = [_pointed(cell) for cell in cells]
            return self._take_cells(self._names, cells)
        numbered = [name for name in self._names if name[0] not in {"name", "style", "grid", "type"}]
        parts = text.split(maxsplit=len(numbered))
        if len(parts) <= len(numbered):
            return False
        name = parts[-1]
        if any(field == "grid" for field, _ in self._names):
            name = _GRID.sub("", name, count=1)
        if any(field == "style" for field, _ in self._names):
            name = name.partition(" ")[2].strip() or name
        return self._take_cells([*numbered, ("name", 1)], [*parts[:-1], name])

    def _take_bare(self, text: str) -> bool:
        """Numbers and a name without headings: taken where the total is count times mean."""
        found = _BARE.match(text)
        if found is None:
            return False
        numbers = [_number(cell) for cell in found[1].split()]
        if len(numbers) == 6:
            share, total, count, mean, least, most = numbers
        else:
            share, total, count, mean = numbers[:4]
            least, most = numbers[5:7] if len(numbers) == 8 else numbers[4:6]
        if math.isnan(sum(numbers)) or count < 1 or abs(total - count * mean) > 0.01 * total + count:
            return False
        if self._table < 0 or not self._is_pending:
            self._begin(self._report)
        values = {"share": share, "total": total, "count": count, "mean": mean, "least": least, "most": most}
        self._keep(values, found[2])
        return True

    def _take_cells(self, names: Sequence[tuple[str, int]], cells: Sequence[str]) -> bool:
        """A row under its headings; False where the cells are no numbers."""
        values: dict[str, float] = {}
        name = ""
        for (field, scale), cell in zip(names, cells, strict=False):
            if field == "name":
                name = cell.strip().strip("`")
            elif field in {"share", "total", "count", "mean", "least", "most"}:
                values[field] = _number(cell) * scale
        if not name or "total" not in values or "count" not in values or math.isnan(sum(values.values())):
            return False
        self._keep(values, name)
        return True

    def _keep(self, values: Mapping[str, float], name: str) -> None:
        self._others = 0
        if self._count >= MOST_ROWS or math.isnan(sum(values.values())):
            return
        report = _report_of_row(name.strip(), self._report, self._names)
        is_size = report == "size"
        self._rows.append({
            "table_id": self._table,
            "report": report,
            "name": name.strip()[:_MOST_NAME],
            "call_count": int(min(values["count"], MOST)),
            "total_ns": None if is_size else int(min(values["total"], MOST)),
            "time_share": None if is_size else _share(values.get("share")),
            "mean_ns": None if is_size else values["total"] / max(values["count"], 1.0),
            "least_ns": None if is_size else _whole(values.get("least")),
            "most_ns": None if is_size else _whole(values.get("most")),
            "size_bytes": int(min(values["total"], MOST)) if is_size else None,
        })  # fmt: skip
        self._count += 1


def _report_of(text: str) -> str | None:
    """What a title says that its table sums."""
    found = _TITLE.search(text) or _OLD_TITLE.search(text)
    if found is None or re.match(r"\s{0,8}\d", text):
        return None
    return _REPORTS.get(re.sub(r"[^a-z]", "", found[1].lower()))


def _report_of_row(name: str, report: str | None, names: Sequence[tuple[str, int]]) -> str:
    """What one row sums: its name tells it before its table does."""
    if name.lower().startswith(("[cuda mem", "cuda mem")):
        return (
            "size"
            if report == "size" or any(field == "total" and scale in _SIZES for field, scale in names)
            else "copy"
        )
    if _CUDA_CALL.match(name):
        return "api"
    return report if report in {"kernel", "range", "os"} else "kernel"


_SIZES = frozenset(size for size in _BYTES.values() if size not in _NS.values())


def _headings(text: str) -> tuple[list[tuple[str, int]], str] | None:
    """Fields with their units, and what parts them; None where the line is none of headings."""
    if not re.search(r"(?:Time|Total)\b", text) or not re.search(r"Calls|Instances|Count|Operations", text):
        return None
    delimiter = next((mark for mark in "|\t;," if text.count(mark) >= 4), "")
    if delimiter:
        cells = _parted(text, delimiter)
        named = [_field(cell) or ("", 1) for cell in cells]
    else:
        named = [field for found in _HEADING.finditer(text) if (field := _field(found[0])) is not None]
    known = {field for field, _ in named}
    return (named, delimiter) if {"total", "count", "name"} <= known and len(known) >= 4 else None


def _field(heading: str) -> tuple[str, int] | None:
    """Field and factor to ns or bytes of a heading such as `Total Time (ms)`."""
    word, _, unit = heading.strip().strip('"').lower().partition("(")
    unit = unit.rstrip(") ")
    field = _FIELDS.get(re.sub(r"[^a-z]", "", word))
    if field is None or (field == "share" and unit != "%"):
        return ("total", _NS[unit]) if field == "share" and unit in _NS else None
    return field, _NS.get(unit) or _BYTES.get(unit) or 1


def _parted(text: str, delimiter: str) -> list[str]:
    """Cells of a line; none where its quotation marks are broken."""
    if delimiter == "|":
        return [cell.strip() for cell in text.strip().strip("|").split("|")]
    try:
        return next(csv.reader([text], delimiter=delimiter), [])
    except csv.Error:
        return []


def _number(cell: str) -> float:
    """A number as these tools print it, thousands parted by commas; NaN where it is none."""
    try:
        return float(cell.strip().rstrip("%").replace(",", ""))
    except ValueError:
        return float("nan")


def _pointed(cell: str) -> str:
    """`1.234,5` as `1234.5`; a name as it is."""
    is_number = re.fullmatch(r"[\d.]{1,30},\d{1,20}", cell.strip()) is not None
    return cell.replace(".", "").replace(",", ".") if is_number else cell


def _share(percent: float | None) -> float | None:
    return percent / 100 if percent is not None and 0 <= percent <= 100 else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(min(value, MOST))
