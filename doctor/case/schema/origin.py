"""What the case file is, which evidence it holds, and the texts that rows refer to."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Integer, Table, Text

from doctor.case.schema.columns import flag, metadata, of_source, small, text_column, whole

SCHEMA_VERSION = 6

schema_version = Table(
    "schema_version",
    metadata,
    Column("version", Integer, nullable=False, autoincrement=False, comment="layout of this case file"),
    Column("doctor_version", Text, nullable=False, comment="version of doctor that wrote it"),
    comment="One row: what wrote this file",
)

text = Table(
    "text",
    metadata,
    Column("text_id", Integer, nullable=False, autoincrement=False, comment="id used by every interned column"),
    Column("text", Text, nullable=False, comment="the text"),
    comment="Interned names: kernels, API calls, ranges, operators",
)

source = Table(
    "source",
    metadata,
    of_source(),
    text_column("path", "file as the user named it"),
    text_column("kind", "nsys-report, nsys-sqlite, nsys-columnar, kineto, ..."),
    text_column("tool", "recorder and its version"),
    Column("is_complete", Boolean, nullable=False, comment="false where part of the file could not be read"),
    text_column("notes", "JSON list of one-line notes on what was not read or looks wrong"),
    whole("capture_start_ns", "start of the capture window on the source's clock"),
    whole("capture_end_ns", "end of the capture window on the source's clock"),
    whole("clock_offset_ns", "add to the source's times to get the case's clock"),
    small("rank", "rank of the process in its job, where the evidence says so"),
    small("world_size", "number of ranks in the job, where the evidence says so"),
    text_column(
        "graph_trace_level",
        "graph: one row hides a whole CUDA graph launch; node: every kernel is recorded; NULL unknown",
    ),
    comment="Evidence files of this case",
)

unread_file = Table(
    "unread_file",
    metadata,
    of_source(),
    text_column("path", "file as the user named it"),
    text_column("kind", "kind of evidence; NULL where not even that could be told"),
    text_column("reason", "why nothing of it was read"),
    comment="Evidence that was named, of which nothing could be read: the case is incomplete without it",
)

other_run = Table(
    "other_run",
    metadata,
    of_source(),
    text_column("path", "file as the user named it"),
    text_column("kind", "kind of evidence"),
    text_column("tool", "recorder and its version"),
    flag("is_complete", "false where part of the file could not be read"),
    small("run_id", "number of the run, from 2; the case itself is run 1"),
    text_column("reason", "what differs, in a few words"),
    comment="Evidence that was read and is of another run: none of its rows are in the case",
)
