"""Events of the stream: where each one lies, and which type and payload it has."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from doctor.formats.nsys_report import wire
from doctor.formats.nsys_report.levels import Bools, Bytes, Ints, padded, varints
from doctor.formats.nsys_report.payloads import Payloads

MAX_EVENTS_OF_A_CHUNK = 1 << 20
"""Recorders write 7,000; a damaged or hostile block of millions of empty ones would take gigabytes."""

_EVENT_TAG = 1 << 3 | wire.BYTES
_GENERIC_EVENT_TAG = 2 << 3 | wire.BYTES
_TYPE_TAG = 1 << 3 | wire.VARINT


@dataclass
class EventSpans:
    """Byte ranges of the events in one chunk.

    Attributes:
        start: first byte of each event.
        end: byte after it.
        generic: byte ranges of the generic events (GPU metrics and the like) beside them.
        is_whole: the chunk could be walked to its end, and held nothing else.
    """

    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    generic: list[tuple[int, int]] = field(default_factory=list)
    is_whole: bool = True


def event_spans(chunk: bytes) -> EventSpans:
    """Find the events of an unpacked chunk: lengths and messages in turn, events under field 1, generic ones under 2.

    A broken length ends the walk; what was found before it stays. The loop is plain Python: each length has to be known
    before the next event is, and it costs a fraction of what decoding does.
    """
    spans = EventSpans()
    position, size = 0, len(chunk)
    try:
        while position < size:
            length, position = wire.read_varint(chunk, position, size)
            stop = position + length
            if stop > size:
                raise wire.WireError("a message runs over its chunk")
            position = _walk(chunk, position, stop, spans)
    except wire.WireError:
        spans.is_whole = False
    return spans


def _walk(chunk: bytes, position: int, stop: int, spans: EventSpans) -> int:
    start, end = spans.start.append, spans.end.append
    for _ in range(MAX_EVENTS_OF_A_CHUNK):
        if position + 2 >= stop:
            break
        length, second = chunk[position + 1], chunk[position + 2]
        if length < 0x80:
            body = position + 2
        elif second < 0x80:  # lengths of two bytes, the common ones, without a call
            length += (second << 7) - 0x80
            body = position + 3
        else:
            length, body = wire.read_varint(chunk, position + 1, stop)
        if length > stop - body:
            raise wire.WireError("an event runs over its message")
        if chunk[position] == _EVENT_TAG:
            start(body)
            end(body + length)
        elif chunk[position] == _GENERIC_EVENT_TAG:
            spans.generic.append((body, body + length))
        else:
            raise wire.WireError("something else than an event")
        position = body + length
    if position < stop:
        raise wire.WireError("bytes are left over behind the events, or more events than any recorder writes")
    return position


@dataclass(frozen=True)
class EventBatch:
    """Events of one or more chunks in one buffer.

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


def event_batch(chunks: list[bytes], spans: list[EventSpans]) -> EventBatch:
    """Put chunks side by side and read type and payload of each event."""
    buffer = padded(b"".join(chunks))
    bases = np.cumsum([0, *(len(chunk) for chunk in chunks[:-1])])
    start = _joined([span.start for span in spans], bases)
    end = _joined([span.end for span in spans], bases)
    number_ends = np.flatnonzero(buffer < 0x80)
    header = _Header(buffer, number_ends, start, end)
    has_type = (buffer[start] == _TYPE_TAG) & header.is_inside(1)
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
        _after(number_ends, header.first, start, end),
    )


_NUMBERS_BEFORE_PAYLOAD = 4
"""Tag of the type, type, tag of the payload, its length."""


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


def _after(number_ends: Ints, first: Ints, start: Ints, end: Ints) -> Ints:
    """Index after the last number of each event.

    Events mostly stand one behind the other, tag and length between them: then it follows from where the next begins.
    """
    after = np.append(first[1:] - 2, 0)
    is_certain = np.zeros(end.size, dtype=np.bool_)
    is_certain[:-1] = (after[:-1] > 0) & (number_ends[np.maximum(after[:-1] - 1, 0)] == end[:-1] - 1)
    rest = np.flatnonzero(~is_certain)
    after[rest] = np.searchsorted(number_ends, end[rest])
    return after


def _joined(parts: list[list[int]], bases: Ints) -> Ints:
    arrays = [np.array(part, dtype=np.int64) + base for part, base in zip(parts, bases, strict=True)]
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)
