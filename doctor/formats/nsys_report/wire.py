"""Protobuf wire format, one message at a time, every length checked before it is used.

Source: the public encoding description of Protocol Buffers. No schema is needed: field numbers and wire types are in
the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

VARINT = 0
FIXED64 = 1
BYTES = 2
FIXED32 = 5
MAX_VARINT_BYTES = 10


class WireError(ValueError):
    """The bytes are not a protobuf message; never leaves the package."""


class Field(NamedTuple):
    """One field of a message: `value` is an unsigned integer, or bytes for wire type BYTES."""

    number: int
    wire_type: int
    value: int | bytes


class Span(NamedTuple):
    """Where one field lies: `start` to `end` of its value, without tag and length."""

    number: int
    wire_type: int
    start: int
    end: int


def read_varint(data: bytes | bytearray, position: int, end: int) -> tuple[int, int]:
    """Return the unsigned integer at `position` and the position after it.

    Raises:
        WireError: it runs over `end` or over ten bytes.
    """
    if position < end and data[position] < 0x80:  # most numbers
        return data[position], position + 1
    value = shift = 0
    limit = min(end, position + MAX_VARINT_BYTES)
    while position < limit:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise WireError("a number runs over its message")


def write_varint(value: int) -> bytes:
    """Encode an integer; a negative one as its 64-bit two's complement."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_spans(data: bytes | bytearray, start: int = 0, end: int | None = None) -> Iterator[Span]:
    """Yield where the fields of a message lie, in the order of the file.

    Raises:
        WireError: a length or number runs over the message, or a wire type is none of the four in use.
    """
    position, end = start, len(data) if end is None else end
    while position < end:
        tag, position = read_varint(data, position, end)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise WireError("field number 0")
        first = position
        if wire_type == VARINT:
            _, position = read_varint(data, position, end)
        elif wire_type == BYTES:
            size, first = read_varint(data, position, end)
            position = first + size
        elif wire_type in {FIXED64, FIXED32}:
            position = first + (8 if wire_type == FIXED64 else 4)
        else:
            raise WireError(f"wire type {wire_type}")
        if position > end:
            raise WireError("a field runs over its message")
        yield Span(number, wire_type, first, position)


def read_fields(data: bytes, start: int = 0, end: int | None = None) -> Iterator[Field]:
    """Yield the fields of a message in the order of the file.

    Raises:
        WireError: as for `read_spans`.
    """
    for number, wire_type, first, after in read_spans(data, start, end):
        if wire_type == VARINT:
            yield Field(number, wire_type, read_varint(data, first, after)[0])
        elif wire_type == BYTES:
            yield Field(number, wire_type, bytes(data[first:after]))
        else:
            yield Field(number, wire_type, int.from_bytes(data[first:after], "little"))


def write_field(field: Field) -> bytes:
    """Encode one field as `read_fields` gave it."""
    tag = write_varint(field.number << 3 | field.wire_type)
    if isinstance(field.value, int):
        if field.wire_type == VARINT:
            return tag + write_varint(field.value)
        return tag + field.value.to_bytes(8 if field.wire_type == FIXED64 else 4, "little")
    return tag + write_varint(len(field.value)) + field.value


def write_fields(fields: list[Field]) -> bytes:
    """Encode a message."""
    return b"".join(map(write_field, fields))


def write_sized(message: bytes) -> bytes:
    """A message behind its length, as top-level messages of the event stream are kept."""
    return write_varint(len(message)) + message


def signed(value: int) -> int:
    """The 64-bit two's complement reading of an unsigned varint."""
    return value - (1 << 64) if value >= 1 << 63 else value


class Message:
    """Fields of one message by number, for the small messages outside the event stream.

    Only the last value of a number counts for `integer` and `text`, as protobuf prescribes; `messages` gives every one.
    """

    def __init__(self, data: bytes) -> None:
        self._values: dict[int, list[int | bytes]] = {}
        for field in read_fields(data):
            self._values.setdefault(field.number, []).append(field.value)

    def integer(self, number: int) -> int | None:
        """A signed integer, or None where the field is absent or no integer."""
        value = self._values.get(number, [None])[-1]
        return signed(value) if isinstance(value, int) else None

    def raw(self, number: int) -> bytes | None:
        """The bytes of a field, or None."""
        value = self._values.get(number, [None])[-1]
        return value if isinstance(value, bytes) else None

    def raws(self, number: int) -> list[bytes]:
        """The bytes of every field under a repeated number."""
        return [value for value in self._values.get(number, []) if isinstance(value, bytes)]

    def text(self, number: int) -> str | None:
        """Text, with bytes that are not UTF-8 replaced; None where the field is absent."""
        value = self.raw(number)
        return None if value is None else value.decode("utf-8", "replace")

    def integers(self, number: int) -> list[int]:
        """Every integer under a repeated number."""
        return [signed(value) for value in self._values.get(number, []) if isinstance(value, int)]

    def messages(self, number: int) -> list[Message]:
        """Every submessage under a number.

        Raises:
            WireError: one of them is not a message.
        """
        return [Message(value) for value in self._values.get(number, []) if isinstance(value, bytes)]

    def message(self, number: int) -> Message | None:
        """The last submessage under a number, or None."""
        value = self.raw(number)
        return None if value is None else Message(value)
