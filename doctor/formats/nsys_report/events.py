"""Events of the stream: where each one lies, and which type and payload it has."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from doctor.formats.nsys_report import wire
from doctor.formats.nsys_report.levels import Bools, Bytes, Ints, ends_of_varints, padded, varints

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
    start, end = spans.start, spans.end
    while position < stop:
        tag = chunk[position]
        if tag not in {_EVENT_TAG, _GENERIC_EVENT_TAG}:
            raise wire.WireError("something else than an event")
        length, position = wire.read_varint(chunk, position + 1, stop)
        if length > stop - position:
            raise wire.WireError("an event runs over its message")
        if tag == _EVENT_TAG:
            start.append(position)
            end.append(position + length)
        else:
            spans.generic.append((position, position + length))
        position += length
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
    """

    buffer: Bytes
    type_id: Ints
    payload: Ints
    payload_start: Ints
    payload_end: Ints


def event_batch(chunks: list[bytes], spans: list[EventSpans]) -> EventBatch:
    """Put chunks side by side and read type and payload of each event."""
    buffer = padded(b"".join(chunks))
    bases = np.cumsum([0, *(len(chunk) for chunk in chunks[:-1])])
    start = _joined([span.start for span in spans], bases)
    end = _joined([span.end for span in spans], bases)
    has_type = (end - start >= 2) & (buffer[start] == _TYPE_TAG)
    type_id, tag_start, is_read = _number(buffer, start + 1, end)
    has_type &= is_read
    tag, size_start, is_read = _number(buffer, tag_start, end)
    has_payload = has_type & is_read & (tag & 7 == wire.BYTES)
    size, payload_start, is_read = _number(buffer, size_start, end)
    has_payload &= is_read & (size >= 0) & (payload_start + size == end)
    return EventBatch(buffer, np.where(has_type, type_id, 0), np.where(has_payload, tag >> 3, 0), payload_start, end)


def _joined(parts: list[list[int]], bases: Ints) -> Ints:
    arrays = [np.array(part, dtype=np.int64) + base for part, base in zip(parts, bases, strict=True)]
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)


def _number(buffer: Bytes, start: Ints, end: Ints) -> tuple[Ints, Ints, Bools]:
    """Number at each position, the position after it, and whether it lies inside its event."""
    inside = start < end
    safe = np.minimum(start, end - 1)
    last = ends_of_varints(buffer, safe)
    is_read = inside & (last < end) & (last - safe < wire.MAX_VARINT_BYTES)
    return varints(buffer, safe, np.minimum(last, safe + 9)), last + 1, is_read
