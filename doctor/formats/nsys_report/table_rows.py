"""Events to rows of tables, whatever they look like: each is read field by field, many at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from doctor.formats.nsys_report.columns import PayloadColumns
from doctor.formats.nsys_report.event_batch import EventBatch, event_batch
from doctor.formats.nsys_report.event_kinds import EVENT_CLASS, EventTable
from doctor.formats.nsys_report.levels import Ints


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


@dataclass(frozen=True)
class RowsOfEvents:
    """Rows of a table, and the index of the event that each comes from, ascending."""

    table: EventTable
    events: Ints
    rows: pa.RecordBatch


class RowDecoder:
    """Decodes events into rows of some tables and counts those that give none."""

    def __init__(self, tables: tuple[EventTable, ...], counts: EventCounts) -> None:
        self._counts = counts
        self._tables_of_type: dict[int, list[EventTable]] = {}
        for table in tables:
            for type_id in table.types:
                self._tables_of_type.setdefault(type_id, []).append(table)

    def decode(self, events: list[bytes]) -> Iterator[RowsOfEvents]:
        """Yield the rows of events, type by type and table by table."""
        batch = event_batch(events)
        self._counts.unreadable += int((batch.type_id == 0).sum())
        for type_id in np.unique(batch.type_id[batch.type_id != 0]):
            rows = np.flatnonzero(batch.type_id == type_id)
            tables = self._tables_of_type.get(int(type_id))
            if tables is None:
                self._counts.unknown[int(type_id), None] += rows.size
                continue
            yield from self._decode_type(batch, int(type_id), rows, tables)

    def _decode_type(
        self, batch: EventBatch, type_id: int, rows: Ints, tables: list[EventTable]
    ) -> Iterator[RowsOfEvents]:
        is_payload = batch.payload[rows] == tables[0].payload
        self._counts.unreadable += int((~is_payload).sum())
        rows = rows[is_payload]
        columns = [column for table in tables for column in table.columns]
        decoded = PayloadColumns(batch.payloads(rows), columns)
        self._counts.unreadable += int(decoded.is_bad.sum())
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
                names = [column.name for column in table.columns]
                yield RowsOfEvents(table, rows[index], pa.record_batch(arrays, names=names))
        self._count_left_over(type_id, decoded, np.flatnonzero(~taken))

    def _count_left_over(self, type_id: int, decoded: PayloadColumns, rows: Ints) -> None:
        if not rows.size:
            return
        if not decoded.has_column(EVENT_CLASS):
            self._counts.unknown[type_id, None] += rows.size
            return
        classes, counts = np.unique(decoded.integers(EVENT_CLASS).value[rows], return_counts=True)
        for event_class, count in zip(classes, counts, strict=True):
            self._counts.unknown[type_id, int(event_class)] += int(count)
