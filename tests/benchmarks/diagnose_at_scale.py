"""What a diagnosis of a large recording takes. Run: `python -m tests.benchmarks.diagnose_at_scale [KERNELS] [EXPORT]`.

Repeats a real nsys SQLite export (times and ids shifted) to a quarter, half and all of KERNELS and prints, for each
stage, wall and CPU seconds, CPU seconds for each million kernels, and the peak resident memory of the stage. What is
linear keeps its ratio. The plain reference (sqlite3 to Arrow to DuckDB, kernels and API calls, one query for gaps) runs
beside it. Each size and each program has a process of its own.
"""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import duckdb
import pyarrow as pa

from doctor import api
from doctor.case import diagnosis_queries as queries
from doctor.case.derive import derive
from doctor.diagnosis.catalogue import load_catalogue
from doctor.diagnosis.options import DiagnosisOptions
from doctor.diagnosis.runner import diagnose_case
from doctor.replay.win import Replay
from tests.benchmarks.replicate import replicate_sqlite
from tests.support.samples import SAMPLES

Result = TypeVar("Result")
DEFAULT_KERNELS = 5_000_000
PROGRAMS = ("stages", "whole", "reference")
BATCH_ROWS = 100_000
GAPS = """
SELECT sum(start_ns - until_ns) FROM (
    SELECT start_ns, max(end_ns) OVER (ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS until_ns
    FROM kernel)
WHERE start_ns > until_ns
"""


def timed(what: str, kernels: int, work: Callable[[], Result]) -> Result:
    """Do the work and print what it took."""
    _forget_peak()
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    ratio = cpu / kernels * 1e6
    print(
        f"{what:<28}{wall:9.2f} s wall{cpu:9.2f} s CPU{ratio:8.2f} s a million kernels{_peak_mib():9,.0f} MiB",
        flush=True,
    )
    return result


def stages(export: Path, kernels: int) -> None:
    """A diagnosis, stage by stage."""
    case = timed("load", kernels, lambda: api.load(export))
    timed("derive", kernels, lambda: derive(case))
    timed("rules", kernels, lambda: _run_rules(case))
    timed("vitals, kernels, timeline", kernels, lambda: _display(case))
    window = queries.window(case)
    if window is not None:
        timed("replay, uncured", kernels, lambda: Replay(case, window.start_ns, window.end_ns))
    case.close()


def whole(export: Path, kernels: int) -> None:
    """What `doctor diagnose` does, in one."""

    def diagnose() -> int:
        case = api.load(export)
        found = diagnose_case(case, load_catalogue(None), DiagnosisOptions())
        case.close()
        return len(found.findings)

    timed("diagnosis, everything", kernels, diagnose)


def reference(export: Path, kernels: int) -> None:
    """The least that any tool has to do."""
    timed("plain reference", kernels, lambda: _plain(export))


def _run_rules(case: duckdb.DuckDBPyConnection) -> None:
    for rule in load_catalogue(None):
        if all(queries.rows_in(case, table) for table in rule.about.reads):
            values = {name: one.value for name, one in rule.thresholds.items() if f"${name}" in rule.sql}
            queries.select(case, rule.sql, values)


def _display(case: duckdb.DuckDBPyConnection) -> None:
    queries.vitals(case)
    queries.top_kernels(case)
    queries.timeline(case)


def _plain(export: Path) -> None:
    source, target = sqlite3.connect(export), duckdb.connect()
    target.execute(
        "CREATE TABLE kernel (start_ns BIGINT, end_ns BIGINT, stream_id BIGINT, correlation_id BIGINT, name_id BIGINT)"
    )
    target.execute(
        "CREATE TABLE api_call (start_ns BIGINT, end_ns BIGINT, tid BIGINT, correlation_id BIGINT, name_id BIGINT)"
    )
    for table, columns, into in (
        ("CUPTI_ACTIVITY_KIND_KERNEL", "start, end, streamId, correlationId, demangledName", "kernel"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "start, end, globalTid, correlationId, nameId", "api_call"),
    ):
        cursor = source.execute(f"SELECT {columns} FROM {table}")
        while rows := cursor.fetchmany(BATCH_ROWS):
            batch = pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=list("abcde"))
            target.register("batch", batch)
            target.execute(f"INSERT INTO {into} SELECT * FROM batch")
    target.execute(GAPS).fetchall()


def _forget_peak() -> None:
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        clear.write_text("5")


def _peak_mib() -> float:
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    [line] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def main() -> None:
    """Replicate, then run every program on every size."""
    kernels = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_KERNELS
    source = (
        Path(sys.argv[2]) if len(sys.argv) > 2 else SAMPLES / "graph-decode-sqlite-export" / "healthy-fixed.sqlite.gz"
    )
    for size in (kernels // 4, kernels // 2, kernels):
        with tempfile.TemporaryDirectory(prefix="doctor-benchmark-") as folder:
            export = Path(folder, "recording.sqlite")
            replicate_sqlite(source, export, size)
            print(f"\n{size:,} kernels, {export.stat().st_size / 2**20:,.0f} MiB", flush=True)
            for program in PROGRAMS:
                command = [sys.executable, "-m", "tests.benchmarks.diagnose_at_scale", program, str(export), str(size)]
                subprocess.run(command, check=True)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in PROGRAMS:
        {"stages": stages, "whole": whole, "reference": reference}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
