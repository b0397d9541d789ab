"""LZ4 blocks of the event stream, one at a time, with every size checked before memory is taken for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import lz4.block

from doctor.formats.nsys_report import wire

MAX_EVENT_CHUNK_BYTES = 32 << 20
"""Recorders write 7,000 events a block, less than 1 MB; decoding takes some fifteen times the block."""
MAX_STRINGS_BYTES = 1 << 30
LZ4_MAX_RATIO = 255
_LZ4_SLACK_BYTES = 16
_HEAD_BYTES = 2 * wire.MAX_VARINT_BYTES


class ChunkError(ValueError):
    """A block whose sizes or content cannot be right; never leaves the package."""


@dataclass(frozen=True)
class ChunkPlace:
    """A block in the file: its LZ4 data lies at `offset` to `end`; `offset` of the next block is `end`."""

    offset: int
    end: int
    raw_size: int


def chunk_place(file: BinaryIO, offset: int, limit: int, max_raw: int = MAX_EVENT_CHUNK_BYTES) -> ChunkPlace:
    """Read the two sizes in front of a block.

    Raises:
        ChunkError: they do not fit the file, or a block cannot unpack to that many bytes.
    """
    file.seek(offset)
    head = file.read(min(_HEAD_BYTES, max(limit - offset, 0)))
    try:
        packed, position = wire.read_varint(head, 0, len(head))
        raw, position = wire.read_varint(head, position, len(head))
    except wire.WireError as error:
        raise ChunkError("the sizes of a block are cut") from error
    start = offset + position
    most_packed = raw + raw // LZ4_MAX_RATIO + _LZ4_SLACK_BYTES
    is_nothing = packed == 0  # even an empty block takes a byte: these are zeros of a page that was never written
    if is_nothing or packed > min(limit - start, most_packed) or raw > min(max_raw, packed * LZ4_MAX_RATIO):
        raise ChunkError("a block has sizes that cannot be right")
    return ChunkPlace(start, start + packed, raw)


def read_chunk(file: BinaryIO, place: ChunkPlace) -> bytes:
    """Unpack one block.

    Raises:
        ChunkError: it is damaged, or unpacks to another size than declared.
    """
    file.seek(place.offset)
    packed = file.read(place.end - place.offset)
    try:
        raw: bytes = lz4.block.decompress(packed, uncompressed_size=place.raw_size)
    except (lz4.block.LZ4BlockError, ValueError, OverflowError) as error:
        raise ChunkError("a block is damaged") from error
    if len(raw) != place.raw_size:
        raise ChunkError("a block unpacks to another size than declared")
    return raw


def write_chunk(raw: bytes) -> bytes:
    """Pack bytes as one block with its two sizes in front."""
    packed: bytes = lz4.block.compress(raw, store_size=False)
    return wire.write_varint(len(packed)) + wire.write_varint(len(raw)) + packed


def chunk_places(file: BinaryIO, offset: int, limit: int) -> Iterator[ChunkPlace]:
    """Walk the blocks from `offset` to `limit` without unpacking them.

    Raises:
        ChunkError: after the last block that has possible sizes, where that is not at `limit`.
    """
    while offset < limit:
        place = chunk_place(file, offset, limit)
        yield place
        offset = place.end
