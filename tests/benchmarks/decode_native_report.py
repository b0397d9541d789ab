"""Three ways to decode the events of a native report, measured in one run on one core.

    python -m tests.benchmarks.decode_native_report [REPORT]

plain      one message at a time in Python (`wire.Message`)
protobuf   the C-backed `protobuf` library with a schema built at run time, fields read back into lists
blocks     numpy over whole blocks (`decoder.EventDecoder`), which is what doctor uses

All three give the columns of kernels and API calls; blocks also gives every other table. Figures are CPU seconds, the
best of several rounds, without decompression. `protobuf` is not a dependency: its line is left out where it is missing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from doctor.formats.nsys_report.decoder import EventDecoder
from doctor.formats.nsys_report.event_kinds import KERNEL, RUNTIME, EventTable
from doctor.formats.nsys_report.events import event_spans
from doctor.formats.nsys_report.wire import Message
from tests.support.native_reports import SICK, report, take_apart

ROUNDS = 3
REPEATED_BLOCKS = 4


def plain(blocks: list[bytes]) -> int:
    """Decode with one `Message` per message."""
    columns: dict[tuple[str, str], list[int | None]] = {}
    num_events = 0
    for block in blocks:
        spans = event_spans(block)
        for start, end in zip(spans.start, spans.end, strict=True):
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
        for start, end in zip(spans.start, spans.end, strict=True):
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
    """Decode as doctor does."""
    decoder = EventDecoder()
    for _ in decoder.decode(blocks):
        pass
    return decoder.counts.events


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
    fast = measured("blocks", blockwise, blocks * REPEATED_BLOCKS)
    if slow and fast:
        print(f"blocks over plain: {fast / slow:.0f}x")


if __name__ == "__main__":
    main(sys.argv[1:])
