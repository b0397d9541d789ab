"""Many events in one buffer: which type and payload each has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from doctor.formats.nsys_report import wire
from doctor.formats.nsys_report.levels import Bools, Bytes, Ints, padded, varints
from doctor.formats.nsys_report.payloads import Payloads

_TYPE_TAG = 1 << 3 | wire.VARINT
_NUMBERS_BEFORE_PAYLOAD = 4
"""Tag of the type, type, tag of the payload, its length."""


@dataclass(frozen=True)
class EventBatch:
    """Events side by side in one buffer.

    Attributes:
        buffer: padded bytes.
        type_id: event type; 0 where an event does not start with one.
        payload: field number of the message that follows the type; 0 where none does or it does not fill the event.
        payload_start: first byte of that message.
        payload_end: byte after it, which is the end of the event.
        number_ends: positions of all bytes below 0x80, which are the last bytes of numbers.
        first_number: index in it of the first number of each payload.
        after_number: index after that of its last number.
    """

    buffer: Bytes
    type_id: Ints
    payload: Ints
    payload_start: Ints
    payload_end: Ints
    number_ends: Ints
    first_number: Ints
    after_number: Ints

    def payloads(self, rows: Ints) -> Payloads:
        """The messages of some events."""
        return Payloads(
            self.buffer,
            self.payload_start[rows],
            self.payload_end[rows],
            self.number_ends,
            self.first_number[rows],
            self.after_number[rows],
        )


def event_batch(events: list[bytes]) -> EventBatch:
    """Put events side by side and read type and payload of each."""
    buffer = padded(events)
    size = np.fromiter(map(len, events), dtype=np.int64, count=len(events))
    end = np.cumsum(size)
    number_ends = np.flatnonzero(buffer < 0x80)
    header = _Header(buffer, number_ends, end - size, end)
    has_type = (buffer[end - size] == _TYPE_TAG) & header.is_inside(1)
    tag = header.number(2)
    has_payload = has_type & header.is_inside(3) & (tag & 7 == wire.BYTES)
    payload_start = header.last(3) + 1
    has_payload &= payload_start + header.number(3) == end
    return EventBatch(
        buffer,
        np.where(has_type, header.number(1), 0),
        np.where(has_payload, tag >> 3, 0),
        payload_start,
        end,
        number_ends,
        header.first + _NUMBERS_BEFORE_PAYLOAD,
        np.append(header.first[1:], np.searchsorted(number_ends, end[-1:])),
    )


class _Header:
    """The first numbers of each event."""

    def __init__(self, buffer: Bytes, number_ends: Ints, start: Ints, end: Ints) -> None:
        self._buffer, self._number_ends = buffer, number_ends
        self._start, self._end = start, end
        self.first = np.searchsorted(number_ends, start)

    def last(self, index: int) -> Ints:
        """Last byte of the number at `index`."""
        return np.take(self._number_ends, self.first + index, mode="clip")

    def is_inside(self, index: int) -> Bools:
        """Whether the numbers up to `index` end inside their event."""
        return self.last(index) < self._end

    def number(self, index: int) -> Ints:
        """The number at `index`; of no meaning where it is not inside, or longer than a number may be."""
        last = self.last(index)
        first = np.maximum(self.last(index - 1) + 1, last - 9)
        return varints(self._buffer, first, last)
