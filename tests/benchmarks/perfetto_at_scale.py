"""What a Perfetto trace and a zoomable time-line of a large case take.

Run: `python -m tests.benchmarks.perfetto_at_scale [KERNELS]`. Repeats a real nsys SQLite export to KERNELS (one million
by default), loads and derives it, then writes the trace and lays the time-line out; prints CPU seconds, size, and the
resident memory before and at its peak.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import doctor
from doctor.case.derive import derive
from doctor.convert.perfetto.case_trace import write_trace
from doctor.diagnosis.zoom import zoomable_timeline
from tests.benchmarks.replicate import replicate_sqlite
from tests.support.samples import SAMPLES

DEFAULT_KERNELS = 1_000_000


def measured(what: str, work: Callable[[], object]) -> None:
    """Do the work and print what it took."""
    Path("/proc/self/clear_refs").write_text("5")
    before_mib, cpu = _peak_mib(), time.process_time()
    work()
    print(f"{what}: {time.process_time() - cpu:.1f} s CPU, resident {before_mib} MiB before, {_peak_mib()} MiB at most")


def _peak_mib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) // 1024


def main() -> None:
    kernels = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_KERNELS
    with tempfile.TemporaryDirectory() as folder:
        export, output = Path(folder, "large.sqlite"), Path(folder, "large.pftrace")
        replicate_sqlite(SAMPLES / "launch-bound-decode-nsys-report" / "launch-sick.sqlite.gz", export, kernels)
        with closing(doctor.load(export)) as case:
            derive(case)
            [(start_ns, end_ns)] = case.execute("SELECT from_ns, until_ns FROM steady_window").fetchall()
            measured("perfetto", lambda: print(write_trace(case, (), output)))
            print(f"{output.stat().st_size / 1e6:.0f} MB")
            measured("time-line", lambda: zoomable_timeline(case, (), start_ns, end_ns))


if __name__ == "__main__":
    main()
