"""Events of the stream: where each one lies in its chunk."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from doctor.formats.nsys_report import wire

MAX_EVENTS_OF_A_CHUNK = 1 << 20
"""Recorders write 7,000; a damaged or hostile block of millions of empty ones would take gigabytes."""

_WINDOW_BYTES = 1 << 20
"""How much is searched at once for what may be an event: recorders' chunks are smaller."""

_EVENT_TAG = 1 << 3 | wire.BYTES
_GENERIC_EVENT_TAG = 2 << 3 | wire.BYTES
_TYPE_TAG = 1 << 3 | wire.VARINT

_Ints = NDArray[np.int64]
_NOTHING: _Ints = np.zeros(0, dtype=np.int64)


@dataclass
class EventSpans:
    """Byte ranges of the events in one chunk.

    Attributes:
        start: first byte of each event.
        end: byte after it.
        generic: byte ranges of the generic events (GPU metrics and the like) beside them.
        is_whole: the chunk could be walked to its end, and held nothing else.
    """

    start: _Ints = field(default_factory=_NOTHING.copy)
    end: _Ints = field(default_factory=_NOTHING.copy)
    generic: list[tuple[int, int]] = field(default_factory=list)
    is_whole: bool = True


def event_spans(chunk: bytes) -> EventSpans:
    """Find the events of an unpacked chunk: lengths and messages in turn, events under field 1, generic ones under 2.

    A broken length ends the walk; what was found before it stays.

    Each length has to be known before the next event is, but what looks like an event (tag, length of one or two bytes,
    tag of a type) can be found everywhere at once. Where one of those ends at the next of them, numpy has followed the
    lengths; only what breaks such a run (a chance look-alike inside an event, an event that looks different) is walked.
    """
    walk = _Walk(chunk)
    is_whole = True
    position, size = 0, len(chunk)
    try:
        while position < size:
            length, position = wire.read_varint(chunk, position, size)
            stop = position + length
            if stop > size:
                raise wire.WireError("a message runs over its chunk")
            walk.message(position, stop)
            position = stop
    except wire.WireError:
        is_whole = False
    return walk.spans(is_whole)


@dataclass(frozen=True)
class _Candidates:
    """What looks like an event, ascending.

    Attributes:
        tag: position of its tag.
        body: of its first byte.
        after: of the byte behind it.
        breaks: indices of those that do not end where the next candidate begins; the last one always is.
    """

    tag: _Ints
    body: _Ints
    after: _Ints
    breaks: _Ints


class _Walk:
    """One walk over a chunk."""

    def __init__(self, chunk: bytes) -> None:
        self._chunk = chunk
        self._bytes = np.frombuffer(chunk, dtype=np.uint8)
        self._start: list[_Ints] = []
        self._end: list[_Ints] = []
        self._alone: list[tuple[int, int]] = []
        self._generic: list[tuple[int, int]] = []
        self._left = 0

    def spans(self, is_whole: bool) -> EventSpans:
        """What was found."""
        self._gather_alone()
        start, end = (np.concatenate(parts) if parts else _NOTHING for parts in (self._start, self._end))
        return EventSpans(start, end, self._generic, is_whole)

    def message(self, position: int, stop: int) -> None:
        """Walk one message.

        Raises:
            WireError: a length runs over it, or it holds something else.
        """
        self._left = MAX_EVENTS_OF_A_CHUNK
        while position + 2 <= stop and self._left:
            position = self._window(position, min(position + _WINDOW_BYTES, stop), stop)
        if position < stop:
            raise wire.WireError("bytes are left over behind the events, or more events than any recorder writes")

    def _window(self, position: int, window_end: int, stop: int) -> int:
        """Walk what begins in a window; return where the next event begins."""
        found = self._candidates(position, window_end)
        index = 0
        while position < window_end and position + 2 <= stop and self._left:
            index += int(np.searchsorted(found.tag[index:], position))
            if index < found.tag.size and found.tag[index] == position:
                position = self._run(found, index, stop)
            else:
                position = self._one(position, stop)
        return position

    def _candidates(self, position: int, window_end: int) -> _Candidates:
        data = self._bytes[position : min(window_end + 3, self._bytes.size)]
        tag = np.flatnonzero(data[:-3] == _EVENT_TAG)
        is_long = data[tag + 1] >= 0x80
        second = data[tag + 2]
        is_event = np.where(is_long, (second < 0x80) & (data[tag + 3] == _TYPE_TAG), second == _TYPE_TAG)
        tag, is_long = tag[is_event], is_long[is_event]
        length = data[tag + 1].astype(np.int64)
        length += np.where(is_long, (data[tag + 2].astype(np.int64) << 7) - 0x80, 0)
        tag += position
        body = tag + 2 + is_long
        after = body + length
        breaks = np.append(np.flatnonzero(after[:-1] != tag[1:]), tag.size - 1)
        return _Candidates(tag, body, after, breaks)

    def _run(self, found: _Candidates, first: int, stop: int) -> int:
        """Take candidates of which each begins where the one before ends."""
        last = min(int(found.breaks[np.searchsorted(found.breaks, first)]), first + self._left - 1)
        is_over = found.after[last] > stop
        taken = slice(first, last + (0 if is_over else 1))
        self._gather_alone()
        self._start.append(found.body[taken])
        self._end.append(found.after[taken])
        self._left -= found.body[taken].size
        if is_over:
            raise wire.WireError("an event runs over its message")
        return int(found.after[last])

    def _one(self, position: int, stop: int) -> int:
        """Take an event that looks different."""
        length, body = wire.read_varint(self._chunk, position + 1, stop)
        if length > stop - body:
            raise wire.WireError("an event runs over its message")
        if self._chunk[position] == _EVENT_TAG:
            self._alone.append((body, body + length))
        elif self._chunk[position] == _GENERIC_EVENT_TAG:
            self._generic.append((body, body + length))
        else:
            raise wire.WireError("something else than an event")
        self._left -= 1
        return body + length

    def _gather_alone(self) -> None:
        """Put events that were taken one by one behind those before them."""
        if self._alone:
            start, end = np.array(self._alone, dtype=np.int64).T
            self._start.append(start)
            self._end.append(end)
            self._alone.clear()
