"""Events of a native report as rows of a case: what repeats itself is put into the words of a case once.

Of millions of events a few hundred differ in more than times and ids. Their rows are converted, and every event takes
its own from there; numbers that are an event's own are put in where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from doctor.case.load import GROUP_ROWS
from doctor.case.schema import Columns
from doctor.formats.nsys_report.known_values import KnownValues, Numbers, together
from doctor.formats.nsys_report.levels import Ints
from doctor.formats.nsys_report.spread_rows import KnownRows, SpreadRows

Convert = Callable[[pa.RecordBatch], pa.RecordBatch]

_TIMES = {"start_ns": "start", "end_ns": "end"}
_ON_STREAM = {**_TIMES, "correlation_id": "correlationId", "graph_node_id": "graphNodeId"}
OWN_NUMBERS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "CUPTI_ACTIVITY_KIND_KERNEL": _ON_STREAM,
        "CUPTI_ACTIVITY_KIND_MEMCPY": {**_ON_STREAM, "size_bytes": "bytes"},
        "CUPTI_ACTIVITY_KIND_MEMSET": {**_ON_STREAM, "size_bytes": "bytes"},
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": _ON_STREAM,
        "CUPTI_ACTIVITY_KIND_RUNTIME": {**_TIMES, "correlation_id": "correlationId", "return_value": "returnValue"},
        "OSRT_API": {**_TIMES, "return_value": "returnValue"},
        "NVTX_EVENTS": _TIMES,
        "PROFILER_OVERHEAD": _TIMES,
        "CUPTI_ACTIVITY_KIND_OVERHEAD": _TIMES,
    }
)
"""Columns of a case that are an event's own numbers, and what they are called there. Tables that are not here have
columns that follow from such a number in another way, and few rows."""
_ZERO, _NO_NODE = pa.scalar(0, pa.int64()), pa.scalar(None, pa.int64())


class TableOfEvents:
    """One of NVIDIA's tables, as rows of a case.

    Rows of a few thousand events are put together for as many as DuckDB compresses at a time: half of what they cost
    is a cost per batch. Columns that nobody wants are not put together at all.
    """

    def __init__(self, kind: str, convert: Convert, left_out: Columns | None = None) -> None:
        self.kind = kind
        self._convert = convert
        self._left_out = (left_out or {}).get(kind, frozenset[str]())
        self._known: KnownRows | None = None
        self._columns: dict[str, KnownValues] = {}
        self._own: Mapping[str, str] = {}
        self._waiting: list[_Events] = []

    def convert_anew(self) -> None:
        """Forget what was converted: what it depends on is another by now. No rows may be waiting."""
        self._known = None

    def rows(self, part: SpreadRows) -> Iterator[pa.RecordBatch]:
        """Rows of events so far, in their order, as soon as there are enough; `rest` gives the last."""
        own = OWN_NUMBERS.get(part.table.name)
        if own is None:
            yield self._convert(part.whole())
            return
        if part.known is not self._known:
            yield from self.rest()
            columns = _columns(self._convert(part.known.batch))
            self._columns = {name: column for name, column in columns.items() if name not in self._left_out}
            self._own = {name: own[name] for name in self._columns if name in own}
            self._known = part.known
        self._waiting.append(_Events(part.row, {name: part.numbers(of) for name, of in self._own.items()}))
        if sum(events.row.size for events in self._waiting) >= GROUP_ROWS:
            waiting = _joined(self._waiting)
            while waiting.row.size >= GROUP_ROWS:
                group, waiting = waiting.cut(GROUP_ROWS)
                yield from self._batches(group)
            self._waiting = [waiting]

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The rows of the events that are waiting for others."""
        if self._waiting:
            waiting, self._waiting = _joined(self._waiting), []
            yield from self._batches(waiting)

    def _batches(self, events: _Events) -> Iterator[pa.RecordBatch]:
        if not events.row.size:
            return
        found = {name: column.array(events.row, events.own.get(name)) for name, column in self._columns.items()}
        if "graph_node_id" in found:
            found["graph_node_id"] = _nodes(found["graph_node_id"])
        yield pa.RecordBatch.from_pydict(found)


@dataclass(frozen=True)
class _Events:
    """Some events: the known row of each, and of some columns the numbers that are their own (None: none has one)."""

    row: Ints
    own: Mapping[str, Numbers | None]

    def cut(self, count: int) -> tuple[_Events, _Events]:
        """The first so many, and the others."""
        first, others = slice(0, count), slice(count, None)
        return self._some(first), self._some(others)

    def _some(self, events: slice) -> _Events:
        own = {name: None if numbers is None else numbers.of(events) for name, numbers in self.own.items()}
        return _Events(self.row[events], own)


def _joined(parts: Sequence[_Events]) -> _Events:
    if len(parts) == 1:
        return parts[0]
    sizes = [part.row.size for part in parts]
    own = {name: together([part.own[name] for part in parts], sizes) for name in parts[0].own}
    return _Events(np.concatenate([part.row for part in parts]), own)


def _columns(rows: pa.RecordBatch) -> dict[str, KnownValues]:
    return {name: KnownValues(column) for name, column in zip(rows.schema.names, rows.columns, strict=True)}


def _nodes(values: pa.Array) -> pa.Array:
    """Nodes of graphs: 0 is none."""
    if values.null_count == len(values) or pc.min(values).as_py() > 0:
        return values
    return pc.if_else(pc.equal(values, _ZERO), _NO_NODE, values)
