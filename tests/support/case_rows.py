"""A case made of a few rows, put in through the loader, so that every number of a derived table can be told by hand.

Times are microseconds; rows of one source, process 1, device 0 unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

from doctor.case import schema
from doctor.case.batch import SourceFacts, TableBatch
from doctor.case.derive import WindowChoice, derive
from doctor.case.load import CaseLoader
from doctor.case.store import create_case

Row = Mapping[str, Any]
GEMM, ADD, HEAD = "some_gemm_kernel", "vectorized_elementwise_kernel", "the_head_gemm_kernel"
PID = TID = 1


@dataclass
class Rows:
    """Rows by table; each method adds one and gives back its correlation id where it has one."""

    tables: dict[str, list[Row]] = field(default_factory=dict)
    correlation: int = 0

    def call(self, name: str, start: float, end: float, *, tid: int = TID, pid: int = PID) -> int:
        """A call of the host."""
        self.correlation += 1
        self._add("api_call", start, end, name=name, tid=tid, pid=pid, correlation_id=self.correlation)
        return self.correlation

    def kernel(self, name: str, start: float, end: float, correlation: int = 0, **where: int) -> None:
        """A kernel; `correlation` 0 is one without a launch."""
        self._op("kernel", start, end, correlation, where, name=name, grid_x=1, grid_y=1, grid_z=1)

    def copy(self, kind: str, start: float, end: float, correlation: int = 0, **where: int) -> None:
        """A copy of 64 bytes between the device and pinned memory: `htod` or `dtoh`."""
        self._op("memcpy", start, end, correlation, where, copy_kind=kind, size_bytes=64)

    def graph(self, start: float, end: float, correlation: int = 0, **where: int) -> None:
        """A whole graph launch as one row."""
        self._op("graph_trace", start, end, correlation, where, graph_id=1)

    def launched(self, name: str, call_start: float, start: float, end: float, **where: int) -> None:
        """A kernel and its launch of 2 us."""
        self.kernel(name, start, end, self.call("cudaLaunchKernel", call_start, call_start + 2), **where)

    def annotation(self, name: str, start: float, end: float) -> None:
        """A range of the launching thread."""
        self._add("nvtx_range", start, end, name=name, tid=TID, pid=PID, range_kind="push_pop")

    def operator(self, name: str, start: float, end: float) -> None:
        """An operator of the framework."""
        self._add("host_op", start, end, name=name, tid=TID, pid=PID, op_kind="cpu_op")

    def case(self) -> duckdb.DuckDBPyConnection:
        """The case, not derived yet."""
        connection = create_case()
        CaseLoader(connection).load("made.sqlite", self._batches())
        return connection

    def derived(self, choice: WindowChoice | None = None) -> duckdb.DuckDBPyConnection:
        """The case with its derived tables."""
        connection = self.case()
        derive(connection, choice)
        return connection

    def _op(self, table: str, start: float, end: float, correlation: int, where: Row, **columns: Any) -> None:
        place = {"device_id": 0, "stream_id": 7, "pid": PID} | dict(where)
        self._add(table, start, end, correlation_id=correlation or None, **columns | place)

    def _add(self, table: str, start: float, end: float, **columns: Any) -> None:
        times = {"start_ns": round(start * 1000), "end_ns": round(end * 1000)}
        self.tables.setdefault(table, []).append(times | columns)

    def _batches(self) -> Iterator[TableBatch | SourceFacts]:
        for table, rows in self.tables.items():
            yield TableBatch(table, _arrow(table, rows))
        yield SourceFacts("nsys-sqlite", "made by hand", True)


def _arrow(table: str, rows: Sequence[Row]) -> pa.Table:
    types = {"INTEGER": pa.int32(), "BIGINT": pa.int64()}
    columns = schema.metadata.tables[table].columns
    return pa.table(
        {
            name: pa.array([row[name] for row in rows], types.get(str(columns[name].type)) if name in columns else None)
            for name in rows[0]
        }
    )


def us(nanoseconds: int | None) -> float | None:
    """Back to microseconds."""
    return None if nanoseconds is None else nanoseconds / 1000
