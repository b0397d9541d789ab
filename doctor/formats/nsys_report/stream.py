"""The section "Raw Sampling Data": header, stream info, blocks of events, string table, thread names, targets.

Where the directory is missing, where the string table lies is not known either. It is then looked for among the last
blocks: the one that reads as a table of texts, with the declared number of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from doctor.formats.nsys_report import wire
from doctor.formats.nsys_report.chunks import (
    MAX_STRINGS_BYTES,
    ChunkError,
    ChunkPlace,
    chunk_place,
    chunk_places,
    read_chunk,
)
from doctor.formats.nsys_report.container import STREAM_MARK, Section
from doctor.formats.nsys_report.strings import read_strings
from doctor.formats.nsys_report.wire import Message, WireError

MAX_HEADER_BYTES = 64 << 20
_LAST_BLOCKS = 8


@dataclass(frozen=True)
class DeclaredCounts:
    """What the report says it holds; None where it does not say. Generic events are counted apart."""

    events: int | None
    strings: int | None
    thread_names: int | None
    generic_events: int | None


@dataclass(frozen=True)
class StreamLayout:
    """Where things lie in the file, absolute offsets.

    Attributes:
        section: the section as the directory has it.
        header: first message: system properties, options, capture window. Holds private things.
        info: second message: declared counts, schemas of generic events.
        declared: the counts in it; None where the message is damaged.
        blocks_start: first block of events.
        blocks_end: where the events end; the string table where `strings` is known.
        strings: block of the string table, None where it is lost.
        tail: messages after it (thread names, targets, ...), uncompressed.
        payload_schemas: offset of the block with NVTX payload schemas, None where there is none.
    """

    section: Section
    header: bytes
    info: bytes
    declared: DeclaredCounts | None
    blocks_start: int
    blocks_end: int
    strings: ChunkPlace | None
    tail: tuple[bytes, ...]
    payload_schemas: int | None


def read_layout(file: BinaryIO, section: Section, offsets: bytes | None) -> StreamLayout:
    """Find everything in the event stream but the events.

    Args:
        file: the report.
        section: where the stream lies.
        offsets: the section "Sampling Data Offsets"; None in a file without directory.

    Raises:
        WireError: header or stream info are cut or damaged.
    """
    end = section.offset + section.size
    file.seek(section.offset)
    if file.read(len(STREAM_MARK)) != STREAM_MARK:
        raise WireError("the event stream does not start with its mark")
    base = section.offset + len(STREAM_MARK)
    header, position = read_sized(file, base, end)
    info, blocks_start = read_sized(file, position, end)
    declared = _read_counts(info)
    strings_at, schemas_at = _string_offsets(offsets, base, end)
    strings = None
    if strings_at is not None:
        try:
            strings = chunk_place(file, strings_at, end, MAX_STRINGS_BYTES)
        except ChunkError:
            strings_at = None
    if strings is None:
        found = _find_strings(file, blocks_start, end, declared.strings if declared else None)
        strings_at, strings = found if found is not None else (end, None)
    tail = () if strings is None else tuple(_read_tail(file, strings.end, schemas_at or end))
    return StreamLayout(section, header, info, declared, blocks_start, strings_at or end, strings, tail, schemas_at)


def _read_counts(info: bytes) -> DeclaredCounts | None:
    try:
        message = Message(info)
    except WireError:
        return None
    return DeclaredCounts(*map(message.integer, (1, 3, 5, 15)))


def read_sized(file: BinaryIO, offset: int, end: int) -> tuple[bytes, int]:
    """A message behind its length, and the offset after it.

    Raises:
        WireError: it runs over `end`, or is larger than any header has a reason to be.
    """
    file.seek(offset)
    head = file.read(min(wire.MAX_VARINT_BYTES, max(end - offset, 0)))
    size, used = wire.read_varint(head, 0, len(head))
    if size > min(end - offset - used, MAX_HEADER_BYTES):
        raise WireError("a message runs over its section")
    file.seek(offset + used)
    return file.read(size), offset + used + size


def _string_offsets(offsets: bytes | None, base: int, end: int) -> tuple[int | None, int | None]:
    if offsets is None:
        return None, None
    try:
        message = Message(offsets)
    except WireError:
        return None, None
    places = [None if at is None or not 0 <= at < end - base else base + at for at in map(message.integer, (2, 3))]
    return places[0], places[1]


def _find_strings(file: BinaryIO, start: int, end: int, declared: int | None) -> tuple[int, ChunkPlace] | None:
    last: deque[tuple[int, ChunkPlace]] = deque(maxlen=_LAST_BLOCKS)
    before = start
    for place in _possible_places(file, start, end):
        last.append((before, place))
        before = place.end
    for offset, place in reversed(last):
        try:
            strings = read_strings(read_chunk(file, place))
        except (ChunkError, WireError):
            continue
        if strings.strings and (declared is None or len(strings.strings) == declared):
            return offset, place
    return None


def _possible_places(file: BinaryIO, start: int, end: int) -> Iterator[ChunkPlace]:
    try:
        yield from chunk_places(file, start, end)
    except ChunkError:
        return


def _read_tail(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        try:
            message, start = read_sized(file, start, end)
        except WireError:
            return
        yield message
