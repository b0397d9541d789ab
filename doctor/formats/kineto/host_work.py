"""API calls, operators, annotations, allocator events and the profiler's own time, in the words of the case file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from doctor.formats.kineto.columns import not_negative, texts, trailing_number, whole_numbers
from doctor.formats.kineto.events import TraceEvent
from doctor.formats.kineto.times import end_column, nanosecond_column
from doctor.formats.private_columns import column_without_folders

_HOST_MEMORY = 0


def _on_thread(events: Sequence[TraceEvent]) -> dict[str, pa.Array]:
    starts = nanosecond_column([bytes(event.ts) for event in events])
    return {
        "pid": not_negative([event.pid for event in events]),  # the profiler's own events claim process -1
        "tid": _threads([event.tid for event in events]),
        "start_ns": starts,
        "end_ns": end_column(starts, nanosecond_column([bytes(event.dur) for event in events])),
    }


def _threads(tids: Sequence[Any]) -> pa.Array:
    """Thread ids, which some recorders write as texts that end in them."""
    try:
        return pa.array(tids, pa.int64())
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return whole_numbers([tid if type(tid) is int else trailing_number(tid) for tid in tids])


def api_calls(events: Sequence[TraceEvent], api: str) -> pa.RecordBatch:
    """Rows of `api_call`; `api` is `runtime` or `driver`."""
    return pa.RecordBatch.from_pydict(
        {
            **_on_thread(events),
            "name": texts([event.name for event in events]),
            "api": pa.repeat(api, len(events)),
            "correlation_id": whole_numbers([event.args.correlation for event in events]),
        }
    )


def operators(events: Sequence[TraceEvent], op_kind: str) -> pa.RecordBatch:
    """Rows of `host_op`; `op_kind` is `cpu_op` or `python_function`.

    Names of Python functions hold the path of their file, which may name people: absolute ones are cut.
    """
    names = texts([event.name for event in events])
    if op_kind == "python_function":
        names = column_without_folders(names)
    return pa.RecordBatch.from_pydict(
        {
            **_on_thread(events),
            "name": names,
            "op_kind": pa.repeat(op_kind, len(events)),
            "sequence_id": whole_numbers(
                [
                    event.args.old_external_id if event.args.external_id is None else event.args.external_id
                    for event in events
                ]
            ),
        }
    )


def user_annotations(events: Sequence[TraceEvent]) -> pa.RecordBatch:
    """Rows of `nvtx_range`: what the program marked with `record_function`, and the profiler's steps."""
    return pa.RecordBatch.from_pydict(
        {
            **_on_thread(events),
            "name": column_without_folders(texts([event.name for event in events])),
            "range_kind": pa.repeat("push_pop", len(events)),
        }
    )


def overheads(events: Sequence[TraceEvent]) -> pa.RecordBatch:
    """Rows of `profiler_overhead`."""
    return pa.RecordBatch.from_pydict({**_on_thread(events), "name": texts([event.name for event in events])})


def allocator_events(events: Sequence[TraceEvent]) -> pa.RecordBatch:
    """Rows of `allocator_event`; traces of 2021 know the bytes only."""
    args = [event.args for event in events]
    return pa.RecordBatch.from_pydict(
        {
            "pid": whole_numbers([event.pid for event in events]),
            "device_id": whole_numbers([None if arg.device_type == _HOST_MEMORY else arg.device_id for arg in args]),
            "time_ns": nanosecond_column([bytes(event.ts) for event in events]),
            "size_bytes": whole_numbers([arg.allocator_bytes for arg in args]),
            "allocated_bytes": whole_numbers([arg.allocated for arg in args]),
            "reserved_bytes": whole_numbers([arg.reserved for arg in args]),
        }
    )
