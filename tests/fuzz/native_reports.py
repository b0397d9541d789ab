"""Damages native reports in many ways and reads them: `python -m tests.fuzz.native_reports [COUNT] [SEED]`.

Each input is read to its end by the reader. Allowed are rows with or without notes, and an `EvidenceError` of one line.
Beside every fourth input a block of events stands whole and damaged in turn: the templates that the whole ones give
must not change what is read. Anything else (another exception, more than a few seconds, rows that the original cannot
have) is printed with the seed that makes it again, and the exit code is 1.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from doctor.case.batch import SourceFacts, TableBatch
from doctor.case.schema import QUERY_ONLY, Columns
from doctor.errors import EvidenceError
from doctor.formats.nsys_report import wire
from doctor.readers.nsys_report import NsysReportReader
from tests.fuzz.watch import DIAGNOSED_ONE_IN, Watch, diagnosed_to_the_end
from tests.support.native_reports import (
    HEALTHY,
    SICK,
    TakenApart,
    as_bytes,
    assert_templates_change_nothing,
    beginning,
    chunk,
    events_of,
    message,
)

NUM_EVENTS = 400
MOST_ROWS = 50 * NUM_EVENTS

Mutation = Callable[[bytes, random.Random], bytes]


def cut(raw: bytes, dice: random.Random) -> bytes:
    """End early."""
    return raw[: dice.randrange(len(raw))]


def flip(raw: bytes, dice: random.Random) -> bytes:
    """Turn over a few bits."""
    out = bytearray(raw)
    for _ in range(dice.choice((1, 2, 8, 64))):
        out[dice.randrange(len(out))] ^= 1 << dice.randrange(8)
    return bytes(out)


def blank(raw: bytes, dice: random.Random) -> bytes:
    """Overwrite a stretch with one byte."""
    start, size = dice.randrange(len(raw)), dice.choice((1, 16, 512, 4096, 65536))
    return raw[:start] + bytes([dice.choice((0, 255, 127, 128))]) * len(raw[start : start + size]) + raw[start + size :]


def swap(raw: bytes, dice: random.Random) -> bytes:
    """Exchange two stretches."""
    size = dice.choice((1, 4, 64, 1024))
    a, b = sorted(dice.randrange(max(len(raw) - size, 1)) for _ in range(2))
    if b < a + size:
        return raw
    return raw[:a] + raw[b : b + size] + raw[a + size : b] + raw[a : a + size] + raw[b + size :]


def huge_number(raw: bytes, dice: random.Random) -> bytes:
    """Put a very large number where any byte was."""
    at = dice.randrange(len(raw))
    return raw[:at] + wire.write_varint(dice.choice((1 << 31, 1 << 40, 1 << 63, (1 << 64) - 1))) + raw[at + 1 :]


def shift(raw: bytes, dice: random.Random) -> bytes:
    """Take bytes out, or put some in."""
    at, size = dice.randrange(len(raw)), dice.choice((0, 1, 7, 300))
    return raw[:at] + dice.randbytes(dice.choice((0, 1, 9, 200))) + raw[at + size :]


MUTATIONS: tuple[Mutation, ...] = (cut, flip, blank, swap, huge_number, shift)


def nested(depth: int) -> bytes:
    """A message in a message in a message."""
    raw = b"\x08\x01"
    for _ in range(depth):
        raw = message({1: raw})
    return raw


def damaged(parts: TakenApart, dice: random.Random) -> bytes:
    """One input: the file, or one of its unpacked parts, damaged once or twice."""
    where = dice.choice(("file", "file", "block", "header", "info", "tail", "deep"))
    mutate = dice.choice(MUTATIONS)
    stream = parts.stream
    if where == "block":
        parts = parts.with_stream(chunks=[mutate(block, dice) for block in stream.chunks])
    elif where == "header":
        parts = parts.with_stream(header=mutate(stream.header, dice))
    elif where == "info":
        counts = {number: dice.choice((0, 1, 1 << 33, (1 << 64) - 1)) for number in (1, 3, 5, 15)}
        parts = parts.with_stream(info=dice.choice((message(counts), mutate(stream.info, dice))))
    elif where == "tail":
        parts = parts.with_stream(tail=tuple(mutate(part, dice) if part else part for part in stream.tail))
    elif where == "deep":
        parts = parts.with_stream(header=nested(dice.choice((10, 1000, 5000))))
    raw = as_bytes(parts)
    return mutate(raw, dice) if where == "file" else raw


def outcome(path: Path, left_out: Columns) -> str:
    """What the reader made of it, less some columns.

    Raises:
        AssertionError: it gave more rows than there can be, or an error of several lines.
    """
    rows = 0
    try:
        for part in NsysReportReader().read_without(path, lambda done, total: None, left_out):
            if isinstance(part, TableBatch):
                rows += part.rows.num_rows
                assert rows <= MOST_ROWS
            elif isinstance(part, SourceFacts):
                return "complete" if part.is_complete else "incomplete"
    except EvidenceError as error:
        words = error.message
    else:
        raise AssertionError("the facts are missing")
    assert len(words.splitlines()) == 1
    return "refused"


def compare_with_templates(parts: TakenApart, dice: random.Random) -> None:
    """Read a block whole and damaged in turn, with and without templates.

    Raises:
        AssertionError: rows or counts differ.
    """
    events = events_of(next(iter(parts.stream.chunks)))
    first = dice.randrange(max(len(events) - 100, 1))
    block = chunk(events[first : first + 100])
    damaged = [dice.choice(MUTATIONS)(block, dice) for _ in range(3)]
    assert_templates_change_nothing([block, damaged[0], block, *damaged[1:]])


def main(arguments: list[str]) -> int:
    """Read COUNT damaged reports; return 1 where one of them was not survived."""
    count, seed = (int(word) for word in [*arguments, *("10000", "0")[len(arguments) :]])
    originals = [beginning(name, NUM_EVENTS) for name in (SICK, HEALTHY)]
    watch = Watch("native reports")
    with tempfile.TemporaryDirectory(prefix="doctor-fuzz-") as folder:
        path = Path(folder) / "damaged.nsys-rep"
        for number in range(seed, seed + count):
            dice = random.Random(number)
            path.write_bytes(damaged(dice.choice(originals), dice))
            with watch.over(number):
                watch.outcomes[outcome(path, QUERY_ONLY if number % 2 else {})] += 1
                if number % DIAGNOSED_ONE_IN == 0:
                    watch.outcomes[diagnosed_to_the_end(path)] += 1
                if number % 4 == 0:
                    compare_with_templates(dice.choice(originals), dice)
    sys.stdout.write(watch.report())
    return int(watch.num_failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
