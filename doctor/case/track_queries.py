"""Bounded reads for a time-line that people zoom into: binned rows, and single pieces of work around a moment."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

MOST_STREAMS = 8
MOST_THREADS = 4
BINS = 1500
SPANS_BEFORE = 80
SPANS_AFTER = 240
MOST_SPANS = 600
MOST_STEPS = 2000


@dataclass(frozen=True)
class TrackRow:
    """A stream (`device_id`, `stream_id`) or a thread (`tid`) of a process, and its busy time in the window."""

    track_id: int
    source_id: int
    pid: int | None
    device_id: int | None
    stream_id: int | None
    tid: int | None
    thread_name: str | None
    busy_ns: int

    @property
    def is_stream(self) -> bool:
        """True for a stream of a device."""
        return self.tid is None


@dataclass(frozen=True)
class TrackCell:
    """Share of one bin that one kind of work took on one track; kinds are numbered 0 to 2."""

    track_id: int
    kind: int
    bin: int
    share: float


@dataclass(frozen=True)
class SpanRow:
    """One piece of work on a track."""

    track_id: int
    kind: int
    start_ns: int
    end_ns: int
    name: str


def prepare(connection: duckdb.DuckDBPyConnection) -> tuple[TrackRow, ...]:
    """Choose the rows to show, busiest first, and lay their work out for `cells` and `spans_around`."""
    connection.execute(_TRACKS, {"streams": MOST_STREAMS, "threads": MOST_THREADS})
    connection.execute(_WORK)
    return tuple(TrackRow(*row) for row in connection.execute(_TRACK_ROWS).fetchall())


def release(connection: duckdb.DuckDBPyConnection) -> None:
    """Drop what `prepare` laid out."""
    connection.execute("DROP TABLE IF EXISTS _shown_work; DROP TABLE IF EXISTS _shown_track")


def cells(connection: duckdb.DuckDBPyConnection) -> tuple[TrackCell, ...]:
    """The cells of all shown rows in which anything ran."""
    return tuple(TrackCell(*row) for row in connection.execute(_CELLS, {"bins": BINS}).fetchall())


def steps(connection: duckdb.DuckDBPyConnection) -> tuple[tuple[int, int], ...]:
    """Start and end of the steps of the process that takes most of them; none where they are too many to be drawn."""
    rows = connection.execute(_STEPS, {"most": MOST_STEPS + 1}).fetchall()
    return tuple(rows) if len(rows) <= MOST_STEPS else ()


def spans_around(connection: duckdb.DuckDBPyConnection, time_ns: int) -> tuple[int, int, tuple[SpanRow, ...]]:
    """The span of time that holds a few hundred pieces of work around a moment, and all work of the rows in it."""
    [(low, high)] = connection.execute(
        _EXTENT, {"time_ns": time_ns, "before": SPANS_BEFORE, "after": SPANS_AFTER}
    ).fetchall()
    if low is None or high is None or high <= low:
        return time_ns, time_ns, ()
    rows = connection.execute(_SPANS, {"low": low, "high": high, "most": MOST_SPANS}).fetchall()
    return low, high, tuple(SpanRow(*row) for row in rows)


# operations of a stream and calls of a launching thread; the threads and streams with most busy time are shown
_TRACKS = """
CREATE OR REPLACE TEMP TABLE _shown_track AS
WITH stream_track AS (
    SELECT source_id, pid, device_id, stream_id,
        sum(least(end_ns, until_ns) - greatest(start_ns, from_ns))::BIGINT AS busy_ns
    FROM device_op, steady_window WHERE end_ns > from_ns AND start_ns < until_ns
    GROUP BY source_id, pid, device_id, stream_id
    QUALIFY row_number() OVER (ORDER BY busy_ns DESC, source_id, device_id, stream_id, pid) <= $streams
),
thread_track AS (
    SELECT source_id, pid, tid, op_count FROM launching_thread
    QUALIFY row_number() OVER (ORDER BY op_count DESC, source_id, pid, tid) <= $threads
)
SELECT row_number() OVER (ORDER BY place, source_id, device_id, stream_id, pid, tid) - 1 AS track_id, *
FROM (
    SELECT 0 AS place, source_id, pid, device_id, stream_id, NULL::BIGINT AS tid FROM stream_track
    UNION ALL
    SELECT 1, source_id, pid, NULL, NULL, tid FROM thread_track
)
"""

_WORK = """
CREATE OR REPLACE TEMP TABLE _shown_work AS
SELECT track_id, CASE family WHEN 'collective' THEN 1 WHEN 'memcpy' THEN 2 WHEN 'memset' THEN 2 ELSE 0 END AS kind,
    start_ns, end_ns, name_id, concat_ws(' ', op.kind::TEXT, copy_kind::TEXT) AS word
FROM device_op AS op
JOIN _shown_track AS shown ON shown.source_id = op.source_id AND shown.device_id = op.device_id
    AND shown.stream_id = op.stream_id AND shown.pid IS NOT DISTINCT FROM op.pid, steady_window
WHERE end_ns > from_ns AND start_ns < until_ns
UNION ALL
SELECT track_id,
    CASE WHEN call_class IN ('launch', 'graph') THEN 0 WHEN call_class = 'sync' OR is_blocking_copy THEN 1 ELSE 2 END,
    start_ns, end_ns, name_id, base_name::TEXT
FROM host_call AS call
JOIN _shown_track AS shown ON shown.source_id = call.source_id AND shown.pid = call.pid AND shown.tid = call.tid,
    steady_window
WHERE end_ns > from_ns AND start_ns < until_ns
ORDER BY start_ns
"""

_TRACK_ROWS = """
WITH covered AS (
    SELECT track_id, start_ns, end_ns, max(end_ns) OVER (PARTITION BY track_id
        ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached_ns
    FROM (SELECT track_id, greatest(start_ns, from_ns) AS start_ns, least(end_ns, until_ns) AS end_ns
        FROM _shown_work, steady_window)
),
busy AS (
    SELECT track_id, sum(greatest(end_ns - greatest(start_ns, coalesce(reached_ns, start_ns)), 0))::BIGINT AS busy_ns
    FROM covered GROUP BY track_id
)
SELECT track_id, shown.source_id, shown.pid, device_id, stream_id, shown.tid,
    (SELECT any_value(name) FROM thread WHERE thread.source_id = shown.source_id AND thread.pid = shown.pid
        AND thread.tid = shown.tid),
    coalesce(busy_ns, 0)
FROM _shown_track AS shown LEFT JOIN busy USING (track_id)
ORDER BY track_id
"""

# as the coarse time-line: bin b holds the time t where from + length * b // bins <= t;
# work of one kind that overlaps counts once
_CELLS = """
WITH work AS (
    SELECT track_id, kind, greatest(start_ns, from_ns) - from_ns AS start_ns,
        least(end_ns, until_ns) - from_ns AS end_ns, until_ns - from_ns AS length_ns
    FROM _shown_work, steady_window
),
covered AS (
    SELECT track_id, kind, end_ns, length_ns, greatest(start_ns, coalesce(max(end_ns) OVER (PARTITION BY track_id, kind
        ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start_ns)) AS start_ns
    FROM work
),
placed AS (
    SELECT track_id, kind, start_ns, end_ns, length_ns, ((start_ns + 1) * $bins - 1) // length_ns AS bin,
        (end_ns * $bins - 1) // length_ns AS last_bin
    FROM covered WHERE end_ns > start_ns
),
busy AS (
    SELECT track_id, kind, bin, length_ns, end_ns - start_ns AS busy_ns FROM placed WHERE bin = last_bin
    UNION ALL
    SELECT track_id, kind, bin, length_ns,
        least(end_ns, length_ns * (bin + 1) // $bins) - greatest(start_ns, length_ns * bin // $bins)
    FROM (
        SELECT * EXCLUDE (bin, last_bin), unnest(generate_series(bin, last_bin)) AS bin FROM placed WHERE bin < last_bin
    )
)
SELECT track_id, kind, bin,
    least(sum(busy_ns) / nullif(any_value(length_ns * (bin + 1) // $bins - length_ns * bin // $bins), 0), 1)
FROM busy
GROUP BY track_id, kind, bin
HAVING sum(busy_ns) > 0 AND any_value(length_ns * (bin + 1) // $bins - length_ns * bin // $bins) > 0
ORDER BY track_id, kind, bin
"""

_STEPS = """
SELECT start_ns, end_ns FROM step
WHERE (source_id, coalesce(pid, -1)) = (
    SELECT (source_id, coalesce(pid, -1)) FROM step GROUP BY ALL ORDER BY count(*) DESC, 1 LIMIT 1)
ORDER BY start_ns LIMIT $most
"""

_EXTENT = """
SELECT min(start_ns), max(end_ns) FROM (
    (SELECT start_ns, end_ns FROM _shown_work WHERE start_ns < $time_ns ORDER BY start_ns DESC LIMIT $before)
    UNION ALL
    (SELECT start_ns, start_ns FROM _shown_work WHERE start_ns >= $time_ns ORDER BY start_ns LIMIT $after)
)
"""

_SPANS = """
SELECT track_id, kind, start_ns, end_ns,
    coalesce(CASE WHEN word IN ('kernel', 'graph') THEN text.text ELSE word END, word)
FROM _shown_work LEFT JOIN text ON text_id = name_id
WHERE end_ns > $low AND start_ns < $high
ORDER BY start_ns, end_ns DESC, track_id
LIMIT $most
"""
