"""Lines of 64 KiB that ask most of a regular expression, shown to every scanner of texts; prints the slowest.

A scanner is linear where no line takes it longer than a log of the same size does: some tenths of a second.

    python tests/fuzz/long_lines.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from doctor.readers.text import new_scanners
from doctor.readers.text.document import MOST_LINE_BYTES

PIECES = (
    "1", "1 ", "12,", "1.5 GiB ", "a", "a ", "( ", " ", "\t", "tokens ", "1 tokens ", "12 ms ", "[12 s] ", "x of ",
    "GPU 4 node 1 ", "node 0 and ", "10k, ", "1;", "h1m2s ", "1:2:3 ", "running | ", "A100 ", "pid 999 ", "/", "_", "[",
)  # fmt: skip
TOLD = 12


def lines(clues: tuple[str, ...]) -> Iterator[str]:
    """Each clue before and behind what is repeated."""
    for clue in clues:
        for piece in PIECES:
            repeated = (piece * MOST_LINE_BYTES)[: MOST_LINE_BYTES - len(clue)]
            yield clue + repeated
            yield repeated + clue


def main() -> None:
    """Print the slowest line of each of the slowest scanners."""
    slowest: list[tuple[float, str, str]] = []
    for scanner in new_scanners():
        fresh = type(scanner)
        took = []
        for line in lines(scanner.clues):
            start = time.process_time()
            fresh().line(1, line)
            took.append((time.process_time() - start, fresh.__name__, f"{line[:24]} ... {line[-24:]}"))
        slowest.append(max(took))
    for seconds, name, line in sorted(slowest, reverse=True)[:TOLD]:
        sys.stdout.write(f"{seconds:7.3f} s  {name:24} {line!r}\n")


if __name__ == "__main__":
    main()
