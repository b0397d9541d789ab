"""Names and values out of what engines print of their settings: Python dictionaries, keyword arguments, nested ones."""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST_DEPTH = 8
MOST_PAIRS = 2000

_NAME = re.compile(r"""["']?([A-Za-z_][\w.\-]{0,80})["']?\s{0,4}[:=]\s{0,4}""")
_OPEN, _CLOSE = "([{<", ")]}>"


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield `(name, value)` of `{'a': 1, 'b': {'c': 2}}`, `a=1, b=Config(c=2)` and mixtures; nested names are dotted.

    A value that holds names is given whole and by its parts; text that is no such thing gives nothing. One pass.
    """
    left = MOST_PAIRS
    for name, value in _walk(text, "", MOST_DEPTH):
        yield name, value
        left -= 1
        if left == 0:
            return


def _walk(text: str, prefix: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth == 0:
        return
    for piece in _pieces(text):
        found = _NAME.match(piece)
        if found is None:
            continue
        name, value = f"{prefix}{found[1]}", piece[found.end() :].strip()
        yield name, value
        inner = _inside(value)
        if inner:
            yield from _walk(inner, f"{name}.", depth - 1)


def _inside(value: str) -> str:
    """What stands between the brackets of `{...}`, `Config(...)`; empty for lists and plain values."""
    if not value or value[-1] not in ")}":
        return ""
    start = value.find("{" if value[-1] == "}" else "(")
    return value[start + 1 : -1] if 0 <= start <= 80 else ""


def _pieces(text: str) -> Iterator[str]:
    """Parts between the commas that stand in no bracket and no quotes."""
    body = text.strip()
    if body.startswith("{"):
        body = body[1:-1] if body.endswith("}") else body[1:]
    depth, start, quote = 0, 0, ""
    for place, character in enumerate(body):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
        elif character == "," and depth <= 0:
            yield body[start:place].strip()
            start = place + 1
    yield body[start:].strip()
