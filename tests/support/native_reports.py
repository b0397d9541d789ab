"""Native reports made for a test: a real one with a part changed, or one made of a few events."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from doctor.formats.nsys_report import container as sections
from doctor.formats.nsys_report import wire
from doctor.formats.nsys_report.chunks import chunk_place, chunk_places, read_chunk
from doctor.formats.nsys_report.decoder import EventDecoder
from doctor.formats.nsys_report.events import event_spans
from doctor.formats.nsys_report.report import open_report
from doctor.formats.nsys_report.strings import StringTable, read_strings
from doctor.formats.nsys_report.table_rows import EventCounts
from doctor.formats.nsys_report.wire import Field, Message
from doctor.formats.nsys_report.writer import ReportWriter, StreamParts
from tests.support.samples import SAMPLES

SICK = "launch-bound-decode-nsys-report/launch-sick"
HEALTHY = "graph-decode-nsys-report/healthy-fixed"
PID = 4711
GLOBAL_PID = (1 << 48) + (PID << 24)
TID = GLOBAL_PID + PID


def report(name: str = HEALTHY) -> Path:
    """A native report that the repository ships."""
    return SAMPLES / f"{name}.nsys-rep"


@dataclass(frozen=True)
class TakenApart:
    """A report as its parts.

    Attributes:
        head: first line.
        small: sections besides the event stream and the list of its offsets, in order.
        stream: the event stream.
    """

    head: bytes
    small: tuple[tuple[str, bytes], ...]
    stream: StreamParts

    def put_together(self, path: Path) -> Path:
        """Write the parts as a report, block by block."""
        with path.open("wb") as file:
            _write(self, file)
        return path

    def with_stream(self, **changes: object) -> TakenApart:
        """The same with parts of the event stream changed."""
        return replace(self, stream=replace(self.stream, **changes))  # type: ignore[arg-type] # names are the fields


def as_bytes(parts: TakenApart) -> bytes:
    """The report that the parts make."""
    file = io.BytesIO()
    _write(parts, file)
    return file.getvalue()


def _write(parts: TakenApart, file: BinaryIO) -> None:
    writer = ReportWriter(file, parts.head)
    for name, content in parts.small:
        if name == sections.RAW_SAMPLING_DATA:
            writer.add_stream(parts.stream)
        else:
            writer.add_section(name, content)
    writer.finish()


def take_apart(path: Path) -> TakenApart:
    """Every part of a report, blocks unpacked."""
    opened = open_report(path)
    layout = opened.layout
    assert layout.strings is not None
    with path.open("rb") as file:
        end = layout.section.offset + layout.section.size
        schemas = None
        if layout.payload_schemas is not None:
            schemas = read_chunk(file, chunk_place(file, layout.payload_schemas, end))
        stream = StreamParts(
            layout.header,
            layout.info,
            [read_chunk(file, place) for place in chunk_places(file, layout.blocks_start, layout.blocks_end)],
            read_strings(read_chunk(file, layout.strings)),
            layout.tail,
            schemas,
        )
        small = tuple(
            (section.name, sections.read_section(file, section, 1 << 20))
            for section in opened.container.sections
            if section.name != sections.SAMPLING_DATA_OFFSETS
        )
    return TakenApart(opened.container.head, small, stream)


def everything(path: Path) -> bytes:
    """All bytes of a report, those inside its blocks included."""
    parts = take_apart(path)
    return b"\n".join([path.read_bytes(), *parts.stream.chunks, *parts.stream.strings.strings])


Value = int | bytes | Mapping[int, "Value"]


def message(fields: Mapping[int, Value] | Iterable[tuple[int, Value]]) -> bytes:
    """A protobuf message out of numbers, bytes and nested messages."""
    pairs = fields.items() if isinstance(fields, Mapping) else fields
    out = b""
    for number, value in pairs:
        if isinstance(value, int):
            out += wire.write_field(Field(number, wire.VARINT, value))
        else:
            raw = value if isinstance(value, bytes) else message(value)
            out += wire.write_field(Field(number, wire.BYTES, raw))
    return out


def event(type_id: int, payload: int, fields: Mapping[int, Value] | Iterable[tuple[int, Value]]) -> bytes:
    """One event."""
    return message([(1, type_id), (payload, message(fields))])


def chunk(events: Iterable[bytes], generic: Iterable[bytes] = ()) -> bytes:
    """One unpacked block."""
    return wire.write_sized(message([*((1, one) for one in events), *((2, one) for one in generic)]))


def tables_of(blocks: list[bytes], batch_bytes: int) -> tuple[dict[str, pa.Table], EventCounts]:
    """Rows of each table of unpacked blocks, in the order of the stream, and what was counted.

    Args:
        blocks: the blocks.
        batch_bytes: how much is decoded at once. With 1 each block is a batch, and what repeats itself is read by the
            templates that the blocks before it gave; with more than there is, everything is read field by field.
    """
    decoder = EventDecoder(batch_bytes=batch_bytes)
    found: dict[str, list[pa.RecordBatch]] = {}
    for part in decoder.decode(blocks):
        found.setdefault(part.table.name, []).append(part.whole())
    return {table: pa.Table.from_batches(rows) for table, rows in found.items()}, decoder.counts


def assert_templates_change_nothing(blocks: list[bytes]) -> None:
    """Blocks that teach the next ones give the rows and counts that reading each event field by field gives."""
    (fast, fast_counts), (slow, slow_counts) = tables_of(blocks, 1), tables_of(blocks, 1 << 40)
    assert fast_counts == slow_counts
    assert fast.keys() == slow.keys()
    for table in slow:
        assert fast[table].equals(slow[table]), table


def events_of(block: bytes) -> list[bytes]:
    """The events of an unpacked block."""
    spans = event_spans(block)
    return [block[start:end] for start, end in zip(spans.start.tolist(), spans.end.tolist(), strict=True)]


def beginning(name: str, num_events: int) -> TakenApart:
    """The first events of a shipped report, with everything else that it has."""
    parts = take_apart(report(name))
    block = next(iter(parts.stream.chunks))
    events = events_of(block)[:num_events]
    info = Message(parts.stream.info)
    counts = message({1: len(events), 3: info.integer(3) or 0, 5: info.integer(5) or 0, 9: b"lz4"})
    return parts.with_stream(chunks=[chunk(events)], info=counts)


def made_of(events: list[bytes], strings: list[bytes], **stream: object) -> TakenApart:
    """A small report: one block of events, a string table, nothing private."""
    info = message({1: len(events), 3: len(strings), 5: 0, 9: b"lz4"})
    header = message({1: {1: b"Local (CLI)", 3: 1 << 48}, 17: 1_000, 18: 9_000})
    tail = (message({1: {1: 1 << 48, 2: {}}}),)
    parts = StreamParts(header, info, [chunk(events)], StringTable(strings), tail)
    return TakenApart(
        b"NVIDIA Tegra Profiler Report 2025@3@1@0-1v0.",
        ((sections.ANALYSIS_OPTIONS, b""), (sections.RAW_SAMPLING_DATA, b"")),
        replace(parts, **stream),  # type: ignore[arg-type] # names are the fields
    )


def kernel(start: int, name_id: int, **more: int) -> bytes:
    """A kernel of 10 ns on stream 7."""
    head = {1: start, 2: start + 10, 3: more.get("correlation", start), 4: 0, 5: 1, 6: 7, 8: GLOBAL_PID}
    return event(79, 107, {**head, 101: {1: name_id, 2: name_id, **dict.fromkeys(range(10, 16), 1)}})


def call(start: int, name_id: int, event_class: int = 0) -> bytes:
    """An API call of 5 ns."""
    return event(48, 108, {1: start, 2: start + 5, 3: start, 6: event_class, 7: name_id, 8: 0, 13: TID})


def nvtx_range(start: int, text: bytes, domain: int = 0) -> bytes:
    """An NVTX push/pop range of 100 ns."""
    return event(59, 102, {1: 59, 2: start, 7: text, 9: TID, 10: start + 100, 13: domain, 14: 1})


def nvtx_domain(domain: int, name: bytes) -> bytes:
    """The event that creates an NVTX domain."""
    return event(75, 102, {1: 75, 2: 1, 7: name, 9: TID, 13: domain, 14: 1})
