"""The event stream to tables: Arrow batches under NVIDIA's table and column names, chunk by chunk.

Ways that were measured side by side (`python -m tests.benchmarks.decode_native_report`, one busy core), in events a CPU
second: a message at a time in Python 27,000; the C-backed `protobuf` library 145,000 (reading fields back out of its
objects is what costs); numpy over whole blocks, field by field, 460,000; templates for what repeats itself 1,140,000,
their learning included. So templates it is, field by field what is new, without a dependency.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np

from doctor.formats.nsys_report.event_kinds import EVENT_TABLES, EventTable
from doctor.formats.nsys_report.events import EventSpans, event_spans
from doctor.formats.nsys_report.levels import Ints, padded
from doctor.formats.nsys_report.repeated_events import RepeatedEvents
from doctor.formats.nsys_report.spread_rows import SpreadRows
from doctor.formats.nsys_report.table_rows import EventCounts, RowDecoder, RowsOfEvents
from doctor.formats.nsys_report.templates import BYTES_BEHIND, Events

Batches = Generator[Events, None, None]
BATCH_BYTES = 8 << 20
"""Decompressed bytes decoded at once: enough to make numpy's cost per call small."""


class EventDecoder:
    """Decodes chunks in the order they come; `counts` is complete when `decode` is exhausted."""

    def __init__(self, tables: tuple[EventTable, ...] = EVENT_TABLES, batch_bytes: int = BATCH_BYTES) -> None:
        self.counts = EventCounts()
        self._batch_bytes = batch_bytes
        self._one_by_one = RowDecoder(tables, self.counts)
        self._repeated = RepeatedEvents(tables)

    def decode(
        self, chunks: Iterable[bytes], ahead: Callable[[Batches], Batches] = lambda batches: batches
    ) -> Iterator[SpreadRows]:
        """Yield the rows of each batch of chunks, table by table; rows of a table come in the order of the stream.

        The first batch is a small one: the templates that it gives are made once there is a second one.

        Args:
            chunks: unpacked blocks.
            ahead: makes an iterator over batches of events that unpacks the next ones meanwhile.
        """
        last: tuple[Events, list[RowsOfEvents]] | None = None
        with closing(ahead(self._batches(chunks))) as batches:
            for events in batches:
                if last is not None:
                    self._repeated.learn(*last)
                self.counts.events += events.start.size
                templates = self._repeated.match(events)
                others = self._rows_without_template(events, np.flatnonzero(templates == 0))
                yield from self._repeated.rows(events, templates, others)
                last = events, others

    def _batches(self, chunks: Iterable[bytes]) -> Batches:
        waiting: list[bytes] = []
        spans: list[EventSpans] = []
        num_bytes, wanted_bytes = 0, self._batch_bytes // 2
        for chunk in chunks:
            found = event_spans(chunk)
            self.counts.broken_chunks += not found.is_whole
            self.counts.generic += len(found.generic)
            waiting.append(chunk)
            spans.append(found)
            num_bytes += len(chunk)
            if num_bytes >= wanted_bytes:
                yield _side_by_side(waiting, spans)
                waiting, spans, num_bytes, wanted_bytes = [], [], 0, self._batch_bytes
        if waiting:
            yield _side_by_side(waiting, spans)

    def _rows_without_template(self, events: Events, chosen: Ints) -> list[RowsOfEvents]:
        if not chosen.size:
            return []
        decoded = self._one_by_one.decode(events.copies(chosen))
        return [replace(part, events=chosen[part.events]) for part in decoded]


def _side_by_side(chunks: list[bytes], spans: list[EventSpans]) -> Events:
    bases = np.cumsum([0, *(len(chunk) for chunk in chunks[:-1])])
    start = np.concatenate([span.start + base for span, base in zip(spans, bases, strict=True)])
    end = np.concatenate([span.end + base for span, base in zip(spans, bases, strict=True)])
    return Events(padded(chunks, BYTES_BEHIND), start, end)
