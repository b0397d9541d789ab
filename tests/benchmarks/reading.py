"""Reading rates: replicates a real recording to a given size, reads it, prints rows per second and peak memory.

python tests/benchmarks/reading.py sqlite EXPORT.sqlite.gz --size 5000000          # kernels
python tests/benchmarks/reading.py report REPORT.nsys-rep --size 5000000          # kernels
python tests/benchmarks/reading.py kineto TRACE.json.gz --size 5000000 --into case.duckdb
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from doctor.case.batch import TableBatch
from doctor.case.load import CaseLoader
from doctor.case.store import create_case
from doctor.readers import registry
from tests.benchmarks.replicate import replicate_kineto, replicate_sqlite
from tests.benchmarks.replicate_report import replicate_report


def main() -> None:
    """Replicate, read, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("sqlite", "report", "kineto", "as-it-is"))
    parser.add_argument("source", type=Path)
    parser.add_argument("--size", type=int, default=1_000_000, help="kernels of an export or report, events of a trace")
    parser.add_argument("--into", help="load into a case file, or into :memory:; without it rows are only read")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="doctor-benchmark-") as folder:
        recording = Path(folder) / "recording"
        if options.kind == "sqlite":
            replicate_sqlite(options.source, recording, options.size)
        elif options.kind == "report":
            replicate_report(options.source, recording, options.size)
        elif options.kind == "kineto":
            replicate_kineto(options.source, recording, options.size)
        else:
            recording = options.source
        measure(recording, options.into)


def measure(recording: Path, case: str | None) -> None:
    """Read one recording and print what it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    if case is None:
        rows = sum(part.rows.num_rows for part in registry.read(recording) if isinstance(part, TableBatch))
    else:
        connection = create_case(case)
        CaseLoader(connection).load(str(recording), registry.read(recording))
        tables = ("kernel", "api_call", "memcpy", "memset", "device_sync", "nvtx_range", "host_op", "os_call")
        counts = [connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in tables]
        rows = sum(count[0] for count in counts if count)
        connection.close()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{recording.stat().st_size / 2**20:,.0f} MiB, {rows:,} rows in {wall:.1f} s ({cpu:.1f} s of CPU): "
        f"{rows / wall:,.0f} rows/s, {rows / cpu:,.0f} rows per CPU second, peak {peak_mib:,.0f} MiB"
    )


if __name__ == "__main__":
    main()
