"""Samples of NVML as `doctor vitals --format json` and `doctor record` write them: one JSON object a line.

Also read: the same as a Parquet file with a row a line, and JSON objects that scripts write with NVML's own words
(`used`, `sm_clock`, `power_mw`, `throttle`, `processes`), pretty-printed or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import BigInteger, Column

from doctor.case import schema
from doctor.case.batch import SourceFacts, TableBatch
from doctor.errors import DamagedEvidenceError
from doctor.formats.nvidia_smi.script_sample import is_script_sample, rows_of_script_sample
from doctor.readers.evidence_file import open_evidence
from doctor.readers.protocol import Progress

SCHEMA = "doctor.vitals/1"
TABLES: Mapping[str, str] = {
    "gpus": "gpu_sample",
    "processes": "gpu_process",
    "instances": "mig_instance",
    "links": "gpu_link",
    "affinities": "gpu_affinity",
    "host": "host_sample",
    "host_processes": "host_process",
    "cgroup": "cgroup_cpu",
    "pressure": "pressure",
}
_PARQUET = b"PAR1"
_BATCH_ROWS = 4096
_MOST_LINE_BYTES = 4 * 2**20
_MOST_OBJECT_BYTES = 16 * 2**20
_MARK = re.compile(rb'"schema"\s{0,4}:\s{0,4}"doctor\.vitals/\d')


class NvmlSamplesReader:
    """Samples over time, or one look."""

    kind = "nvml"

    def recognises(self, path: Path, head: bytes) -> bool:
        """Told by the schema's name in the first line, the columns of a Parquet file, or the words of NVML."""
        if head.startswith(_PARQUET):
            return _is_samples(path)
        start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
        if not start.startswith(b"{"):
            return False
        return _MARK.search(start[:4096]) is not None or is_script_sample(_object(start) or _first_line(start))

    def read(self, path: Path, progress: Progress) -> Iterator[TableBatch | SourceFacts]:
        """Yield rows by table, then the facts.

        Raises:
            DamagedEvidenceError: not one sample can be read.
        """
        samples = _Samples()
        lines = _parquet_lines(path) if open_evidence(path).head()[:4] == _PARQUET else _text_lines(path, progress)
        for number, line in enumerate(lines):
            samples.take(number, line)
            if samples.row_count >= _BATCH_ROWS:
                yield from samples.batches()
        yield from samples.batches()
        if not samples.count:
            raise DamagedEvidenceError(f"{path} holds no whole sample: record again")
        yield samples.facts()


class _Samples:
    """Rows by table until they are given out."""

    def __init__(self) -> None:
        self.count = 0
        self.row_count = 0
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._damaged = 0
        self._unknown: set[str] = set()
        self._tool: str | None = None
        self._times: list[int] = []

    def take(self, look_id: int, line: bytes | None) -> None:
        """One sample; None is a line over the bound."""
        found = None if line is None else _object(line)
        if found is None:
            self._damaged += 1
            return
        if is_script_sample(found):
            tables: Mapping[str, Any] = rows_of_script_sample(found)
        else:
            tables = {table: found.get(name) for name, table in TABLES.items()}
        time_ns = found.get("time_ns")
        if not isinstance(time_ns, int) or isinstance(time_ns, bool) or not 0 < time_ns < 2**62:
            time_ns = None
        else:
            self._times = [min(self._times[:1] or [time_ns]), time_ns]
        tool = found.get("tool")
        self._tool = self._tool or (tool[:60] if isinstance(tool, str) else None)
        self.count += 1
        for table, rows in tables.items():
            self._take_rows(table, rows if isinstance(rows, list) else [rows], look_id, time_ns)

    def batches(self) -> Iterator[TableBatch]:
        """Everything taken since the last call."""
        for table, rows in self._rows.items():
            yield TableBatch(table, _typed(table, rows))
        self._rows, self.row_count = {}, 0

    def facts(self) -> SourceFacts:
        """The samples' span and what was lost."""
        notes = [f"{self._damaged} lines are no whole sample and were left out"] if self._damaged else []
        if self._unknown:
            notes.append(f"figures that are not known here were left out: {', '.join(sorted(self._unknown)[:5])}")
        start, end = (self._times[0], self._times[-1]) if self._times else (None, None)
        return SourceFacts(
            NvmlSamplesReader.kind,
            self._tool,
            is_complete=not self._damaged,
            notes=tuple(notes),
            capture_start_ns=start,
            capture_end_ns=end,
            clock_offset_ns=0 if self._times else None,
        )

    def _take_rows(self, table: str, rows: list[Any], look_id: int, time_ns: int | None) -> None:
        columns = schema.metadata.tables[table].columns
        for row in rows:
            if not isinstance(row, dict) or not row:
                continue
            kept = {name: value for name, value in row.items() if name in columns and name != "source_id"}
            self._unknown |= {name[:40] for name in row if name not in columns and name.isidentifier()}
            if "look_id" in columns:
                kept["look_id"] = look_id
            if "time_ns" in columns:
                kept["time_ns"] = time_ns
            self._rows.setdefault(table, []).append(kept)
            self.row_count += 1


def _typed(table: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows with each column in the type that the case wants; a value of another type is unknown."""
    columns = schema.metadata.tables[table].columns
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: [_fitting(columns[name], row.get(name)) for row in rows] for name in names})


def _fitting(column: Column[Any], value: Any) -> Any:
    wanted = column.type.python_type
    if isinstance(value, bool):
        return value if wanted is bool else None
    if wanted is int:
        most = 2**62 if isinstance(column.type, BigInteger) else 2**31
        return value if isinstance(value, int) and abs(value) < most else None
    if wanted is float:
        return float(value) if isinstance(value, int | float) and abs(value) < 1e30 else None
    return value[:200] if wanted is str and isinstance(value, str) else None


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) else None


def _first_line(text: bytes) -> dict[str, Any] | None:
    return _object(text.split(b"\n", 1)[0])


def _text_lines(path: Path, progress: Progress) -> Iterator[bytes | None]:
    """Lines of the file; a file that is one object over many lines is one line."""
    pending, whole, is_first = b"", b"", True
    for chunk in open_evidence(path).chunks(progress):
        if is_first and not _begins_with_a_line(chunk):
            whole += chunk
            if len(whole) > _MOST_OBJECT_BYTES:
                yield None
                return
            continue
        is_first = False
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield line if len(line) <= _MOST_LINE_BYTES else None
        if len(pending) > _MOST_LINE_BYTES:
            yield None
            pending = b""
    if whole.strip():
        yield whole.lstrip(b"\xef\xbb\xbf")
    elif pending.strip():
        yield pending


def _begins_with_a_line(chunk: bytes) -> bool:
    return _first_line(chunk.lstrip(b"\xef\xbb\xbf \t\r\n")) is not None


def _is_samples(path: Path) -> bool:
    try:
        names = pq.read_schema(path).names
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return False
    return "vitals_json" in names


def _parquet_lines(path: Path) -> Iterator[bytes | None]:
    """One sample a row, in the column `vitals_json`."""
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024, columns=["vitals_json"]):
                for value in batch.column(0).to_pylist():
                    yield str(value).encode() if value is not None else None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DamagedEvidenceError(f"{path} is a damaged Parquet file: {str(error).splitlines()[0]}") from error
