"""Ways to decode the events of a native report, measured in one run on one core.

    python -m tests.benchmarks.decode_native_report [REPORT]

Rows of events:
plain      one message at a time in Python (`wire.Message`)
protobuf   the C-backed `protobuf` library with a schema built at run time, fields read back into lists
blocks     numpy over whole blocks, each event field by field (`table_rows.RowDecoder`)
templates  the same for what is new; what repeats itself by templates (`decoder.EventDecoder`), which doctor uses

Where events begin and end:
loop       one length after the other in Python
wrapper    the `protobuf` library with events as a repeated field of bytes, whose sizes are added up
together   numpy, everything that looks like an event at once (`events.event_spans`), which doctor uses

All give the columns of kernels and API calls; blocks and templates also every other table. Figures are CPU seconds, the
best of several rounds, without decompression. `protobuf` is not a dependency of reading: its lines are left out where
it is missing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from doctor.formats.nsys_report import wire
from doctor.formats.nsys_report.decoder import EventDecoder
from doctor.formats.nsys_report.event_kinds import EVENT_TABLES, KERNEL, RUNTIME, EventTable
from doctor.formats.nsys_report.events import event_spans
from doctor.formats.nsys_report.table_rows import EventCounts, RowDecoder
from doctor.formats.nsys_report.wire import Message
from tests.support.native_reports import SICK, events_of, report, take_apart

ROUNDS = 3
REPEATED_BLOCKS = 16


def plain(blocks: list[bytes]) -> int:
    """Decode with one `Message` per message."""
    columns: dict[tuple[str, str], list[int | None]] = {}
    num_events = 0
    for block in blocks:
        spans = event_spans(block)
        for start, end in zip(spans.start.tolist(), spans.end.tolist(), strict=True):
            num_events += 1
            event = Message(block[start:end])
            for table in (KERNEL, RUNTIME):
                payload = event.message(table.payload) if event.integer(1) in table.types else None
                if payload is not None:
                    _gather(columns, table, payload)
    return num_events


def _gather(columns: dict[tuple[str, str], list[int | None]], table: EventTable, payload: Message) -> None:
    nested = payload.message(101)
    for column in table.columns:
        place = payload if len(column.path) == 1 else nested
        value = None if place is None else place.integer(column.path[-1])
        columns.setdefault((table.name, column.name), []).append(value)


def with_protobuf(blocks: list[bytes]) -> int | None:
    """Decode with the protobuf library; None where it is not installed."""
    try:
        message_of = _schema()
    except ImportError:
        return None
    columns: dict[tuple[str, str], list[int]] = {}
    num_events = 0
    for block in blocks:
        spans = event_spans(block)
        for start, end in zip(spans.start.tolist(), spans.end.tolist(), strict=True):
            num_events += 1
            event = message_of.FromString(block[start:end])
            table = KERNEL if event.f1 == 79 else RUNTIME if event.f1 == 48 else None
            if table is None:
                continue
            payload = getattr(event, f"f{table.payload}")
            for column in table.columns:
                place = payload if len(column.path) == 1 else payload.f101
                columns.setdefault((table.name, column.name), []).append(getattr(place, f"f{column.path[-1]}"))
    return num_events


def _schema() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]

    file = descriptor_pb2.FileDescriptorProto(name="events.proto", package="events", syntax="proto2")
    numbers: dict[str, set[int]] = {"Nested": set(), "Cuda": set(), "Call": set(), "Event": {1}}
    for table, name in ((KERNEL, "Cuda"), (RUNTIME, "Call")):
        for column in table.columns:
            numbers["Nested" if len(column.path) > 1 else name].add(column.path[-1])
    whole, inner = descriptor_pb2.FieldDescriptorProto.TYPE_INT64, descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
    for name, found in numbers.items():
        message = file.message_type.add(name=name)
        for number in sorted(found):
            message.field.add(name=f"f{number}", number=number, type=whole, label=1)
    by_name = {message.name: message for message in file.message_type}
    for owner, number, kind in (("Cuda", 101, "Nested"), ("Event", 107, "Cuda"), ("Event", 108, "Call")):
        by_name[owner].field.add(name=f"f{number}", number=number, type=inner, label=1, type_name=f".events.{kind}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("events.Event"))


def blockwise(blocks: list[bytes]) -> int:
    """Decode each event field by field."""
    decoder = RowDecoder(EVENT_TABLES, EventCounts())
    num_events = 0
    for block in blocks:
        events = events_of(block)
        num_events += len(events)
        for _ in decoder.decode(events):
            pass
    return num_events


def with_templates(blocks: list[bytes]) -> int:
    """Decode as doctor does."""
    decoder = EventDecoder()
    for _ in decoder.decode(blocks):
        pass
    return decoder.counts.events


def bounds_in_a_loop(blocks: list[bytes]) -> int:
    """Follow the lengths one by one."""
    num_events = 0
    for block in blocks:
        _, position = wire.read_varint(block, 0, len(block))
        while position < len(block):
            length, body = wire.read_varint(block, position + 1, len(block))
            position = body + length
            num_events += 1
    return num_events


def bounds_by_wrapper(blocks: list[bytes]) -> int | None:
    """Let the protobuf library cut a block into events, and add up their sizes; None where it is not installed."""
    try:
        block_class = _wrapper()
    except ImportError:
        return None
    num_events = 0
    for block in blocks:
        _, position = wire.read_varint(block, 0, len(block))
        sizes = np.fromiter(map(len, block_class.FromString(block[position:]).events), dtype=np.int64)
        np.cumsum(sizes + 2 + (sizes >= 1 << 7) + (sizes >= 1 << 14))
        num_events += sizes.size
    return num_events


def _wrapper() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="block.proto", package="block", syntax="proto2")
    message = file.message_type.add(name="Block")
    message.field.add(name="events", number=1, type=descriptor_pb2.FieldDescriptorProto.TYPE_BYTES, label=3)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("block.Block"))


def bounds_together(blocks: list[bytes]) -> int:
    """Find bounds as doctor does."""
    return sum(event_spans(block).start.size for block in blocks)


def measured(name: str, decode: Callable[[list[bytes]], int | None], blocks: list[bytes]) -> float | None:
    """Events a CPU second, printed."""
    best = None
    for _ in range(ROUNDS):
        begun = time.process_time()
        num_events = decode(blocks)
        spent = time.process_time() - begun
        if num_events is None:
            print(f"{name:10} not installed")
            return None
        best = max(best or 0.0, num_events / spent)
    print(f"{name:10} {best:12,.0f} events a CPU second")
    return best


def main(arguments: list[str]) -> None:
    """Measure one report."""
    path = Path(arguments[0]) if arguments else report(SICK)
    blocks = list(take_apart(path).stream.chunks)
    slow = measured("plain", plain, blocks)
    measured("protobuf", with_protobuf, blocks)
    many = blocks * REPEATED_BLOCKS
    measured("blocks", blockwise, many)
    fast = measured("templates", with_templates, many)
    if slow and fast:
        print(f"templates over plain: {fast / slow:.0f}x")
    for name, find in (
        ("loop", bounds_in_a_loop),
        ("wrapper", bounds_by_wrapper),
        ("together", bounds_together),
    ):
        measured(name, find, many)


if __name__ == "__main__":
    main(sys.argv[1:])
