"""Rows of events that repeat known ones: the few known rows, which of them each event has, and its own numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from doctor.formats.nsys_report.event_kinds import EventTable
from doctor.formats.nsys_report.known_values import KnownValues, Numbers
from doctor.formats.nsys_report.levels import Bytes, Ints, numbers_at


@dataclass(frozen=True)
class KnownRows:
    """A few rows of a table, all columns; the same object as long as they stay the same."""

    batch: pa.RecordBatch

    @cached_property
    def columns(self) -> tuple[KnownValues, ...]:
        """The columns, ready to make long ones from them."""
        return tuple(map(KnownValues, self.batch.columns))

    def with_rows(self, batches: list[pa.RecordBatch]) -> KnownRows:
        """These rows and more behind them."""
        return KnownRows(pa.concat_batches([self.batch, *batches]))


@dataclass(frozen=True)
class Place:
    """Where a number of each event lies.

    Attributes:
        first: its first byte in the event; below 0 where the event has none and the known row counts.
        extra: bytes after that.

    Both are without dimensions where they are the same in each event.
    """

    first: Ints
    extra: Ints


@dataclass(frozen=True)
class SpreadRows:
    """Rows of events, one an event.

    Attributes:
        table: the table.
        known: rows that repeat.
        row: which of them each event has.
        buffer: bytes of the events.
        start: first byte of each event.
        places: of the numbers that are each event's own, by column; columns that are not here are those of the rows.
    """

    table: EventTable
    known: KnownRows
    row: Ints
    buffer: Bytes
    start: Ints
    places: Mapping[str, Place]

    def numbers(self, column: str) -> Numbers | None:
        """The events' own numbers in a column; None where the known rows have it for all."""
        place = self.places.get(column)
        if place is None:
            return None
        is_read = np.broadcast_to(place.first >= 0, self.row.shape)
        if is_read.all():
            return Numbers(numbers_at(self.buffer, self.start + place.first, place.extra), None)
        if not is_read.any():
            return None
        first, extra = (np.broadcast_to(one, self.row.shape)[is_read] for one in (place.first, place.extra))
        return Numbers(numbers_at(self.buffer, self.start[is_read] + first, extra), is_read)

    def used(self) -> pa.RecordBatch:
        """The known rows that events have, each once."""
        return self.known.batch.take(pa.array(np.flatnonzero(np.bincount(self.row))))

    def whole(self) -> pa.RecordBatch:
        """Every column of every row."""
        names = [column.name for column in self.table.columns]
        pairs = zip(names, self.known.columns, strict=True)
        return pa.record_batch([column.array(self.row, self.numbers(name)) for name, column in pairs], names=names)
