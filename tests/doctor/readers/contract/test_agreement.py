"""Recordings of the same work agree, whatever they were written in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from doctor.readers.evidence_file import open_evidence
from tests.doctor.readers.contract.recordings import Pair, pairs
from tests.support.columnar_export import write_arrow_folder, write_parquet_folder
from tests.support.reading import loaded
from tests.support.traces import SAMPLES, shared_trace

COMPARED = (
    "kernel",
    "memcpy",
    "memset",
    "graph_trace",
    "device_sync",
    "api_call",
    "nvtx_range",
    "os_call",
    "gpu_memory_event",
    "graph_event",
    "device",
    "stream",
)
SQLITE_SAMPLE = SAMPLES / "graph-decode-sqlite-export" / "healthy-fixed.sqlite.gz"
PAIRS = [pytest.param(pair, id=f"{pair.report.parent.name}/{pair.report.name}") for pair in pairs()]
_LAUNCHED = """
    SELECT DISTINCT t.text FROM kernel JOIN text t ON t.text_id = short_name_id WHERE source_id = {source}
"""


def rows_of_one_side(case: duckdb.DuckDBPyConnection, table: str, side: int) -> int:
    """Rows of one source that the other does not have, counting repetitions."""
    here, there = (f"SELECT * EXCLUDE (source_id) FROM {table} WHERE source_id = {at}" for at in (side, 1 - side))
    row = case.execute(f"SELECT count(*) FROM ({here} EXCEPT ALL {there})").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("pair", PAIRS)
def test_a_report_and_its_export_hold_the_same_rows(pair: Pair) -> None:
    with loaded(pair.report, pair.export) as case:
        for table in COMPARED:
            assert (rows_of_one_side(case, table, 0), rows_of_one_side(case, table, 1)) == (0, 0), table
        offsets = case.execute("SELECT clock_offset_ns FROM source ORDER BY source_id").fetchall()
        assert offsets[0] == offsets[1]


@pytest.mark.parametrize("write", [write_parquet_folder, write_arrow_folder])
def test_a_columnar_folder_holds_the_rows_of_the_sqlite_export(
    write: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    plain = tmp_path / "export.sqlite"
    plain.write_bytes(b"".join(open_evidence(SQLITE_SAMPLE).chunks()))
    folder = tmp_path / "folder"
    write(plain, folder)
    with loaded(plain, folder) as case:
        for table in (*COMPARED, "diagnostic", "profiler_overhead", "process", "thread"):
            assert (rows_of_one_side(case, table, 0), rows_of_one_side(case, table, 1)) == (0, 0), table
        facts = case.execute("SELECT * EXCLUDE (source_id, path, kind) FROM source ORDER BY source_id").fetchall()
        assert facts[0] == facts[1]


@pytest.mark.parametrize("name", ["launch-sick", "h2d-sick", "hostgap-sick"])
def test_a_torch_trace_names_the_kernels_and_copies_of_the_same_program_as_nsys_does(name: str) -> None:
    with loaded(shared_trace(f"h200/{name}.sqlite.gz"), shared_trace(f"h200/{name}.pt.trace.json.gz")) as case:
        kernels = [set(case.execute(_LAUNCHED.format(source=source)).fetchall()) for source in (0, 1)]
        assert kernels[0] == kernels[1]
        copies = "SELECT DISTINCT copy_kind, src_kind, dst_kind, size_bytes FROM memcpy WHERE source_id = {}"
        assert set(case.execute(copies.format(0)).fetchall()) == set(case.execute(copies.format(1)).fetchall())
        shapes = "SELECT DISTINCT grid_x, grid_y, grid_z, block_x, registers_per_thread_count FROM kernel"
        here, there = (set(case.execute(f"{shapes} WHERE source_id = {at}").fetchall()) for at in (0, 1))
        assert here == there


def test_each_rank_of_a_torch_recording_counts_the_collectives_that_nsys_saw(tmp_path: Path) -> None:
    ranks = [shared_trace(f"h200x2/straggler-sick.rank{rank}.pt.trace.json.gz") for rank in (0, 1)]
    with loaded(*ranks) as case:
        assert case.execute("SELECT rank, world_size FROM source ORDER BY rank").fetchall() == [(0, 2), (1, 2)]
        counted = case.execute("""
            SELECT source_id, count(*), count(c.correlation_id)
            FROM kernel k
            JOIN text t ON t.text_id = k.short_name_id
            LEFT JOIN collective c USING (source_id, pid, correlation_id)
            WHERE t.text LIKE 'ncclDevKernel%'
            GROUP BY source_id ORDER BY source_id
        """).fetchall()
        assert counted == [(0, 96, 96), (1, 96, 96)]
