"""Device work put in order by arrays is what SQL makes of the recorded tables."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor import api
from doctor.case.arrays import columns, markers
from doctor.case.derive import derive
from doctor.case.store import create_case
from tests.support.samples import SAMPLES, sample, trace_of

_EXPECTED = """
WITH op AS (
    SELECT source_id, pid, device_id, stream_id, 'kernel' AS kind, start_ns, end_ns, correlation_id, graph_node_id,
        coalesce(name_id, short_name_id) AS name_id, grid_x::BIGINT * grid_y * grid_z AS grid_blocks,
        block_x::BIGINT * block_y * block_z AS block_threads, NULL AS size_bytes, NULL AS copy_kind, NULL AS src_kind,
        NULL AS dst_kind
    FROM kernel
    UNION ALL
    SELECT source_id, pid, device_id, stream_id, 'memcpy', start_ns, end_ns, correlation_id, graph_node_id, NULL, NULL,
        NULL, size_bytes, copy_kind, src_kind, dst_kind
    FROM memcpy
    UNION ALL
    SELECT source_id, pid, device_id, stream_id, 'memset', start_ns, end_ns, correlation_id, graph_node_id, NULL, NULL,
        NULL, size_bytes, NULL, NULL, NULL
    FROM memset
    UNION ALL
    SELECT source_id, pid, device_id, stream_id, 'graph', start_ns, end_ns, correlation_id, NULL, NULL, NULL, NULL,
        NULL, NULL, NULL, NULL
    FROM graph_trace
)
SELECT source_id, pid, coalesce(device_id, 0), coalesce(stream_id, 0), kind,
    start_ns + shift_ns - coalesce(late_ns, 0) AS start_ns,
    greatest(end_ns, start_ns) + shift_ns - coalesce(late_ns, 0) AS end_ns, correlation_id, graph_node_id, name_id,
    coalesce(family, kind::work_family)::VARCHAR, precision::VARCHAR, grid_blocks, block_threads, size_bytes, copy_kind,
    src_kind, dst_kind
FROM op JOIN timeline_source USING (source_id) LEFT JOIN device_clock USING (source_id)
    LEFT JOIN kernel_name USING (name_id)
WHERE start_ns IS NOT NULL AND end_ns IS NOT NULL
"""
_PLACED = """
SELECT source_id, pid, device_id, stream_id, kind::VARCHAR, start_ns, end_ns, correlation_id, graph_node_id, name_id,
    family::VARCHAR, precision::VARCHAR, grid_blocks, block_threads, size_bytes, copy_kind::VARCHAR, src_kind::VARCHAR,
    dst_kind::VARCHAR
FROM device_op ORDER BY device_op_id
"""


def _compare(case: duckdb.DuckDBPyConnection) -> None:
    placed = case.execute(_PLACED).fetchall()
    assert sorted(placed, key=repr) == sorted(case.execute(_EXPECTED).fetchall(), key=repr)
    order = [(row[5], row[6], row[0], row[3]) for row in placed]
    assert order == sorted(order)
    ids = case.execute("SELECT device_op_id FROM device_op").fetchall()
    assert ids == [(at,) for at in range(len(placed))]


@pytest.mark.parametrize("name", ["pageable-copies", "launch-bound-decode-torch-trace", "scheduler-pause"])
def test_every_operation_of_a_recording_is_there_once_and_in_order(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "SLICE_ROWS", 1_000)
    with closing(api.load(trace_of(sample(name)))) as case:
        derive(case)
        _compare(case)


def test_two_recordings_in_one_case_lie_on_one_clock() -> None:
    names = ("launch-bound-decode-torch-trace/launch-sick.pt.trace.json.gz", "sync-per-token/synctok-sick.nsys-rep")
    with closing(api.load(*(SAMPLES / name for name in names))) as case:
        derive(case)
        _compare(case)


def test_what_a_recorder_left_out_stays_out(tmp_path: Path) -> None:
    with closing(create_case(tmp_path / "case.duckdb")) as case:
        case.execute("INSERT INTO source (source_id, path, kind, is_complete) VALUES (0, 'a', 'nsys-sqlite', true)")
        case.execute("INSERT INTO text VALUES (0, 'ampere_sgemm_128x64_nn')")
        case.execute(
            "INSERT INTO kernel (source_id, start_ns, end_ns, name_id, short_name_id, grid_x, grid_y, grid_z) VALUES"
            " (0, 50, 40, 0, 1, 2, 3, 4), (0, 10, 20, 7, NULL, 1, NULL, 1), (0, NULL, 30, 0, 0, 1, 1, 1),"
            " (0, 60, 70, 0, 0, 2147483647, 2147483647, 2147483647),"
            " (0, 30, NULL, 0, 0, 1, 1, 1)"
        )
        case.execute(
            "INSERT INTO memcpy (source_id, start_ns, end_ns, size_bytes, copy_kind, src_kind) VALUES"
            " (0, 10, 15, 8, 'htod', 'elsewhere'), (0, 10, 12, NULL, NULL, 'pinned')"
        )
        derive(case)
        rows = case.execute(
            "SELECT kind::VARCHAR, start_ns, end_ns, family::VARCHAR, precision::VARCHAR, device_id, grid_blocks,"
            " size_bytes, copy_kind::VARCHAR, src_kind::VARCHAR FROM device_op ORDER BY device_op_id"
        ).fetchall()
    assert rows == [
        ("memcpy", 10, 12, "memcpy", None, 0, None, None, None, "pinned"),
        ("memcpy", 10, 15, "memcpy", None, 0, None, 8, "htod", None),
        ("kernel", 10, 20, "kernel", None, 0, None, None, None, None),
        ("kernel", 50, 50, "gemm", "fp32", 0, 24, None, None, None),
        ("kernel", 60, 70, "gemm", "fp32", 0, None, None, None, None),
    ]


def _distances(places: list[int]) -> tuple[float, float]:
    """Median distance, and the share of distances near it."""
    between = np.diff(places)
    if not len(between):
        return float("nan"), 0.0
    usual = float(np.median(between))
    return usual, float((np.abs(between - usual) <= max(2, 0.1 * usual)).mean())


@given(st.lists(st.lists(st.integers(1, 90), min_size=1, max_size=12), min_size=1, max_size=5))
def test_regularity_is_that_of_the_distances_from_one_occurrence_to_the_next(steps: list[list[int]]) -> None:
    places = [np.cumsum(one).tolist() for one in steps]
    count = np.asarray([len(one) for one in places])
    group = np.arange(len(places), dtype=np.int32) * 3  # numbers may be left out
    place = np.asarray([at for one in places for at in one], dtype=np.int32)
    usual, regular = markers._regularity(place, group, np.cumsum(count) - count, count)
    expected = [_distances(one) for one in places]
    assert np.array_equal(usual, [one for one, _ in expected], equal_nan=True)
    assert regular.tolist() == pytest.approx([share for _, share in expected])
