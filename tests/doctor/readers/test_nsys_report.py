from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.nsys_report import NsysReportReader
from tests.support.native_reports import (
    HEALTHY,
    PID,
    SICK,
    Value,
    call,
    chunk,
    event,
    kernel,
    made_of,
    message,
    nvtx_domain,
    nvtx_range,
    report,
    take_apart,
)
from tests.support.reading import read_all
from tests.support.samples import SAMPLES

STRINGS = [b"[Unknown]", b"a_kernel", b"cudaLaunchKernel", b"HOME=/home/somebody\0TOKEN=hunter2"]


def rows_of(path: Path, table: str, columns: list[str]) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for part in NsysReportReader().read(path, lambda done, total: None):
        if isinstance(part, TableBatch) and part.table == table:
            columns_of_part = [_plain(part.rows.column(name)).to_pylist() for name in columns]
            found += zip(*columns_of_part, strict=True)
    return found


def _plain(array: pa.Array) -> pa.Array:
    return array.cast(pa.string()) if pa.types.is_dictionary(array.type) else array


def test_rows_equal_those_of_the_export_of_the_same_run() -> None:
    for name in (SICK, HEALTHY):
        native, export = read_all(report(name)), read_all(SAMPLES / f"{name}.sqlite.gz")
        assert native.row_counts() == export.row_counts()
        for table in ("kernel", "api_call", "memcpy", "nvtx_range", "graph_trace", "device_sync", "stream", "thread"):
            part = next((part for part in native.parts if isinstance(part, TableBatch) and part.table == table), None)
            for column in [] if part is None else part.rows.schema.names:
                ours, theirs = native.column(table, column), export.column(table, column)
                assert sorted(map(str, ours)) == sorted(map(str, theirs)), (table, column)


def test_facts_name_recorder_window_clock_and_graph_level() -> None:
    facts = read_all(report(HEALTHY)).facts
    assert facts.kind == "nsys-report"
    assert facts.tool == "nsys 2025.3.1.0"
    assert facts.is_complete
    assert (facts.capture_start_ns, facts.capture_end_ns) == (0, 69854771)
    assert facts.clock_offset_ns == 1795963555355139662
    assert facts.graph_trace_level == "graph"


def test_ranges_get_the_name_of_their_domain_whatever_the_order(tmp_path: Path) -> None:
    events = [
        nvtx_range(10, b"early", 3),
        nvtx_range(20, b"plain"),
        nvtx_domain(3, b"NCCL"),
        nvtx_range(30, b"late", 3),
    ]
    path = made_of(events, STRINGS).put_together(tmp_path / "made.nsys-rep")
    assert sorted(rows_of(path, "nvtx_range", ["start_ns", "name", "domain", "range_kind"])) == [
        (10, "early", "NCCL", "push_pop"),
        (20, "plain", None, "push_pop"),
        (30, "late", "NCCL", "push_pop"),
    ]


def test_a_domain_that_a_later_block_names_is_found_too(tmp_path: Path) -> None:
    first = [nvtx_range(at, b"x" * 50_000, 5) for at in range(100)]
    blocks = [chunk(first), chunk([nvtx_domain(5, b"TensorRT")])]
    info = message({1: 101, 3: len(STRINGS), 5: 0})
    path = made_of([], STRINGS, chunks=blocks, info=info).put_together(tmp_path / "made.nsys-rep")
    assert set(rows_of(path, "nvtx_range", ["domain"])) == {("TensorRT",)}


def test_a_range_of_a_domain_that_nobody_names_still_comes(tmp_path: Path) -> None:
    path = made_of([nvtx_range(10, b"lonely", 9)], STRINGS).put_together(tmp_path / "made.nsys-rep")
    assert rows_of(path, "nvtx_range", ["name", "domain"]) == [("lonely", None)]


def test_a_process_is_named_by_its_executable_and_never_by_its_command_line(tmp_path: Path) -> None:
    process = event(
        27,
        113,
        [
            (1, 0),
            (2, (1 << 48) + (PID << 24)),
            (5, b"/opt/somebody/bin/python3"),
            (9, b"serve.py"),
            (9, b"--key=hunter2"),
            (13, 3),
        ],
    )
    path = made_of([process, kernel(100, 1), call(90, 2)], STRINGS).put_together(tmp_path / "made.nsys-rep")
    reading = read_all(path)
    assert reading.column("process", "name") == ["python3"]
    for part in reading.parts:
        assert "hunter2" not in str(part.rows.to_pydict() if isinstance(part, TableBatch) else part)


def test_a_gpu_is_told_of_as_recorders_until_2020_did_it(tmp_path: Path) -> None:
    gpu: dict[int, Value] = {
        1: b"NVIDIA GeForce RTX 3080",
        2: 760_080_000,
        3: 10_495_524_864,
        7: 1_740_000,
        9: 68,
        22: 8,
        23: 6,
        24: 0,
    }
    target = message({1: {1: 1 << 48, 2: {1: gpu, 7: {1: 0, 2: b"NVIDIA GeForce RTX 3080"}}}})
    path = made_of([kernel(100, 1)], STRINGS, tail=(target,)).put_together(tmp_path / "made.nsys-rep")
    columns = ["device_id", "name", "sm_count", "clock_hz", "memory_rate_bytes_per_s", "compute_major"]
    assert rows_of(path, "device", columns) == [(0, "NVIDIA GeForce RTX 3080", 68, 1.74e9, 760_080_000_000.0, 8)]


def test_a_damaged_report_is_marked_in_the_facts(tmp_path: Path) -> None:
    whole = take_apart(report(SICK)).put_together(tmp_path / "whole.nsys-rep").read_bytes()
    (tmp_path / "cut.nsys-rep").write_bytes(whole[: len(whole) * 2 // 3])
    facts = read_all(tmp_path / "cut.nsys-rep").facts
    assert isinstance(facts, SourceFacts)
    assert not facts.is_complete
    assert any("cut" in note for note in facts.notes)


def test_progress_runs_to_the_size_of_the_file() -> None:
    seen: list[tuple[int, int]] = []
    for _ in NsysReportReader().read(report(SICK), lambda done, total: seen.append((done, total))):
        pass
    size = report(SICK).stat().st_size
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert {total for _, total in seen} == {size}
    assert size * 0.9 < seen[-1][0] <= size
