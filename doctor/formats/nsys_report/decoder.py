"""The event stream to tables: Arrow batches under NVIDIA's table and column names, chunk by chunk.

Three ways were measured side by side (`python -m tests.benchmarks.decode_native_report`, one busy core): a message at a
time in Python 24,000 events a second, the C-backed `protobuf` library 134,000 (reading fields back out of its objects
is what costs), numpy over whole blocks 615,000 and more. So numpy it is, without a dependency.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from doctor.formats.nsys_report.columns import PayloadColumns
from doctor.formats.nsys_report.event_kinds import EVENT_CLASS, EVENT_TABLES, EventTable
from doctor.formats.nsys_report.events import EventBatch, EventSpans, event_batch, event_spans
from doctor.formats.nsys_report.levels import Ints

BATCH_BYTES = 4 << 20
"""Decompressed bytes decoded at once: enough to make numpy's cost per call small, small enough to stay in cache."""


@dataclass(frozen=True)
class TableRows:
    """Decoded rows of one of NVIDIA's tables."""

    table: str
    rows: pa.RecordBatch


@dataclass
class EventCounts:
    """What the stream held.

    Attributes:
        events: events of the stream without the generic ones.
        generic: generic events (GPU metrics and the like), which are not decoded.
        unreadable: events whose bytes are not what their type says.
        unknown: events of types or classes that no table takes, by type id (and class for calls).
        broken_chunks: chunks whose walk ended early.
    """

    events: int = 0
    generic: int = 0
    unreadable: int = 0
    unknown: Counter[tuple[int, int | None]] = field(default_factory=Counter)
    broken_chunks: int = 0


class EventDecoder:
    """Decodes chunks in the order they come; `counts` is complete when `decode` is exhausted."""

    def __init__(self, tables: tuple[EventTable, ...] = EVENT_TABLES) -> None:
        self.counts = EventCounts()
        self._tables_of_type: dict[int, list[EventTable]] = {}
        for table in tables:
            for type_id in table.types:
                self._tables_of_type.setdefault(type_id, []).append(table)

    def decode(self, chunks: Iterable[bytes]) -> Iterator[TableRows]:
        """Yield the rows of each batch of chunks, table by table."""
        waiting: list[bytes] = []
        spans: list[EventSpans] = []
        num_bytes = 0
        for chunk in chunks:
            found = event_spans(chunk)
            self.counts.broken_chunks += not found.is_whole
            self.counts.generic += len(found.generic)
            waiting.append(chunk)
            spans.append(found)
            num_bytes += len(chunk)
            if num_bytes >= BATCH_BYTES:
                yield from self._decode_batch(event_batch(waiting, spans))
                waiting, spans, num_bytes = [], [], 0
        if waiting:
            yield from self._decode_batch(event_batch(waiting, spans))

    def _decode_batch(self, batch: EventBatch) -> Iterator[TableRows]:
        self.counts.events += batch.type_id.size
        self.counts.unreadable += int((batch.type_id == 0).sum())
        for type_id in np.unique(batch.type_id[batch.type_id != 0]):
            rows = np.flatnonzero(batch.type_id == type_id)
            tables = self._tables_of_type.get(int(type_id))
            if tables is None:
                self.counts.unknown[int(type_id), None] += rows.size
                continue
            yield from self._decode_type(batch, int(type_id), rows, tables)

    def _decode_type(
        self, batch: EventBatch, type_id: int, rows: Ints, tables: list[EventTable]
    ) -> Iterator[TableRows]:
        is_payload = batch.payload[rows] == tables[0].payload
        self.counts.unreadable += int((~is_payload).sum())
        rows = rows[is_payload]
        columns = [column for table in tables for column in table.columns]
        decoded = PayloadColumns(batch.payloads(rows), columns)
        self.counts.unreadable += int(decoded.is_bad.sum())
        taken = decoded.is_bad.copy()
        for table in tables:
            chosen = ~decoded.is_bad
            if table.needs is not None:
                chosen &= decoded.has_message(table.needs)
            if table.classes is not None:
                event_class = decoded.integers(EVENT_CLASS)
                chosen &= np.isin(event_class.value, list(table.classes)) & event_class.is_there
            taken |= chosen
            if chosen.any():
                index = np.flatnonzero(chosen)
                arrays = [decoded.array(column, index) for column in table.columns]
                yield TableRows(table.name, pa.record_batch(arrays, names=[column.name for column in table.columns]))
        self._count_left_over(type_id, decoded, np.flatnonzero(~taken))

    def _count_left_over(self, type_id: int, decoded: PayloadColumns, rows: Ints) -> None:
        if not rows.size:
            return
        if not decoded.has_column(EVENT_CLASS):
            self.counts.unknown[type_id, None] += rows.size
            return
        classes, counts = np.unique(decoded.integers(EVENT_CLASS).value[rows], return_counts=True)
        for event_class, count in zip(classes, counts, strict=True):
            self.counts.unknown[type_id, int(event_class)] += int(count)
