"""What `doctor diagnose` takes on large recordings, beside the least that any tool has to do with the same file.

Run: `python -m tests.benchmarks.diagnose_at_scale [--size 5000000] [--kinds sqlite report]`. Repeats real recordings
(times and ids shifted) to a quarter, half and all of the size, and gives each size to programs of their own, one after
the other: `doctor diagnose`, and a reference. What is printed is a table in Markdown: wall and CPU seconds, peak
resident memory, the ratio to the reference, and how the time for each million grows.

References: for an export `sqlite3` of the standard library to Arrow to DuckDB, kernels and API calls, one query for the
gaps; for a native report `doctor diagnose` of the export of the same recording with as many kernels; for a trace
`orjson.loads` of the whole file.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.benchmarks.replicate import replicate_kineto, replicate_sqlite
from tests.benchmarks.replicate_report import replicate_report
from tests.support.samples import SAMPLES

DEFAULT_SIZE = 5_000_000
SHARES = (4, 2, 1)
PROBED_BYTES = 2**29
SETTLING_SECONDS = 6.0
"""Time after which a host has taken free pages back, if it does."""
NSYS = SAMPLES / "launch-bound-decode-nsys-report"
EXPORT = NSYS / "launch-sick.sqlite.gz"
KINETO = SAMPLES / "launch-bound-decode-torch-trace" / "launch-sick.pt.trace.json.gz"
DOCTOR = ("-c", "from doctor.cli.main import main; main()", "diagnose", "--format", "json", "--no-progress")
REFERENCE = ("-m", "tests.benchmarks.plain_reference")


@dataclass(frozen=True)
class Kind:
    """One kind of recording.

    Attributes:
        counted: what its size counts.
        source: recording that is repeated.
        make: writes the large one.
        reference: arguments of the program that it is measured against, out of the large one and its size.
    """

    counted: str
    source: Path
    make: Callable[[Path, Path, int], None]
    reference: Callable[[Path, int], tuple[str, ...]]


@dataclass(frozen=True)
class Cost:
    """What one program took; seconds and MiB."""

    wall: float
    cpu: float
    peak: float


def _zipped_kineto(source: Path, target: Path, events: int) -> None:
    plain = target.with_suffix(".plain")
    replicate_kineto(source, plain, events)
    with plain.open("rb") as whole, gzip.open(target, "wb", compresslevel=1) as packed:
        shutil.copyfileobj(whole, packed, 1 << 20)
    plain.unlink()


def _export_diagnosed(recording: Path, kernels: int) -> tuple[str, ...]:
    export = recording.with_suffix(".sqlite")
    replicate_sqlite(EXPORT, export, kernels)
    return (*DOCTOR, str(export))


def _loaded(recording: Path, events: int) -> tuple[str, ...]:
    return (*REFERENCE, "orjson", str(recording))


KINDS = {
    "sqlite": Kind("kernels", EXPORT, replicate_sqlite, lambda export, kernels: (*REFERENCE, "sqlite", str(export))),
    "report": Kind("kernels", NSYS / "launch-sick.nsys-rep", replicate_report, _export_diagnosed),
    "kineto": Kind("events", KINETO, replicate_kineto, _loaded),
    "kineto-gzip": Kind("events", KINETO, _zipped_kineto, _loaded),
}


def measure(arguments: tuple[str, ...]) -> Cost:
    """Run a program of this interpreter and say what it took, with all that it started.

    Raises:
        RuntimeError: it failed.
    """
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(arguments)} ended with {process.returncode}")
    return Cost(time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def rows(name: str, kind: Kind, size: int) -> Iterator[str]:
    """Lines of the table for one kind, at three sizes."""
    first: float | None = None
    for share in SHARES:
        count = size // share
        with tempfile.TemporaryDirectory(prefix="doctor-benchmark-") as folder:
            recording = Path(folder, "recording")
            kind.make(kind.source, recording, count)
            megabytes = recording.stat().st_size / 1e6
            reference = measure(kind.reference(recording, count))
            doctor = measure((*DOCTOR, str(recording)))
        first = first or doctor.cpu / count
        yield (
            f"| {name} | {count / 1e6:.2f} M {kind.counted}, {megabytes:,.0f} MB | {os.getloadavg()[0]:.0f} |"
            f" {_cells(doctor)} | {_cells(reference)} |"
            f" {doctor.wall / reference.wall:.2f} | {doctor.cpu / reference.cpu:.2f} |"
            f" {doctor.wall / count * 1e6:.2f} s | {doctor.cpu / count / first:.2f} |"
        )


def fresh_memory() -> tuple[float, float]:
    """Seconds that a GB of memory takes when it is first written to, untouched for a while and right after its use.

    A host that takes free pages back makes the first several times the second, and `doctor` the slower against a
    reference that takes less memory: ratios of two machines can be compared only beside these.
    """
    time.sleep(SETTLING_SECONDS)
    taken = []
    for _ in range(2):
        began = time.perf_counter()
        np.full(PROBED_BYTES, 1, dtype=np.uint8)
        taken.append((time.perf_counter() - began) / PROBED_BYTES * 1e9)
    return taken[0], taken[1]


def _cells(cost: Cost) -> str:
    return f"{cost.wall:.1f} s | {cost.cpu:.1f} s | {cost.peak / 1024:.2f} GiB"


HEADINGS = (
    "recording",
    "size",
    "load",
    "wall",
    "CPU",
    "peak",
    "reference, wall",
    "CPU",
    "peak",
    "wall, ratio",
    "CPU, ratio",
    "wall for each million",
    "CPU for each million, against the smallest",
)


def main() -> None:
    """Measure what was asked for and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--size", type=int, default=DEFAULT_SIZE, help="kernels of exports and reports, events of traces"
    )
    parser.add_argument("--kinds", nargs="+", choices=sorted(KINDS), default=list(KINDS))
    parser.add_argument("--sqlite", type=Path, help="an export to repeat, in place of the sample")
    options = parser.parse_args()
    load = os.getloadavg()
    print(f"{os.cpu_count()} cores, load {load[0]:.1f} at the start, {load[2]:.1f} in 15 minutes")
    print("memory, first written to: {:.1f} s a GB, {:.1f} right after use\n".format(*fresh_memory()))
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    for name in options.kinds:
        kind = KINDS[name]
        if name == "sqlite" and options.sqlite is not None:
            kind = Kind(kind.counted, options.sqlite, kind.make, kind.reference)
        for row in rows(name, kind, options.size):
            print(row, flush=True)
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
