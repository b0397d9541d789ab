"""Events of a native report as rows of a case: what repeats itself is put into the words of a case once.

Of millions of events a few hundred differ in more than times and ids. Their rows are converted, and every event takes
its own from there; numbers that are an event's own are put in where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from doctor.formats.nsys_report.known_values import KnownValues
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
    """One of NVIDIA's tables, as rows of a case."""

    def __init__(self, kind: str, convert: Convert) -> None:
        self.kind = kind
        self._convert = convert
        self._known: KnownRows | None = None
        self._columns: dict[str, KnownValues] = {}

    def convert_anew(self) -> None:
        """Forget what was converted: what it depends on is another by now."""
        self._known = None

    def rows(self, part: SpreadRows) -> pa.RecordBatch:
        """The rows of a batch of events, in their order."""
        own = OWN_NUMBERS.get(part.table.name)
        if own is None:
            return self._convert(part.whole())
        if part.known is not self._known:
            self._columns = _columns(self._convert(part.known.batch))
            self._known = part.known
        found: dict[str, pa.Array] = {}
        for name, column in self._columns.items():
            found[name] = column.array(part.row, part.numbers(own[name]) if name in own else None)
        if "graph_node_id" in found:
            found["graph_node_id"] = _nodes(found["graph_node_id"])
        return pa.RecordBatch.from_pydict(found)


def _columns(rows: pa.RecordBatch) -> dict[str, KnownValues]:
    return {name: KnownValues(column) for name, column in zip(rows.schema.names, rows.columns, strict=True)}


def _nodes(values: pa.Array) -> pa.Array:
    """Nodes of graphs: 0 is none."""
    if values.null_count == len(values) or pc.min(values).as_py() > 0:
        return values
    return pc.if_else(pc.equal(values, _ZERO), _NO_NODE, values)
