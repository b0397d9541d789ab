"""Damages exports and PyTorch traces and reads them: `python -m tests.fuzz.trace_evidence [COUNT] [SEED] [KIND...]`.

COUNT inputs for each of the readers of SQLite exports (KIND nsys-sqlite), of columnar exports (nsys-columnar) and of
PyTorch traces (kineto), each read to its end as `doctor` reads it; one in fifty is diagnosed. Allowed are rows with or
without notes, and an `EvidenceError` of one line, in a few seconds. Anything else is printed with the seed that makes
it again, and the exit code is 1. Run it with `python -X faulthandler`: damage may end the process itself.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.case.schema import QUERY_ONLY, Columns
from doctor.errors import EvidenceError
from doctor.readers import registry
from tests.fuzz.native_reports import MUTATIONS
from tests.fuzz.watch import DIAGNOSED_ONE_IN, Watch, diagnosed_to_the_end
from tests.support.columnar_export import write_arrow_folder, write_parquet_folder
from tests.support.samples import sample

MOST_ROWS = 100_000
NUM_EVENTS = 200
STRANGE: tuple[object, ...] = (
    None,
    -1,
    0,
    1 << 62,
    -(1 << 63),
    1.5,
    float("inf"),
    "text",
    "",
    b"\x00\xff",
    "\ud7ff" * 3,
)
KINETO_STRANGE: tuple[object, ...] = (None, -1, 0, 1 << 70, 1e308, "text", "", [], {}, True, "\u0000", "9" * 400)


def small_sqlite(folder: Path) -> Path:
    """A real export with a few hundred rows in each table."""
    path = folder / "small.sqlite"
    packed = sample("graph-decode-sqlite-export") / "healthy-fixed.sqlite.gz"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    with sqlite3.connect(path) as database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            database.execute(f'DELETE FROM "{table}" WHERE rowid > {NUM_EVENTS}')
    with sqlite3.connect(path) as database:
        database.execute("VACUUM")
    return path


def damaged_sqlite(original: Path, target: Path, dice: random.Random) -> None:
    """Bytes, or what the tables say."""
    if dice.random() < 0.5:
        target.write_bytes(dice.choice(MUTATIONS)(original.read_bytes(), dice))
        return
    shutil.copy(original, target)
    with sqlite3.connect(target) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(dice.choice((1, 1, 3))):
            table = dice.choice(tables)
            columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
            if not columns:
                continue
            column = dice.choice(columns)
            deeds: tuple[tuple[str, tuple[object, ...]], ...] = (
                (f'DROP TABLE "{table}"', ()),
                (f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "was_{column}"', ()),
                (f'UPDATE "{table}" SET "{column}" = ?', (dice.choice(STRANGE),)),
                (f'UPDATE "{table}" SET "{column}" = ? WHERE rowid % 7 = 0', (dice.choice(STRANGE),)),
                (f'UPDATE "{table}" SET "{column}" = -"{column}" * {dice.choice((1, 1000000))}', ()),
                (f'DELETE FROM "{table}"', ()),
            )
            deed, values = dice.choice(deeds)
            try:
                database.execute(deed, values)
            except (sqlite3.Error, OverflowError, UnicodeEncodeError):
                continue
            tables = [name for name in tables if not deed.startswith("DROP") or name != table] or tables[:1]


def small_folder(folder: Path) -> Path:
    """Two columnar exports of a real recording: Parquet and Arrow."""
    target = folder / "columnar"
    target.mkdir()
    export = small_sqlite(folder)
    write_parquet_folder(export, target / "parquet")
    write_arrow_folder(export, target / "arrow")
    return target


def damaged_folder(original: Path, target: Path, dice: random.Random) -> None:
    """One file of the export damaged, gone, or in the place of another."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(original / dice.choice(("parquet", "arrow")), target)
    files = sorted(target.iterdir())
    victim = dice.choice(files)
    deed = dice.randrange(6)
    if deed == 0:
        victim.unlink()
    elif deed == 1:
        victim.write_bytes(dice.choice(files).read_bytes())
    else:
        victim.write_bytes(dice.choice(MUTATIONS)(victim.read_bytes(), dice))


def small_trace(folder: Path) -> Path:
    """The beginning of a real trace, and its frame."""
    packed = sample("graph-decode-torch-trace") / "healthy-fixed.pt.trace.json.gz"
    document = json.loads(gzip.decompress(packed.read_bytes()))
    events = document["traceEvents"]
    document["traceEvents"] = events[:NUM_EVENTS] + events[len(events) // 2 : len(events) // 2 + NUM_EVENTS]
    path = folder / "small.json"
    path.write_text(json.dumps(document), "utf-8")
    return path


def damaged_trace(original: Path, target: Path, dice: random.Random) -> None:
    """Bytes, or what the events say."""
    raw = original.read_bytes()
    if dice.random() < 0.5:
        raw = dice.choice(MUTATIONS)(raw, dice)
    else:
        document: dict[str, Any] = json.loads(raw)
        for _ in range(dice.choice((1, 3, 40))):
            event = dice.choice(document["traceEvents"])
            place = event if dice.random() < 0.6 or "args" not in event else event["args"]
            if isinstance(place, dict) and place:
                key = dice.choice(sorted(map(str, place)))
                place[key] = dice.choice(KINETO_STRANGE)
        if dice.random() < 0.2:
            document[dice.choice(sorted(document))] = dice.choice(KINETO_STRANGE)
        raw = json.dumps(document).encode()
    target.write_bytes(gzip.compress(raw, 1) if dice.random() < 0.1 else raw)


KINDS: dict[str, tuple[Callable[[Path], Path], Callable[[Path, Path, random.Random], None], str]] = {
    "nsys-sqlite": (small_sqlite, damaged_sqlite, "damaged.sqlite"),
    "nsys-columnar": (small_folder, damaged_folder, "damaged"),
    "kineto": (small_trace, damaged_trace, "damaged.json"),
}


def outcome(path: Path, left_out: Columns | None = None) -> str:
    """What came of reading it, less some columns.

    Raises:
        AssertionError: it gave more rows than there can be, no facts, or an error of several lines.
    """
    rows, said = 0, ""
    try:
        for part in registry.read(path, left_out=left_out):
            if isinstance(part, TableBatch):
                rows += part.rows.num_rows
                assert rows <= MOST_ROWS
            elif isinstance(part, SourceFacts):
                said = "complete" if part.is_complete else "incomplete"
    except EvidenceError as error:
        said, lines = "refused", error.message.splitlines()
    else:
        lines = [""]
    assert len(lines) == 1
    assert said, "the facts are missing"
    return said


def attack(kind: str, count: int, seed: int) -> Watch:
    """Read damaged inputs of one kind; what came of them."""
    make, damage, name = KINDS[kind]
    watch = Watch(kind)
    with tempfile.TemporaryDirectory(prefix="doctor-fuzz-") as scratch:
        folder = Path(scratch)
        original, target = make(folder), folder / name
        for number in range(seed, seed + count):
            damage(original, target, random.Random(number))
            with watch.over(number):
                watch.outcomes[outcome(target, QUERY_ONLY if number % 2 else None)] += 1
                if number % DIAGNOSED_ONE_IN == 0:
                    watch.outcomes[diagnosed_to_the_end(target)] += 1
    return watch


def main(arguments: list[str]) -> int:
    """Attack every reader; return 1 where one input was not survived."""
    count, seed = (int(word) for word in [*arguments, *("10000", "0")[len(arguments) :]][:2])
    has_failed = False
    for kind in arguments[2:] or KINDS:
        watch = attack(kind, count, seed)
        has_failed |= watch.num_failed > 0
        sys.stdout.write(watch.report())
        sys.stdout.flush()
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
