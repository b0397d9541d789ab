"""Sums of a profile: what `nsys stats` and nvprof print in place of a time-line."""

from __future__ import annotations

from sqlalchemy import Table

from doctor.case.schema.columns import interned, metadata, of_source, real, text_column, whole

profile_sum = Table(
    "profile_sum",
    metadata,
    of_source(),
    whole("table_id", "number of the table within its source, from 0"),
    text_column(
        "report",
        "kernel, api, copy: device time of copies by direction, size: their bytes, range: NVTX, os: calls of the OS, "
        "operator: of PyTorch, in a table that has no columns of the device",
    ),
    interned("name", "kernel, call, copy or range"),
    whole("call_count", "calls, kernels or copies"),
    whole("total_ns", "time of all of them; NULL for sizes"),
    real("time_share", "of the time of the whole table, as it says: rows may be missing from a paste"),
    real("mean_ns", "time of one"),
    whole("least_ns", "of the shortest"),
    whole("most_ns", "of the longest"),
    whole("size_bytes", "bytes of all of them, for sizes"),
    comment="Sums over a whole recording: neither order nor overlap nor idle time is in them",
)
