"""Lines that a terminal broke at its width, put together again: a paste keeps the breaks, in the middle of words."""

from __future__ import annotations

import re

MOST_BYTES = 256 * 1024
"""A paste; a file of logs is not broken by a terminal."""
LEAST_WIDTH, MOST_WIDTH = 78, 400
_NO_MORE = re.compile(r"[|+=\-~`>]\Z")
_BEGINS = re.compile(
    r"[^A-Za-z ]| {2}"
    r"|(?:INFO|WARN|WARNING|ERROR|DEBUG|CRITICAL|FATAL|NOTE|Traceback|File|Processed|Loading|Capturing)\b"
)
"""How a line of its own begins: anything but a letter, an indent, or a word that opens a message."""


def unwrapped(piece: bytes) -> bytes:
    """The text with broken lines joined, an empty line in the place of each part that was moved up.

    Lines are taken for broken where several are exactly as long as the longest, and what follows begins like the middle
    of a sentence and unlike the line before it. Rows of tables and of logs that happen to be equally long begin alike.
    """
    if len(piece) > MOST_BYTES:
        return piece
    lines = piece.decode("utf-8", errors="replace").split("\n")
    width = max(map(len, lines))
    full = [place for place, line in enumerate(lines[:-1]) if len(line) == width]
    if not LEAST_WIDTH <= width <= MOST_WIDTH or len(full) < 2:
        return piece
    broken = {place for place in full if _goes_on(lines[place], lines[place + 1])}
    if len(broken) < max(2, len(full) / 2):
        return piece
    for place in sorted(broken, reverse=True):
        lines[place], lines[place + 1] = lines[place] + lines[place + 1], ""
    return "\n".join(lines).encode()


def _goes_on(line: str, following: str) -> bool:
    return bool(
        following
        and _NO_MORE.search(line) is None
        and _BEGINS.match(following) is None
        and line.lstrip()[:3] != following.lstrip()[:3]
    )
