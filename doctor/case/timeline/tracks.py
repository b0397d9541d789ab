"""Figures over time beside the lanes: memory of the framework's allocator and of the driver, samples of the device."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from doctor.case.timeline.bound_values import bound
from doctor.case.timeline.view import View


@dataclass(frozen=True)
class Track:
    """One figure over time.

    Attributes:
        track_id: its place.
        label: what it is.
        unit: `bytes`, `share`, `W`, `Hz` or `C`.
        top: the largest value of the whole recording.
    """

    track_id: int
    label: str
    unit: str
    top: float


def prepare_tracks(connection: duckdb.DuckDBPyConnection) -> None:
    """Create `timeline.track` and `timeline.track_sample` from whatever samples the case holds."""
    connection.execute(_SAMPLE)
    connection.execute(_TRACK)


def tracks(connection: duckdb.DuckDBPyConnection) -> tuple[Track, ...]:
    """Every figure over time that the case holds."""
    return tuple(Track(*row) for row in connection.execute(_TRACKS).fetchall())


def track_cells(connection: duckdb.DuckDBPyConnection, view: View) -> dict[int, tuple[float | None, ...]]:
    """For each track the largest value in each cell of the view; the last known one where a cell holds no sample."""
    values = bound(view)
    rows: dict[int, list[float | None]] = {}
    for track_id, cell, value in connection.execute(_CELLS, values).fetchall():
        line = rows.setdefault(track_id, [None] * (view.cells + 1))
        line[cell + 1] = value
    return {track_id: _filled(line) for track_id, line in rows.items()}


def _filled(line: list[float | None]) -> tuple[float | None, ...]:
    """The first entry is the value before the view; a sample stands until the next."""
    last = None
    filled: list[float | None] = []
    for value in line:
        last = value if value is not None else last
        filled.append(last)
    return tuple(filled[1:])


_SAMPLE = """
CREATE TABLE timeline.track_sample AS
WITH change AS (
    -- a recorder writes all that it finds held already at one time
    SELECT source_id, device_id, time_ns,
        sum(CASE operation WHEN 'allocate' THEN size_bytes ELSE -size_bytes END) AS size_bytes
    FROM gpu_memory_event WHERE coalesce(memory_kind, 'device') = 'device' GROUP BY ALL
),
driver AS (
    SELECT source_id, device_id, time_ns,
        sum(size_bytes) OVER (PARTITION BY source_id, device_id ORDER BY time_ns ROWS UNBOUNDED PRECEDING) AS value
    FROM change
),
sample AS (
    SELECT source_id, device_id, time_ns, 'allocated' AS figure, 'bytes' AS unit, allocated_bytes::DOUBLE AS value
    FROM allocator_event WHERE device_id IS NOT NULL
    UNION ALL
    SELECT source_id, device_id, time_ns, 'reserved', 'bytes', reserved_bytes
    FROM allocator_event WHERE device_id IS NOT NULL
    UNION ALL
    SELECT source_id, device_id, time_ns, 'driver mem', 'bytes', greatest(value, 0) FROM driver
    UNION ALL
    SELECT source_id, device_id, time_ns, 'busy', 'share', busy_share FROM gpu_sample
    UNION ALL
    SELECT source_id, device_id, time_ns, 'memory', 'bytes', memory_used_bytes FROM gpu_sample
    UNION ALL
    SELECT source_id, device_id, time_ns, 'power', 'W', power_watts FROM gpu_sample
    UNION ALL
    SELECT source_id, device_id, time_ns, 'SM clock', 'MHz', sm_clock_hz / 1e6 FROM gpu_sample
),
principal AS (
    SELECT count(*) AS source_count, min(clock_offset_ns) AS clock_offset_ns
    FROM timeline_source JOIN source USING (source_id)
),
shifted AS (
    -- samples of another recorder are placed by the clocks of both; without a recording they are the time-line
    SELECT source_id, CASE WHEN timeline_source.source_id IS NOT NULL THEN shift_ns WHEN source_count = 0 THEN 0
        ELSE source.clock_offset_ns - principal.clock_offset_ns END AS shift_ns
    FROM source LEFT JOIN timeline_source USING (source_id), principal
)
SELECT dense_rank() OVER (ORDER BY source_id, device_id, figure) - 1 AS track_id, source_id, device_id, figure, unit,
    time_ns + shift_ns AS at_ns, value
FROM sample JOIN shifted USING (source_id)
WHERE value IS NOT NULL AND time_ns + shift_ns IS NOT NULL
ORDER BY at_ns
"""

_TRACK = """
CREATE TABLE timeline.track AS
SELECT track_id,
    any_value(figure || CASE WHEN coalesce(device_id, 0) > 0 THEN ' ' || device_id ELSE '' END) AS label,
    any_value(unit) AS unit, max(value) AS top
FROM timeline.track_sample GROUP BY track_id HAVING max(value) > 0 ORDER BY track_id
"""

_TRACKS = "SELECT track_id, label, unit, top FROM timeline.track ORDER BY track_id"

_CELLS = """
SELECT track_id, ((at_ns - $start) * $cells // $length)::INTEGER AS cell, max(value)
FROM timeline.track_sample JOIN timeline.track USING (track_id)
WHERE at_ns >= $start AND at_ns < $start + $length
GROUP BY track_id, cell
UNION ALL
SELECT track_id, -1, arg_max(value, at_ns)
FROM timeline.track_sample JOIN timeline.track USING (track_id) WHERE at_ns < $start GROUP BY track_id
"""
