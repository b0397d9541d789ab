"""CPU seconds of each stage of a diagnosis and of each rule's SELECT, at several sizes of one recording.

Run: `python -m tests.benchmarks.stage_costs RECORDING [--sizes 250000 1000000]`. Repeats an export (`.sqlite`,
`.sqlite.gz`), a native report (`.nsys-rep`) or a trace to so many kernels (events of a trace) and prints a table in
Markdown. The last column is the growth for each doubling beyond what is linear, from the smallest size to the largest.
"""

from __future__ import annotations

import argparse
import math
import re
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from doctor.api import load
from doctor.case import diagnosis_queries as queries
from doctor.case.derive import derive
from doctor.diagnosis.catalogue import load_catalogue
from doctor.replay.win import Replay
from doctor.rule import Finding
from tests.benchmarks.replicate import replicate_kineto, replicate_sqlite
from tests.benchmarks.replicate_report import replicate_report

Result = TypeVar("Result")
LEAST_SHOWN_SECONDS = 0.05


class Clock:
    """CPU seconds by what they went into; a name that comes twice is added up."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, work: Callable[[], Result]) -> Result:
        """Do the work and note what it took."""
        began = time.process_time()
        result = work()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - began
        return result


def costs(source: Path, size: int) -> dict[str, float]:
    """CPU seconds of the stages and rules of one recording."""
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="doctor-benchmark-") as folder:
        recording = Path(folder, "recording")
        _replicate(source)(source, recording, size)
        case = clock.timed("load", lambda: load(recording))
    with closing(case):
        clock.timed("derive", lambda: derive(case))
        findings: list[Finding] = []
        for rule in load_catalogue():
            for sign in rule.signs:
                if all(queries.rows_in(case, table) for table in sign.reads):
                    values = {
                        name: threshold.value
                        for name, threshold in rule.thresholds.items()
                        if re.search(rf"\${name}\b", sign.sql)
                    }
                    name = f"rule {rule.about.id}"
                    rows = clock.timed(name, lambda sql=sign.sql, values=values: queries.select(case, sql, values))  # type: ignore[misc]
                    verdicts = [sign.judge(sign.row(*row)) for row in rows]
                    findings += [verdict for verdict in verdicts if isinstance(verdict, Finding)]
        window = queries.window(case)
        if window is not None:
            replay = clock.timed("replay", lambda: Replay(case.cursor(), window.start_ns, window.end_ns, None))
            for cure in [finding.cure for finding in findings if finding.cure is not None]:
                clock.timed("promises", lambda cure=cure: replay.win(cure))  # type: ignore[misc]
    return clock.seconds


def _replicate(source: Path) -> Callable[[Path, Path, int], None]:
    if ".sqlite" in source.suffixes:
        return replicate_sqlite
    return replicate_report if source.suffix == ".nsys-rep" else replicate_kineto


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[250_000, 1_000_000])
    options = parser.parse_args()
    found = {size: costs(options.recording, size) for size in sorted(options.sizes)}
    least, most = min(found), max(found)
    doublings = math.log2(most / least)
    print(f"| CPU seconds | {' | '.join(f'{size:,}' for size in found)} | growth |\n|{'---|' * (len(found) + 2)}")
    for name, seconds in sorted(found[most].items(), key=lambda item: -item[1]):
        if seconds >= LEAST_SHOWN_SECONDS:
            first = found[least].get(name, 0.0)
            growth = f"{(seconds / first / (most / least)) ** (1 / doublings):.2f}" if first and doublings else ""
            print(f"| {name} | {' | '.join(f'{one.get(name, 0.0):.2f}' for one in found.values())} | {growth} |")


if __name__ == "__main__":
    main()
