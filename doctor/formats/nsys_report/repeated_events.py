"""Rows of events that fit a template, put together with the rows of those that do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from doctor.formats.nsys_report import wire
from doctor.formats.nsys_report.event_kinds import VARYING, EventTable
from doctor.formats.nsys_report.levels import Ints
from doctor.formats.nsys_report.shapes import Path
from doctor.formats.nsys_report.spread_rows import KnownRows, Place, SpreadRows
from doctor.formats.nsys_report.table_rows import RowsOfEvents
from doctor.formats.nsys_report.templates import Events, Templates, Words, fixed_bits
from doctor.formats.nsys_report.wire import Span

Places = list[tuple[int, int] | None]
"""First byte in the event and bytes of each number of a table that varies; None where an event lacks it."""

_ABSENT = -1


class RepeatedEvents:
    """All templates of a report, learnt while it is read."""

    def __init__(self, tables: tuple[EventTable, ...]) -> None:
        self._rows = [_TemplateRows(table) for table in tables]
        self._index = {table.name: index for index, table in enumerate(tables)}
        self._templates: dict[int, Templates] = {}
        self._table_of: Ints = np.full(1, len(tables), dtype=np.int64)
        self._row_of: Ints = np.zeros(1, dtype=np.int64)

    def match(self, events: Events) -> Ints:
        """The number of the template that each event fits, 0 where it fits none."""
        found = np.zeros(events.start.size, dtype=np.int64)
        for num_words, chosen in events.by_words():
            templates = self._templates.get(num_words)
            if templates is not None:
                found[chosen] = templates.match(events.rows(num_words, chosen))
        return found

    def rows(self, events: Events, templates: Ints, others: list[RowsOfEvents]) -> Iterator[SpreadRows]:
        """Yield the rows of each table, in the order of the events.

        Args:
            events: all events.
            templates: what `match` says.
            others: rows of events without a template.
        """
        table = self._table_of.take(templates).astype(np.uint8)
        row = self._row_of.take(templates)
        order = np.argsort(table, kind="stable")
        ends = np.cumsum(np.bincount(table, minlength=len(self._rows)))
        for index, of_table in enumerate(self._rows):
            chosen = order[ends[index - 1] if index else 0 : ends[index]]
            parts = [part for part in others if part.table is of_table.table]
            if not parts:
                if chosen.size:
                    yield of_table.rows(events, chosen, row[chosen], [])
                continue
            every = np.full(events.start.size, -1, dtype=np.int64)
            every[chosen] = row[chosen]
            count = of_table.num_rows
            for part in parts:
                every[part.events] = np.arange(count, count + part.events.size)
                count += part.events.size
            chosen = np.flatnonzero(every >= 0)
            yield of_table.rows(events, chosen, every[chosen], [part.rows for part in parts])

    def learn(self, events: Events, others: list[RowsOfEvents]) -> None:
        """Make templates of events that have none and came often.

        Args:
            events: all events.
            others: rows of events without a template.
        """
        if not others:
            return
        owners = _Owners(events.start.size, others)
        for num_words, chosen in events.by_words(np.flatnonzero(owners.part >= 0)):
            rows = events.rows(num_words, chosen)
            templates = self._templates.setdefault(num_words, Templates(num_words))
            layouts = rows.only(templates.frequent_layouts(rows))
            templates.add_layouts(layouts, [example.mask for example in self._examples(events, owners, layouts.events)])
            contents = rows.only(templates.frequent_contents(rows))
            examples = self._examples(events, owners, contents.events)
            added = templates.add(contents, [example.mask for example in examples], self._table_of.size)
            self._add([examples[index] for index in added])

    def _examples(self, events: Events, owners: _Owners, chosen: Ints) -> list[_Example]:
        found = []
        for event, raw in zip(chosen.tolist(), events.copies(chosen), strict=True):
            part = owners.parts[owners.part[event]]
            table = self._index[part.table.name]
            places = self._rows[table].places(raw)
            mask = fixed_bits(len(raw), [place for place in places if place is not None])
            found.append(_Example(table, part.rows.slice(owners.row[event], 1), places, mask))
        return found

    def _add(self, examples: list[_Example]) -> None:
        tables = np.array([example.table for example in examples], dtype=np.int64)
        rows = np.zeros_like(tables)
        for table in np.unique(tables).tolist():
            of_table = self._rows[table]
            rows[tables == table] = of_table.num_rows + np.arange((tables == table).sum())
            of_table.add([example for example in examples if example.table == table])
        self._table_of = np.append(self._table_of, tables)
        self._row_of = np.append(self._row_of, rows)


@dataclass(frozen=True)
class _Example:
    """An event that may become a template.

    Attributes:
        table: index of the table that it fills.
        row: its row.
        places: where its varying numbers are.
        mask: the other bits.
    """

    table: int
    row: pa.RecordBatch
    places: Places
    mask: Words


class _Owners:
    """Which of some parts, and which of its rows, each event gave; part -1 where it gave none or several."""

    def __init__(self, num_events: int, parts: list[RowsOfEvents]) -> None:
        self.parts = parts
        self.part = np.full(num_events, -1, dtype=np.int64)
        self.row = np.zeros(num_events, dtype=np.int64)
        times = np.zeros(num_events, dtype=np.int64)
        for index, part in enumerate(parts):
            self.part[part.events] = index
            self.row[part.events] = np.arange(part.events.size)
            times[part.events] += 1
        self.part[times > 1] = -1


class _TemplateRows:
    """Rows of the events that became templates, for one table."""

    def __init__(self, table: EventTable) -> None:
        self.table = table
        self.num_rows = 0
        self._varying = [index for index, column in enumerate(table.columns) if column.name in VARYING]
        self._paths = [*(table.columns[index].path for index in self._varying), *table.also_varying]
        self._known: KnownRows | None = None
        self._first: Ints = np.zeros((len(self._varying), 0), dtype=np.int64)
        self._extra: Ints = self._first.copy()

    def places(self, event: bytes) -> Places:
        """Where the varying numbers of an event are; those of columns come first."""
        payload = list(wire.read_spans(event))[-1]
        found = _places(event, payload, frozenset(self._paths), frozenset(path[:-1] for path in self._paths))
        return [found.get(path) for path in self._paths]

    def add(self, examples: list[_Example]) -> None:
        """Take the rows of events that became templates."""
        self._known = self._with([example.row for example in examples])
        count = len(self._varying)
        places = [[place or (_ABSENT, 1) for place in example.places[:count]] for example in examples]
        first, size = np.array(places, dtype=np.int64).reshape(len(examples), -1, 2).T
        self._first = np.hstack([self._first, first])
        self._extra = np.hstack([self._extra, size - 1])
        self.num_rows += len(examples)

    def rows(self, events: Events, chosen: Ints, row: Ints, others: list[pa.RecordBatch]) -> SpreadRows:
        """Rows of some events.

        Args:
            events: all events.
            chosen: which of them.
            row: of each of the chosen the row of its template, or (counting on from those) its row in `others`.
            others: rows of events that fit no template.
        """
        known = self._with(others) if others or self._known is None else self._known
        template = np.minimum(row, self.num_rows) if others else row
        places: dict[str, Place] = {}
        for place, index in enumerate(self._varying):
            first, extra = self._first[place], self._extra[place]
            if others:
                first, extra = np.append(first, _ABSENT), np.append(extra, 0)
            places[self.table.columns[index].name] = Place(_taken(first, template), _taken(extra, template))
        return SpreadRows(self.table, known, row, events.buffer, events.start[chosen], places)

    def _with(self, batches: list[pa.RecordBatch]) -> KnownRows:
        return KnownRows(pa.concat_batches(batches)) if self._known is None else self._known.with_rows(batches)


def _taken(values: Ints, row: Ints) -> Ints:
    """The values of some rows; one without dimensions where it is the same in each."""
    return values[0] if (values == values[0]).all() else values.take(row)


def _places(
    event: bytes, inside: Span, paths: frozenset[Path], messages: frozenset[Path], prefix: Path = ()
) -> dict[Path, tuple[int, int]]:
    """First byte and size of some numbers of a message; of several fields of one number the last counts."""
    found: dict[Path, tuple[int, int]] = {}
    for span in {span.number: span for span in wire.read_spans(event, inside.start, inside.end)}.values():
        path = (*prefix, span.number)
        if path in paths and span.wire_type == wire.VARINT:
            found[path] = (span.start, span.end - span.start)
        elif path in messages and span.wire_type == wire.BYTES:
            found |= _places(event, span, paths, messages, path)
    return found
