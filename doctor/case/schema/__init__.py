"""The tables of a case file, declared once, a module per domain.

Conventions: singular table names; every quantity ends in its unit (`_ns`, `_bytes`, `_bytes_per_s`, `_hz`,
`_count`); times are int64
nanoseconds on the clock of their source (`source.clock_offset_ns` moves them onto the case's clock); unknown is
NULL; every row has
`source_id`. Bulk tables declare no key: a key costs four times the load time, and uniqueness is a query in the tests.

Text columns named `<what>_id` whose `info` says `interned` hold ids of the table `text`. A reader gives such a
column as plain or
dictionary-encoded strings under the name `<what>`; `doctor.case.load` interns them.
"""

from __future__ import annotations

from doctor.case.schema import cluster, device_state, engine_log, host, memory, origin, sums, timeline
from doctor.case.schema.columns import Columns, metadata
from doctor.case.schema.origin import SCHEMA_VERSION

__all__ = [
    "BULK_TABLES",
    "QUERY_ONLY",
    "SCHEMA_VERSION",
    "Columns",
    "cluster",
    "device_state",
    "engine_log",
    "host",
    "memory",
    "metadata",
    "origin",
    "sums",
    "timeline",
]

_ORIGIN = {"schema_version", "text", "source", "unread_file", "other_run"}

BULK_TABLES = tuple(table for table in metadata.sorted_tables if table.name not in _ORIGIN)

QUERY_ONLY: Columns = {
    table.name: frozenset(column.name for column in table.columns if column.info.get("query_only"))
    for table in metadata.sorted_tables
}
"""What no view, rule or screen reads: a case that only rules read does without."""
