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
from doctor.formats.nsys_report.payloads import Payloads

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
    """Where the numbers of messages lie that hold equally many.

    Attributes:
        start: first byte of each message.
        last: last byte of each number, one row a number, one column a message.
    """

    start: Ints
    last: Ints

    def only(self, chosen: Bools) -> Numbers:
        """The messages that `chosen` marks."""
        return Numbers(self.start[chosen], self.last[:, chosen])

    def sizes(self) -> Ints:
        """Bytes of each number after the first."""
        return self.last[1:] - self.last[:-1]

    def column(self, buffer: Bytes, index: int) -> Ints:
        """Values of one number in every message."""
        first = self.start if index == 0 else self.last[index - 1] + 1
        return varints(buffer, first, self.last[index])


@dataclass(frozen=True)
class ShapedRows:
    """Messages of one shape: `rows` index the spans given to `shaped_rows`."""

    rows: Ints
    shape: Shape
    numbers: Numbers


def shaped_rows(payloads: Payloads, messages: frozenset[Path]) -> Iterator[ShapedRows | Ints]:
    """Sort messages by shape; rows that have none are yielded as a plain index array.

    Args:
        payloads: the messages.
        messages: paths of the fields that hold messages to look into; any other field with a length has no shape here.
    """
    buffer, start, end = payloads.buffer, payloads.start, payloads.end
    count = payloads.after_number - payloads.first_number
    whole = (end > start) & (count > 0) & (count % 2 == 0) & (buffer[np.maximum(end - 1, 0)] < 0x80)
    if not whole.all():
        yield np.flatnonzero(~whole)
    for num_numbers in np.unique(count[whole]):
        rows = np.flatnonzero(whole & (count == num_numbers))
        some = _Rows(rows, start[rows], payloads.first_number[rows], int(num_numbers))
        yield from _same_length(buffer, payloads.number_ends, some, messages)


@dataclass(frozen=True)
class _Rows:
    rows: Ints
    start: Ints
    first_end: Ints
    num_numbers: int


def _same_length(buffer: Bytes, ends: Ints, some: _Rows, messages: frozenset[Path]) -> Iterator[ShapedRows | Ints]:
    last = np.empty((some.num_numbers, some.rows.size), dtype=np.int64)
    for index in range(some.num_numbers):
        np.take(ends, some.first_end + index, out=last[index], mode="clip")
    numbers, rows = Numbers(some.start, last), some.rows
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
    last = numbers.last[:, 0]
    first = np.append(numbers.start[0], last[:-1] + 1)
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
    sizes = numbers.sizes()
    fits: Bools = numbers.last[0] - numbers.start == len(shape.tags[0]) - 1
    if sizes.max(initial=0) > wire.MAX_VARINT_BYTES:
        fits &= sizes.max(axis=0) <= wire.MAX_VARINT_BYTES
    for pair, tag in enumerate(shape.tags):
        if pair:
            fits &= sizes[2 * pair - 1] == len(tag)
        for offset, byte in enumerate(reversed(tag)):
            fits &= buffer[numbers.last[2 * pair] - offset] == byte
    for index, end_index in shape.nested:
        fits &= numbers.last[index] + numbers.column(buffer, index) == numbers.last[end_index]
    return fits
