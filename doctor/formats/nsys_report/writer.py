"""The way back: a report out of its parts.

What is not to change is given as it was read, byte for byte; offsets, lengths and the directory are made anew. NVIDIA's
own readers see the same structure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import BinaryIO

from doctor.formats.nsys_report import wire
from doctor.formats.nsys_report.chunks import write_chunk
from doctor.formats.nsys_report.container import END_MARK, RAW_SAMPLING_DATA, SAMPLING_DATA_OFFSETS, STREAM_MARK
from doctor.formats.nsys_report.strings import StringTable, write_strings
from doctor.formats.nsys_report.wire import Field

_COMPRESSION = b"lz4"


@dataclass(frozen=True)
class StreamParts:
    """Everything in the event stream.

    Attributes:
        header: first message.
        info: second message, with the declared counts.
        chunks: unpacked blocks of events.
        strings: the string table.
        tail: messages after it.
        payload_schemas: unpacked block with NVTX payload schemas, None where there is none.
    """

    header: bytes
    info: bytes
    chunks: Iterable[bytes]
    strings: StringTable
    tail: tuple[bytes, ...]
    payload_schemas: bytes | None = None


@dataclass
class ReportWriter:
    """Writes a report section by section; `finish` adds directory and end mark."""

    file: BinaryIO
    head: bytes
    _directory: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.file.write(self.head)

    def add_section(self, name: str, content: bytes) -> None:
        """Write a section as it is."""
        start = self.file.tell()
        self.file.write(content)
        self._note(name, start)

    def add_stream(self, parts: StreamParts) -> None:
        """Write the event stream, and behind it the section that says where its parts lie."""
        start = self.file.tell()
        self.file.write(STREAM_MARK)
        base = self.file.tell()
        self.file.write(wire.write_sized(parts.header) + wire.write_sized(parts.info))
        for chunk in parts.chunks:
            self.file.write(write_chunk(chunk))
        strings_at = self.file.tell() - base
        self.file.write(write_chunk(write_strings(parts.strings)))
        for message in parts.tail:
            self.file.write(wire.write_sized(message))
        offsets = [Field(1, wire.BYTES, _COMPRESSION), Field(2, wire.VARINT, strings_at)]
        if parts.payload_schemas is not None:
            offsets.append(Field(3, wire.VARINT, self.file.tell() - base))
            self.file.write(write_chunk(parts.payload_schemas))
        self._note(RAW_SAMPLING_DATA, start)
        self.add_section(SAMPLING_DATA_OFFSETS, wire.write_fields(offsets))

    def finish(self) -> None:
        """Write directory, its offset and the end mark."""
        start = self.file.tell()
        self.file.write(b"".join(self._directory))
        self.file.write(start.to_bytes(8, "little") + END_MARK)

    def _note(self, name: str, start: int) -> None:
        entry = wire.write_fields(
            [
                Field(1, wire.BYTES, name.encode()),
                Field(2, wire.VARINT, start),
                Field(3, wire.VARINT, self.file.tell() - start),
            ]
        )
        self._directory.append(wire.write_field(Field(1, wire.BYTES, entry)))
