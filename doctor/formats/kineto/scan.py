"""Where a JSON value ends, without parsing it. Works on a part of a file: the end may not be there yet."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["{}\[\]]', re.DOTALL)
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_SCALAR = re.compile(rb"[^\s,\]}]+")
_SPACE = re.compile(rb"[\s]*")
_SEPARATORS = re.compile(rb"[\s,]*")


def skip_space(data: bytes, start: int) -> int:
    """Position of the first byte that is no white space."""
    found = _SPACE.match(data, start)
    return found.end() if found else start


def skip_separators(data: bytes, start: int) -> int:
    """Position of the first byte that is neither white space nor a comma."""
    found = _SEPARATORS.match(data, start)
    return found.end() if found else start


def value_end(data: bytes, start: int) -> int | None:
    """Position after the value that starts at `start`; None where the data ends first.

    A number or literal that touches the end of the data may go on, and counts as not ended.
    """
    first = data[start : start + 1]
    if first in (b"{", b"["):
        return _container_end(data, start)
    found = (_STRING if first == b'"' else _SCALAR).match(data, start)
    if found is None or (first != b'"' and found.end() == len(data)):
        return None
    return found.end()


def _container_end(data: bytes, start: int) -> int | None:
    depth = 0
    for token in _TOKEN.finditer(data, start):
        mark = token[0]
        if mark in (b"{", b"["):
            depth += 1
        elif mark in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                return token.end()
        elif mark == b'"':
            return None
    return None


@dataclass(frozen=True)
class Elements:
    """Elements of an array, as far as they are there.

    Attributes:
        spans: start and end of each object.
        stray_count: places between objects that hold something else.
        end: position after the last whole element, or after the closing bracket.
        is_closed: the array's closing bracket was found.
    """

    spans: list[tuple[int, int]]
    stray_count: int
    end: int
    is_closed: bool


def object_elements(data: bytes, start: int) -> Elements:
    """Find the whole objects of an array whose opening bracket lies before `start`; anything else is counted."""
    spans: list[tuple[int, int]] = []
    depth, begin, end, stray_count = 0, start, start, 0
    for token in _TOKEN.finditer(data, start):
        mark = token[0]
        if mark in (b"{", b"["):
            if depth == 0:
                begin = token.start()
            depth += 1
        elif mark in (b"}", b"]"):
            if depth == 0:
                stray_count += skip_separators(data, end) != token.start()
                return Elements(spans, stray_count, token.end(), is_closed=True)
            depth -= 1
            if depth == 0:
                stray_count += skip_separators(data, end) != begin or mark == b"]"
                end = token.end()
                if mark == b"}":
                    spans.append((begin, end))
        elif mark == b'"':
            break
    return Elements(spans, stray_count, end, is_closed=False)
