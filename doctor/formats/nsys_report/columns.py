"""Payload messages of one kind to columns: the fast path for what has a shape, the general one for the rest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from doctor.formats.nsys_report import wire
from doctor.formats.nsys_report.event_kinds import INTEGER, REAL32, REAL64, TEXT, Column
from doctor.formats.nsys_report.levels import Bools, Bytes, Ints, scan_level
from doctor.formats.nsys_report.payloads import Payloads
from doctor.formats.nsys_report.shapes import Path, ShapedRows, shaped_rows

_LONG_TEXT_BYTES = 256
_ARROW_TYPE = {INTEGER: pa.int64(), TEXT: pa.string(), REAL64: pa.float64(), REAL32: pa.float64()}
_WIRE_TYPE = {INTEGER: wire.VARINT, TEXT: wire.BYTES, REAL64: wire.FIXED64, REAL32: wire.FIXED32}


@dataclass
class Values:
    """One path of many messages.

    Attributes:
        value: an integer, the bits of a real number, or the position of a text, each.
        end: position after a text.
        is_there: whether the message has the field.
    """

    value: Ints
    end: Ints
    is_there: Bools


class PayloadColumns:
    """Decoded fields of messages that share a payload type.

    Attributes:
        is_bad: messages that are not protobuf; they have no values.
    """

    def __init__(self, payloads: Payloads, columns: Iterable[Column]) -> None:
        self._buffer = payloads.buffer
        self._kinds: dict[Path, str] = {}
        for column in columns:
            self._kinds[column.path] = column.kind
            self._kinds.update(dict.fromkeys(column.otherwise, column.kind))
        self._messages = frozenset(path[:depth] for path in self._kinds for depth in range(1, len(path)))
        self._size = payloads.start.size
        self._values: dict[Path, Values] = {}
        self._opened = {path: np.zeros(self._size, dtype=np.bool_) for path in self._messages}
        self.is_bad = np.zeros(self._size, dtype=np.bool_)
        self._everywhere = ~self.is_bad
        self._read(payloads)

    def has_message(self, path: Path) -> Bools:
        """Which messages hold the submessage at `path`."""
        return self._opened[path]

    def has_column(self, path: Path) -> bool:
        """Whether the path is one of the columns asked for."""
        return path in self._kinds

    def integers(self, path: Path) -> Values:
        """Raw values of one path."""
        if path not in self._values:
            zeros = np.zeros(self._size, dtype=np.int64)
            self._values[path] = Values(zeros, zeros.copy(), np.zeros(self._size, dtype=np.bool_))
        return self._values[path]

    def array(self, column: Column, chosen: Ints) -> pa.Array:
        """One column of the chosen messages: int64, float64 or string, with NULL where the field is absent."""
        if column.path not in self._values and not any(path in self._values for path in column.otherwise):
            return pa.nulls(chosen.size, _ARROW_TYPE[column.kind])
        value, is_there = self._taken(column.path, chosen)
        for path in column.otherwise:
            other, is_other_there = self._taken(path, chosen)
            value = np.where(is_there, value, other)
            is_there = is_there | is_other_there
        if column.kind == TEXT:
            return text_array(self._buffer, value, self._values[column.path].end[chosen], is_there)
        if column.kind == REAL64:
            value = value.view(np.float64)
        elif column.kind == REAL32:
            value = value.astype(np.uint32).view(np.float32).astype(np.float64)
        return pa.array(value) if is_there.all() else pa.array(value, mask=~is_there)

    def _taken(self, path: Path, chosen: Ints) -> tuple[Ints, Bools]:
        values = self.integers(path)
        if chosen.size == self._size:  # rows are chosen in order, so these are all of them
            return values.value, values.is_there
        return values.value[chosen], values.is_there[chosen]

    def _read(self, payloads: Payloads) -> None:
        if any(kind != INTEGER for kind in self._kinds.values()):
            self._read_level((), np.arange(self._size), payloads.start, payloads.end)
            return
        for part in shaped_rows(payloads, self._messages):
            if isinstance(part, ShapedRows):
                self._read_shape(part)
            else:
                self._read_level((), part, payloads.start[part], payloads.end[part])

    def _read_shape(self, part: ShapedRows) -> None:
        for path in part.shape.opened:
            self._opened[path][part.rows] = True
        for path in self._kinds:
            index = part.shape.values.get(path)
            if index is None:
                continue
            column = part.numbers.column(self._buffer, index)
            if column.size == self._size:  # one shape is all there is: nothing to put together
                self._values[path] = Values(column, column, self._everywhere)
                continue
            values = self.integers(path)
            values.value[part.rows] = column
            values.is_there[part.rows] = True

    def _read_level(self, prefix: Path, rows: Ints, start: Ints, end: Ints) -> None:
        level = scan_level(self._buffer, start, end)
        self.is_bad[rows[level.bad]] = True
        for number in level.fields:
            path = (*prefix, number)
            kind = self._kinds.get(path)
            if kind is None and path not in self._messages:
                continue
            hits = level.last_hits(number)
            if hits is None:
                continue
            fits = hits.wire_type == (wire.BYTES if kind is None else _WIRE_TYPE[kind])
            there, first, last = rows[hits.row[fits]], hits.start[fits], hits.end[fits]
            if kind is None:
                self._opened[path][there] = True
                self._read_level(path, there, first, last)
                continue
            values = self.integers(path)
            values.value[there] = first if kind == TEXT else hits.value[fits]
            values.end[there] = last
            values.is_there[there] = True


def _gathered(buffer: Bytes, start: Ints, offsets: Ints) -> bytes:
    """Bytes of many texts one behind the other: short ones by position, at eight bytes each; long ones one by one."""
    size = np.diff(offsets)
    if offsets[-1] > _LONG_TEXT_BYTES * size.size:
        return b"".join(buffer[at : at + length].tobytes() for at, length in zip(start, size, strict=True))
    positions = np.repeat(start - offsets[:-1], size) + np.arange(offsets[-1])
    gathered: Bytes = buffer[positions]
    return bytes(gathered)


def text_array(buffer: Bytes, start: Ints, end: Ints, is_there: Bools) -> pa.Array:
    """Texts at byte ranges as a string array; bytes that are not UTF-8 become the replacement character."""
    size = np.where(is_there, end - start, 0)
    offsets = np.zeros(size.size + 1, dtype=np.int64)
    np.cumsum(size, out=offsets[1:])
    data = pa.py_buffer(_gathered(buffer, start, offsets))
    bits = pa.py_buffer(np.packbits(is_there, bitorder="little").tobytes())
    raw = pa.Array.from_buffers(pa.large_binary(), size.size, [bits, pa.py_buffer(offsets.tobytes()), data])
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if text is None else text.decode("utf-8", "replace") for text in raw.to_pylist()], pa.string()
        )
