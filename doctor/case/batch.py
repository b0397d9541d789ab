"""What a reader gives to the loader."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class TableBatch:
    """Rows of one table of the case file.

    Attributes:
        table: name of a table in `doctor.case.schema`.
        rows: a pyarrow RecordBatch or Table; columns as in the schema, without `source_id`, interned columns as strings
            under their name without `_id`.
        kind: evidence kind the rows belong to, where one file holds several; None where it holds one.
    """

    table: str
    rows: pa.RecordBatch | pa.Table
    kind: str | None = None


@dataclass(frozen=True)
class SourceFacts:
    """What a reader knows about the whole file once it has read it; given last, once for each kind of evidence.

    Attributes:
        kind: evidence kind of the contract (`nsys-report`, `nsys-sqlite`, `nsys-columnar`, `kineto`, ...).
        tool: recorder and version, such as `nsys 2025.3.1`; None where the file does not say.
        is_complete: False where anything was lost: a cut file, counts that disagree, unknown events.
        notes: one line each on what was not read or looks wrong. Never holds anything secret.
        capture_start_ns: start of the capture window on the file's own clock, None where unknown.
        capture_end_ns: its end.
        clock_offset_ns: added to the file's times it gives nanoseconds since the epoch; None where unknown.
        rank: rank of the recorded process in its job.
        world_size: number of ranks in the job.
        graph_trace_level: `graph` where one row stands for a whole CUDA graph launch, `node` where each kernel is
        recorded.
    """

    kind: str
    tool: str | None
    is_complete: bool
    notes: tuple[str, ...] = ()
    capture_start_ns: int | None = None
    capture_end_ns: int | None = None
    clock_offset_ns: int | None = None
    rank: int | None = None
    world_size: int | None = None
    graph_trace_level: str | None = None
