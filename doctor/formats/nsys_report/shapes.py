"""Protobuf, many messages at once: the fast path for messages of whole numbers.

A message of whole numbers (and of messages of whole numbers) is a row of numbers: tag, value, tag, value,
..., where a nested message adds one pair (its tag and length) and lies inside the same row. In a byte array the last
byte of every number is below 0x80, so one pass finds all numbers. Messages with the same row of tags share a shape;
their values are columns. A trace has a few dozen shapes for millions of events.

Nothing is assumed that is not checked for every message: the tags, byte for byte, and that each nested length ends
where the shape says. What does not fit is handed back, and `levels` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from doctor.formats.nsys_report import wire
from doctor.formats.nsys_report.levels import Bools, Bytes, Ints, varints

Path = tuple[int, ...]
MAX_SHAPES = 96


@dataclass(frozen=True)
class Shape:
    """A row of tags: where each field's value lies in it, and which nested messages it opens.

    Attributes:
        tags: tag bytes of each pair.
        values: path of field numbers to the index of the pair that holds its value.
        nested: (index of the pair that opens a message, index of the number that ends it).
    """

    tags: tuple[bytes, ...]
    values: dict[Path, int]
    nested: tuple[tuple[int, int], ...]
    opened: frozenset[Path]


@dataclass(frozen=True)
class Numbers:
    """Positions of numbers of messages that hold equally many: `first` and `last` byte, one row a number."""

    first: Ints
    last: Ints

    def only(self, chosen: Bools) -> Numbers:
        """The messages that `chosen` marks."""
        return Numbers(self.first[:, chosen], self.last[:, chosen])

    def column(self, buffer: Bytes, index: int) -> Ints:
        """Values of one number in every message."""
        return varints(buffer, self.first[index], self.last[index])


@dataclass(frozen=True)
class ShapedRows:
    """Messages of one shape: `rows` index the spans given to `shaped_rows`."""

    rows: Ints
    shape: Shape
    numbers: Numbers


def shaped_rows(buffer: Bytes, start: Ints, end: Ints, messages: frozenset[Path]) -> Iterator[ShapedRows | Ints]:
    """Sort messages by shape; rows that have none are yielded as a plain index array.

    Args:
        buffer: padded bytes.
        start: first byte of each message, ascending.
        end: byte after each message.
        messages: paths of the fields that hold messages to look into; any other field with a length has no shape here.
    """
    ends = np.flatnonzero(buffer < 0x80)
    first, after = np.searchsorted(ends, start), np.searchsorted(ends, end)
    count = after - first
    whole = (end > start) & (count > 0) & (count % 2 == 0) & (buffer[np.maximum(end - 1, 0)] < 0x80)
    if not whole.all():
        yield np.flatnonzero(~whole)
    for num_numbers in np.unique(count[whole]):
        rows = np.flatnonzero(whole & (count == num_numbers))
        yield from _same_length(buffer, ends, _Rows(rows, start[rows], first[rows], int(num_numbers)), messages)


@dataclass(frozen=True)
class _Rows:
    rows: Ints
    start: Ints
    first_end: Ints
    num_numbers: int


def _same_length(buffer: Bytes, ends: Ints, some: _Rows, messages: frozenset[Path]) -> Iterator[ShapedRows | Ints]:
    last = ends[some.first_end + np.arange(some.num_numbers)[:, None]]
    first = np.empty_like(last)
    first[0] = some.start
    first[1:] = last[:-1] + 1
    numbers, rows = Numbers(first, last), some.rows
    for _ in range(MAX_SHAPES):
        if not rows.size:
            return
        shape = _shape_of(buffer, numbers, messages)
        if shape is None:
            break
        fits = _fitting(buffer, numbers, shape)
        if fits.all():
            yield ShapedRows(rows, shape, numbers)
            return
        if not fits.any():
            break
        yield ShapedRows(rows[fits], shape, numbers.only(fits))
        numbers, rows = numbers.only(~fits), rows[~fits]
    yield rows


def _shape_of(buffer: Bytes, numbers: Numbers, messages: frozenset[Path]) -> Shape | None:
    """Shape of the first message, or None where it has a field that holds no number and no known message."""
    first, last = numbers.first[:, 0], numbers.last[:, 0]
    tags: list[bytes] = []
    values: dict[Path, int] = {}
    nested: list[tuple[int, int]] = []
    opened: set[Path] = set()
    inside: list[tuple[Path, int]] = [((), int(last[-1]))]
    for index in range(0, first.size, 2):
        raw = buffer[first[index] : last[index] + 1].tobytes()
        if len(raw) > wire.MAX_VARINT_BYTES or int(last[index + 1] - first[index + 1]) >= wire.MAX_VARINT_BYTES:
            return None
        tag, _ = wire.read_varint(raw, 0, len(raw))
        tags.append(raw)
        path = (*inside[-1][0], tag >> 3)
        if tag & 7 == wire.VARINT and path not in messages:
            values[path] = index + 1
        elif tag & 7 == wire.BYTES and path in messages:
            close = int(last[index + 1]) + int(numbers.column(buffer, index + 1)[0])
            if close > inside[-1][1] or path in opened:
                return None
            end_index = int(np.searchsorted(last, close))
            nested.append((index + 1, end_index))
            opened.add(path)
            inside.append((path, close))
        else:
            return None
        here = int(last[index + 1])
        while len(inside) > 1 and inside[-1][1] <= here:
            if inside.pop()[1] != here:
                return None
    return Shape(tuple(tags), values, tuple(nested), frozenset(opened))


def _fitting(buffer: Bytes, numbers: Numbers, shape: Shape) -> Bools:
    fits = np.ones(numbers.first.shape[1], dtype=np.bool_)
    for pair, tag in enumerate(shape.tags):
        first, last = numbers.first[2 * pair], numbers.last[2 * pair]
        fits &= last - first == len(tag) - 1
        for offset, byte in enumerate(tag):
            fits &= buffer[first + offset] == byte
    for index, end_index in shape.nested:
        fits &= numbers.last[index] + numbers.column(buffer, index) == numbers.last[end_index]
    for index in range(1, numbers.first.shape[0], 2):
        fits &= numbers.last[index] - numbers.first[index] < wire.MAX_VARINT_BYTES
    return fits
