"""Makes a large native report out of a small real one: the work repeated in time, with ids shifted so that joins hold.

Times and correlation ids are first written with a fixed number of bytes (protobuf allows numbers to be longer than they
need be), so that every repetition is the same block with a few bytes changed. Everything that is no work (messages of
the recorder, processes, allocations) stays once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doctor.formats.nsys_report import wire
from doctor.formats.nsys_report.events import event_spans
from doctor.formats.nsys_report.wire import Field
from tests.support.native_reports import chunk, take_apart

TIME_BYTES, ID_BYTES = 6, 4
KERNEL = 79
_TIMES = {107: (1, 2), 108: (1, 2), 102: (2, 10)}
_IDS: dict[int, tuple[int, ...]] = {107: (3,), 108: (3,), 102: ()}
_REPEATED_TYPES = frozenset({48, 59, 60, KERNEL, 80, 106, 127, 130})

Places = list[tuple[int, int]]
"""(position of a number, its value)."""


@dataclass(frozen=True)
class _WideEvent:
    """An event with room for larger numbers; positions count from its first byte."""

    type_id: int
    raw: bytes
    times: Places
    ids: Places


@dataclass(frozen=True)
class _Template:
    """A block of such events; positions count from the first byte of the block."""

    raw: NDArray[np.uint8]
    times: NDArray[np.int64]
    ids: NDArray[np.int64]

    def shifted(self, time: int, correlation_id: int) -> bytes:
        """The block with larger times and ids."""
        out = self.raw.copy()
        for (position, value), shift, size in ((self.times, time, TIME_BYTES), (self.ids, correlation_id, ID_BYTES)):
            for byte in range(size):
                group = ((value + shift) >> (7 * byte)) & 0x7F
                out[position + byte] = group | (0x80 if byte < size - 1 else 0)
        return out.tobytes()


def replicate_report(source: Path, target: Path, kernels: int) -> None:
    """Write a native report with at least so many kernels.

    Args:
        source: a real report.
        target: file to write.
        kernels: wanted rows of CUPTI_ACTIVITY_KIND_KERNEL.
    """
    parts = take_apart(source)
    once: list[bytes] = []
    blocks: list[list[_WideEvent]] = []
    for raw in parts.stream.chunks:
        spans = event_spans(raw)
        events = [raw[start:end] for start, end in zip(spans.start.tolist(), spans.end.tolist(), strict=True)]
        wide = [_widen(event) for event in events]
        once += [event for event, changed in zip(events, wide, strict=True) if changed is None]
        blocks += [changed] if (changed := [event for event in wide if event is not None]) else []
    repeated = [event for block in blocks for event in block]
    repetitions = -(-kernels // sum(event.type_id == KERNEL for event in repeated))
    times = [value for event in repeated for _, value in event.times]
    span = max(times) - min(times) + 1000
    ids = max(value for event in repeated for _, value in event.ids) + 1
    stream = replace(
        parts.stream,
        info=_changed(parts.stream.info, 1, len(once) + repetitions * len(repeated)),
        header=_changed(parts.stream.header, 18, max(times) + repetitions * span),
        chunks=_blocks(
            once, list(map(_template, blocks)), [(index * span, index * ids) for index in range(repetitions)]
        ),
    )
    replace(parts, stream=stream).put_together(target)


def _blocks(once: list[bytes], templates: list[_Template], shifts: list[tuple[int, int]]) -> Iterator[bytes]:
    yield chunk(once)
    for time, correlation_id in shifts:
        for template in templates:
            yield template.shifted(time, correlation_id)


def _widen(event: bytes) -> _WideEvent | None:
    """The event with wide numbers; None where it is not to be repeated."""
    type_id, position = wire.read_varint(event, 1, len(event))
    tag, position = wire.read_varint(event, position, len(event))
    _, position = wire.read_varint(event, position, len(event))
    if type_id not in _REPEATED_TYPES:
        return None
    payload = b""
    times: Places = []
    ids: Places = []
    for item in wire.read_fields(event, position):
        sizes = {**dict.fromkeys(_TIMES[tag >> 3], TIME_BYTES), **dict.fromkeys(_IDS[tag >> 3], ID_BYTES)}
        if item.number not in sizes or not isinstance(item.value, int):
            payload += wire.write_field(item)
            continue
        payload += wire.write_varint(item.number << 3)
        (times if item.number in _TIMES[tag >> 3] else ids).append((len(payload), item.value))
        payload += bytes(sizes[item.number])
    if any(value >= 1 << 62 for _, value in times):  # before the capture window, where times are negative
        return None
    head = wire.write_field(Field(1, wire.VARINT, type_id)) + wire.write_varint(tag) + wire.write_varint(len(payload))
    moved = [[(len(head) + position, value) for position, value in places] for places in (times, ids)]
    return _WideEvent(type_id, head + payload, *moved)


def _template(events: list[_WideEvent]) -> _Template:
    raw = chunk(event.raw for event in events)
    starts = event_spans(raw).start
    times = [(start + at, value) for start, event in zip(starts, events, strict=True) for at, value in event.times]
    ids = [(start + at, value) for start, event in zip(starts, events, strict=True) for at, value in event.ids]
    return _Template(np.frombuffer(raw, dtype=np.uint8), *(np.array(found, dtype=np.int64).T for found in (times, ids)))


def _changed(message: bytes, number: int, value: int) -> bytes:
    """A message with one of its numbers set."""
    fields = [item._replace(value=value) if item.number == number else item for item in wire.read_fields(message)]
    return wire.write_fields(fields)
