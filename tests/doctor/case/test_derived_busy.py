"""Busy and idle time: a union of intervals, graph rows included."""

from __future__ import annotations

import duckdb

from doctor.case.derive import WindowChoice
from tests.support.case_rows import ADD, GEMM, Rows

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
WHOLE = WindowChoice(span_ns=(0, 100_000))


def busy(case: duckdb.DuckDBPyConnection, device: int = 0) -> dict[str, float]:
    """Microseconds of each kind on one device."""
    names = ("busy_ns", "idle_ns", "compute_ns", "exposed_communication_ns", "exposed_copy_ns")
    [row] = case.execute(f"SELECT {', '.join(names)} FROM device_busy WHERE device_id = {device}").fetchall()
    return {name.removesuffix("_ns"): value / 1000 for name, value in zip(names, row, strict=True)}


def gaps(case: duckdb.DuckDBPyConnection) -> list[tuple[float, float]]:
    rows = case.execute("SELECT start_ns, end_ns FROM device_gap ORDER BY start_ns").fetchall()
    return [(start_ns / 1000, end_ns / 1000) for start_ns, end_ns in rows]


def test_concurrent_streams_count_once() -> None:
    rows = Rows()
    rows.kernel(GEMM, 10, 30, stream_id=1)
    rows.kernel(GEMM, 20, 50, stream_id=2)
    rows.kernel(GEMM, 25, 28, stream_id=3)
    case = rows.derived(WHOLE)
    assert busy(case) == {
        "busy": 40, "idle": 60, "compute": 40, "exposed_communication": 0, "exposed_copy": 0,
    }  # fmt: skip
    assert gaps(case) == [(0, 10)]


def test_a_gap_ends_with_the_operation_that_ends_it() -> None:
    rows = Rows()
    rows.kernel(GEMM, 0, 10)
    rows.kernel(ADD, 15, 20)
    rows.kernel(ADD, 20, 30)
    rows.kernel(GEMM, 60, 100)
    case = rows.derived(WHOLE)
    assert gaps(case) == [(10, 15), (30, 60)]
    assert case.execute(
        "SELECT family FROM device_gap JOIN device_op ON device_op_id = next_device_op_id ORDER BY device_gap.start_ns"
    ).fetchall() == [("elementwise",), ("gemm",)]


def test_a_graph_row_is_busy_time() -> None:
    rows = Rows()
    rows.graph(10, 70)
    rows.kernel(GEMM, 80, 90)
    case = rows.derived(WHOLE)
    assert busy(case)["busy"] == 70
    assert busy(case)["compute"] == 70
    assert gaps(case) == [(0, 10), (70, 80)]


def test_communication_and_copies_count_where_nothing_overlaps_them() -> None:
    rows = Rows()
    rows.kernel(GEMM, 0, 40, stream_id=1)
    rows.kernel(ALL_REDUCE, 30, 60, stream_id=2)
    rows.copy("htod", 50, 90, stream_id=3)
    assert busy(rows.derived(WHOLE)) == {
        "busy": 90, "idle": 10, "compute": 40, "exposed_communication": 20, "exposed_copy": 30,
    }  # fmt: skip


def test_devices_are_apart() -> None:
    rows = Rows()
    rows.kernel(GEMM, 0, 60, device_id=0)
    rows.kernel(GEMM, 40, 50, device_id=1)
    case = rows.derived(WHOLE)
    assert busy(case, 0)["busy"] == 60
    assert busy(case, 1)["busy"] == 10


def test_work_is_cut_at_the_edges_of_the_window() -> None:
    rows = Rows()
    rows.kernel(GEMM, 0, 20)
    rows.kernel(GEMM, 30, 40)
    rows.kernel(GEMM, 90, 200)
    case = rows.derived(WindowChoice(span_ns=(10_000, 100_000)))
    assert busy(case)["busy"] == 30
    assert busy(case)["idle"] == 60
    assert gaps(case) == [(20, 30), (40, 90)]
