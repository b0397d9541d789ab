"""Cases of a few calls and kernels, in a real case file with its real derived tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from doctor.case.batch import SourceFacts, TableBatch
from doctor.case.derive import derive
from doctor.case.load import CaseLoader
from doctor.case.store import create_case


@dataclass(frozen=True)
class Call:
    """A host call, in microseconds; its correlation id is its place in the list, counted from 1, if not given."""

    name: str
    start: float
    end: float
    pid: int = 1
    tid: int = 1
    correlation_id: int | None = None


@dataclass(frozen=True)
class Kernel:
    """A kernel, in microseconds, and the place of its launch in the list of calls, counted from 1; 0 is none."""

    start: float
    end: float
    launch: int
    stream: int = 7
    device: int = 0
    pid: int = 1
    name: str = "gemm_kernel"


@dataclass(frozen=True)
class Copy:
    """A copy of 1 MiB, in microseconds, and the place of its call in the list of calls, counted from 1."""

    start: float
    end: float
    launch: int
    copy_kind: str
    src_kind: str
    dst_kind: str
    stream: int = 7


def case_of(calls: Sequence[Call], kernels: Sequence[Kernel], copies: Sequence[Copy] = ()) -> duckdb.DuckDBPyConnection:
    """A derived case; ids of calls and operations are their places in order of start, counted from 0."""
    connection = create_case()
    CaseLoader(connection).load("made.sqlite", _batches(calls, kernels, copies))
    derive(connection)
    return connection


def _batches(
    calls: Sequence[Call], kernels: Sequence[Kernel], copies: Sequence[Copy]
) -> Iterator[TableBatch | SourceFacts]:
    if calls:
        yield TableBatch("api_call", _call_rows(calls))
    if kernels:
        yield TableBatch("kernel", _kernel_rows(kernels, _correlation_ids(calls)))
    if copies:
        yield TableBatch("memcpy", _copy_rows(copies, _correlation_ids(calls)))
    yield SourceFacts("nsys-sqlite", "made by hand", True)


def _ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def _call_rows(calls: Sequence[Call]) -> pa.Table:
    return pa.table(
        {
            "pid": [call.pid for call in calls],
            "tid": [call.tid for call in calls],
            "start_ns": [_ns(call.start) for call in calls],
            "end_ns": [_ns(call.end) for call in calls],
            "name": [call.name for call in calls],
            "correlation_id": _correlation_ids(calls),
        }
    )


def _correlation_ids(calls: Sequence[Call]) -> list[int]:
    return [place if call.correlation_id is None else call.correlation_id for place, call in enumerate(calls, 1)]


def _kernel_rows(kernels: Sequence[Kernel], ids: Sequence[int]) -> pa.Table:
    return pa.table(
        {
            "pid": [kernel.pid for kernel in kernels],
            "device_id": pa.array([kernel.device for kernel in kernels], pa.int32()),
            "stream_id": [kernel.stream for kernel in kernels],
            "correlation_id": [ids[kernel.launch - 1] if kernel.launch else None for kernel in kernels],
            "start_ns": [_ns(kernel.start) for kernel in kernels],
            "end_ns": [_ns(kernel.end) for kernel in kernels],
            "name": [kernel.name for kernel in kernels],
        }
    )


def _copy_rows(copies: Sequence[Copy], ids: Sequence[int]) -> pa.Table:
    return pa.table(
        {
            "pid": [1 for _ in copies],
            "device_id": pa.array([0 for _ in copies], pa.int32()),
            "stream_id": [copy.stream for copy in copies],
            "correlation_id": [ids[copy.launch - 1] for copy in copies],
            "start_ns": [_ns(copy.start) for copy in copies],
            "end_ns": [_ns(copy.end) for copy in copies],
            "size_bytes": [1 << 20 for _ in copies],
            "copy_kind": [copy.copy_kind for copy in copies],
            "src_kind": [copy.src_kind for copy in copies],
            "dst_kind": [copy.dst_kind for copy in copies],
        }
    )
