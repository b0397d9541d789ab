"""A trace of any size, piece by piece: the values beside the events, and the events in lists of some thousands.

Options measured on one core over 9 MB of real events (32,000): ijson 59 MB/s, json 66, orjson 95, DuckDB's read_json
178 (whole file in memory, no NaN), msgspec into typed events 182. So the file is cut into slices at places that look
like the gap between two events, and msgspec decodes each slice; a slice that decodes was cut in the right place,
because nothing else is balanced JSON. Where it does not decode the exact end of each event is searched, and events are
mended one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from doctor.formats.json_escapes import with_whole_characters
from doctor.formats.kineto import repair, scan
from doctor.formats.kineto.events import EVENTS, TraceEvent

_SLICE_BYTES = 4 << 20
_MOST_VALUE_BYTES = 256 << 20
_MOST_GUESSES = 3
_GAP = re.compile(rb"\s*,\s*(?=\{)")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

HEADER_KEYS = frozenset(
    {
        "deviceProperties",
        "distributedInfo",
        "baseTimeNanoseconds",
        "cuda_runtime_version",
        "cuda_driver_version",
        "cupti_version",
        "hip_runtime_version",
        "roctracer_version",
        "WARNING",
        "ERROR",
    }
)
"""Values beside the events that are read. Others name users, hosts and jobs, and are skipped unparsed."""


class TraceStream:
    """One pass over a trace, out of chunks of its text; `slice_bytes` are decoded at a time.

    Attributes:
        header: values of `HEADER_KEYS` that the trace has, complete once all events were taken.
        has_events: an array of events was found.
        is_bare: the trace is that array alone, without the values beside it.
        skipped_count: events that could not be read, and things between events that are none.
        mended_count: events that were no valid JSON and were read all the same.
        is_cut: the trace ends before its closing bracket.
    """

    def __init__(self, chunks: Iterator[bytes], slice_bytes: int = _SLICE_BYTES) -> None:
        self.header: dict[str, Any] = {}
        self.has_events = False
        self.is_bare = False
        self.skipped_count = 0
        self.mended_count = 0
        self.is_cut = False
        self._chunks = chunks
        self._slice_bytes = slice_bytes
        self._data = b""
        self._at = 0

    def event_lists(self) -> Iterator[list[TraceEvent]]:
        """Yield the events in the order of the file, some thousands at a time."""
        self._need(len(_BYTE_ORDER_MARK))
        if self._data.startswith(_BYTE_ORDER_MARK):
            self._at = len(_BYTE_ORDER_MARK)
        opening = self._next_byte()
        if opening == b"[":
            self.is_bare = True
            self._at += 1
            yield from self._events()
        elif opening == b"{":
            self._at += 1
            yield from self._members()

    def _members(self) -> Iterator[list[TraceEvent]]:
        while True:
            opening = self._next_byte()
            if opening != b'"':
                self.is_cut |= opening != b"}"
                return
            key = self._value()
            if key is None or self._next_byte() != b":":
                self.is_cut = True
                return
            self._at += 1
            if key == b'"traceEvents"' and self._next_byte() == b"[":
                self._at += 1
                yield from self._events()
                if self.is_cut:
                    return
            elif not self._keep(key):
                self.is_cut = True
                return

    def _keep(self, quoted_key: bytes) -> bool:
        """Read one value and keep it if it is wanted; False where the trace ends within it."""
        value = self._value()
        if value is None:
            return False
        key = quoted_key[1:-1].decode("utf-8", "replace")
        if key in HEADER_KEYS:
            try:
                self.header[key] = json.loads(with_whole_characters(value))
            except (ValueError, RecursionError):
                self.skipped_count += 1
        return True

    def _value(self) -> bytes | None:
        """The text of the value that comes next, or None where the trace ends within it."""
        self._next_byte()
        while (end := scan.value_end(self._data, self._at)) is None:
            if len(self._data) - self._at > _MOST_VALUE_BYTES or not self._more(len(self._data) - self._at):
                return None
        value = self._data[self._at : end]
        self._at = end
        return value

    def _events(self) -> Iterator[list[TraceEvent]]:
        self.has_events = True
        while True:
            self._need(self._slice_bytes)
            events = self._guessed_slice() if len(self._data) - self._at >= self._slice_bytes else None
            if events is not None:
                yield events
                continue
            elements = scan.object_elements(self._data, self._at)
            if elements.spans:
                yield self._exact(elements.spans)
            self.skipped_count += elements.stray_count
            self._at = elements.end
            if elements.is_closed:
                return
            grown = len(self._data) - self._at
            if not elements.spans and (grown > _MOST_VALUE_BYTES or not self._more(max(grown, self._slice_bytes))):
                self.is_cut = True
                return

    def _guessed_slice(self) -> list[TraceEvent] | None:
        """Decode up to a place that looks like the gap between two events; None where no guess was right."""
        limit = len(self._data)
        for _ in range(_MOST_GUESSES):
            gap = None
            while gap is None:
                limit = self._data.rfind(b"}", self._at, limit)
                if limit < 0:
                    return None
                gap = _GAP.match(self._data, limit + 1)
            events = _decode_guess(b"[" + self._data[self._at : limit + 1] + b"]")
            if events is None:
                continue
            self._at = gap.end()
            return events
        return None

    def _exact(self, spans: list[tuple[int, int]]) -> list[TraceEvent]:
        texts = [self._data[start:end] for start, end in spans]
        events = repair.decode_array(b"[" + b",".join(texts) + b"]")
        return [event for text in texts for event in self._single(text)] if events is None else events

    def _single(self, text: bytes) -> list[TraceEvent]:
        events = repair.decode_array(b"[" + text + b"]")
        if events is not None:
            return events
        event = repair.decode_leniently(text)
        self.mended_count += event is not None
        self.skipped_count += event is None
        return [] if event is None else [event]

    def _next_byte(self) -> bytes:
        """The next byte that is neither white space nor a comma; empty at the end of the trace."""
        while True:
            self._at = scan.skip_separators(self._data, self._at)
            if self._at < len(self._data) or not self._more(1):
                return self._data[self._at : self._at + 1]

    def _need(self, size: int) -> None:
        missing = size - (len(self._data) - self._at)
        if missing > 0:
            self._more(missing)

    def _more(self, size: int) -> bool:
        """Read at least `size` bytes more; False at the end of the trace."""
        parts = [self._data[self._at :]]
        found = 0
        for chunk in self._chunks:
            parts.append(chunk)
            found += len(chunk)
            if found >= size:
                break
        self._data = b"".join(parts)
        self._at = 0
        return found > 0


def _decode_guess(array: bytes) -> list[TraceEvent] | None:
    try:
        return EVENTS.decode(array)
    except (msgspec.DecodeError, RecursionError):
        mended = repair.mended(array)
    return None if mended is array else repair.decode_array(mended)
