"""Protobuf, many messages at once: all of them advance one field a step.

The general path of the decoder: any wire type, any order of fields, texts and repeated fields. Its cost follows the
longest message, so a batch is worth a few thousand messages. `shapes` is the fast path for messages of whole numbers
only; both must agree on every input.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from doctor.formats.nsys_report import wire

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

PADDING = 16
"""Bytes that must follow the last message in a buffer, so that reading a whole word at any position stays inside it."""

_SEVENS = 0x7F7F7F7F7F7F7F7F
_GROUPS = (
    (0x007F007F007F007F, 0x7F007F007F007F00, 1),
    (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
    (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
)
"""How seven-bit groups are pulled together: bits that stay, bits that move, how far."""


def padded(parts: list[bytes], padding: int = PADDING) -> Bytes:
    """Bytes side by side as an array, with the padding that the readers of this module rely on."""
    return np.frombuffer(b"".join([*parts, bytes(padding)]), dtype=np.uint8)


def words(buffer: Bytes, size: int = 8) -> NDArray[np.unsignedinteger]:
    """View that gives, at index i, the `size` bytes from position i on as one little-endian word."""
    return np.ndarray(shape=(buffer.size - size + 1,), dtype=f"<u{size}", buffer=buffer.data, strides=(1,))


def varints(buffer: Bytes, first: Ints, last: Ints) -> Ints:
    """Integers whose bytes lie at `first` to `last` (both inside), read as 64-bit two's complement."""
    return numbers_at(buffer, first, last - first)


def numbers_at(buffer: Bytes, first: Ints, extra: Ints) -> Ints:
    """Integers of `extra` bytes after their `first`, read as 64-bit two's complement.

    `extra` may be one number for all (an array without dimensions).

    Numbers are gathered as words of the smallest size that holds the longest of them, and their seven-bit groups pulled
    together in as many steps as that takes. Numbers of nine or ten bytes add the bytes that no word holds.
    """
    longest = int(extra.max(initial=0))
    if longest == 0:
        return buffer[first].astype(np.int64)
    steps = 1 if longest == 1 else 2 if longest <= 3 else 3
    size = 1 << steps
    unsigned = np.dtype(f"u{size}").type
    word = words(buffer, size)[first]
    word &= np.array([_SEVENS & ((1 << 8 * min(count, size)) - 1) for count in range(1, 11)], dtype=unsigned)[extra]
    for keep, move, shift in _GROUPS[:steps]:
        bits = (1 << 8 * size) - 1
        moved = word & unsigned(move & bits)
        moved >>= unsigned(shift)
        word &= unsigned(keep & bits)
        word |= moved
    value = word.astype(np.int64)
    for byte in (8, 9):
        if longest >= byte:
            rows = np.flatnonzero(np.broadcast_to(extra >= byte, first.shape))
            group = (buffer[first[rows] + byte] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * byte)
            value[rows] |= group.view(np.int64)
    return value


def ends_of_varints(buffer: Bytes, first: Ints) -> Ints:
    """Position of the last byte of the number at each position; a broken number gives one more than nine bytes on."""
    last = first.copy()
    open_ = np.flatnonzero(buffer[last] >= 0x80)
    for _ in range(wire.MAX_VARINT_BYTES):
        if not open_.size:
            break
        last[open_] += 1
        open_ = open_[buffer[np.minimum(last[open_], buffer.size - 1)] >= 0x80]
    return last


@dataclass
class Hits:
    """Where one field number was met: row of the message, value, byte range. Later hits of a row come later."""

    row: Ints
    value: Ints
    start: Ints
    end: Ints
    wire_type: Ints


@dataclass
class Level:
    """Fields of many messages at one nesting level, and the rows that are not protobuf."""

    bad: Bools
    fields: dict[int, list[Hits]] = field(default_factory=dict)

    def last_hits(self, number: int) -> Hits | None:
        """The last hit of each message for a field number (protobuf: the last one counts), rows ascending."""
        parts = self.fields.get(number)
        if not parts:
            return None
        row, value, start, end, wire_type = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("row", "value", "start", "end", "wire_type")
        )
        _, first_from_the_end = np.unique(row[::-1], return_index=True)
        chosen = row.size - 1 - first_from_the_end
        chosen = chosen[~self.bad[row[chosen]]]
        return Hits(row[chosen], value[chosen], start[chosen], end[chosen], wire_type[chosen])


def scan_level(buffer: Bytes, start: Ints, end: Ints) -> Level:
    """Read the fields of messages at `start` to `end` (half open); `buffer` is padded.

    Raises:
        nothing: messages that are not protobuf are marked in `Level.bad` and their fields dropped.
    """
    level = Level(bad=np.zeros(start.size, dtype=np.bool_))
    rows = np.flatnonzero(start < end)
    position = start[rows]
    while rows.size:
        stop = end[rows]
        tag_end = ends_of_varints(buffer, position)
        tag = varints(buffer, position, np.minimum(tag_end, position + 9))
        value_start = tag_end + 1
        wire_type = tag & 7
        safe_start = np.minimum(value_start, buffer.size - PADDING)
        number_end = ends_of_varints(buffer, safe_start)
        number = varints(buffer, safe_start, np.minimum(number_end, safe_start + 9))
        is_bytes, is_varint = wire_type == wire.BYTES, wire_type == wire.VARINT
        is_fixed = (wire_type == wire.FIXED64) | (wire_type == wire.FIXED32)
        body = np.where(is_fixed, value_start, number_end + 1)
        left = stop - body
        size = np.where(is_bytes, number, np.where(is_fixed, np.where(wire_type == wire.FIXED64, 8, 4), 0))
        broken = ~(is_bytes | is_varint | is_fixed) | (size < 0) | (size > left) | (tag >> 3 == 0)
        broken |= (tag_end - position > 9) | (~is_fixed & (number_end - safe_start > 9)) | (value_start > stop)
        level.bad[rows[broken]] = True
        kept = ~broken
        _record(level, _Step(buffer, rows, tag, number, body, body + size), kept)
        rows, position, stop = rows[kept], (body + size)[kept], stop[kept]
        going = position < stop
        rows, position = rows[going], position[going]
    return level


@dataclass(frozen=True)
class _Step:
    """One field of every message that still has one."""

    buffer: Bytes
    rows: Ints
    tag: Ints
    number: Ints
    start: Ints
    end: Ints


def _record(level: Level, step: _Step, kept: Bools) -> None:
    numbers = step.tag[kept] >> 3
    for number in np.unique(numbers):
        chosen = np.flatnonzero(kept)[numbers == number]
        wire_type = step.tag[chosen] & 7
        value = step.number[chosen].copy()
        for kind, mask in ((wire.FIXED64, 0xFFFFFFFFFFFFFFFF), (wire.FIXED32, 0xFFFFFFFF)):
            fixed = wire_type == kind
            if fixed.any():
                value[fixed] = (words(step.buffer)[step.start[chosen[fixed]]] & np.uint64(mask)).view(np.int64)
        hits = Hits(step.rows[chosen], value, step.start[chosen], step.end[chosen], wire_type)
        level.fields.setdefault(int(number), []).append(hits)
