"""What each file tells of the run that it comes from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import groupby

import duckdb
import numpy as np

from doctor.case.runs.meetings import MOST_COMPARED, Times
from doctor.case.runs.names import runs_by_name

EPOCH_ENDS_NS = 946_684_800 * 10**9
"""The year 2000: times before are no times since the epoch, and begin elsewhere in every file."""
YEARLESS_ENDS_NS = 978_307_200 * 10**9
"""The year 2001: a log that leaves the year out is put into 2000."""
CALENDAR_ENDS_NS = 2**63
"""The year 2262: later times are damaged."""


class Clock(StrEnum):
    """What the times of a file count from."""

    OWN = "own"
    YEARLESS = "yearless"
    EPOCH = "epoch"


@dataclass(frozen=True)
class Span:
    """From the first to the last thing that was recorded, in ns."""

    start_ns: int
    end_ns: int

    @property
    def clock(self) -> Clock:
        """Told by the times themselves."""
        if self.start_ns < EPOCH_ENDS_NS:
            return Clock.OWN
        return Clock.YEARLESS if self.start_ns < YEARLESS_ENDS_NS else Clock.EPOCH

    def gap_ns(self, other: Span) -> int | None:
        """Time between two spans, 0 where they overlap; None where their clocks cannot be compared."""
        clocks = {self.clock, other.clock}
        if Clock.OWN in clocks and len(clocks) > 1:
            return None
        one, two = (self, other) if len(clocks) == 1 else (self.without_year(), other.without_year())
        return max(one.start_ns - two.end_ns, two.start_ns - one.end_ns, 0)

    def without_year(self) -> Span:
        """The span put into the year 2000."""
        if self.clock is not Clock.EPOCH or self.start_ns >= CALENDAR_ENDS_NS:
            return self
        start = datetime.fromtimestamp(self.start_ns // 10**9, UTC)
        back_ns = int((start - start.replace(year=2000)).total_seconds()) * 10**9
        return Span(self.start_ns - back_ns, self.end_ns - back_ns)


@dataclass(frozen=True)
class Recording:
    """A time-line.

    Attributes:
        op_count: device operations and calls.
        kind: of evidence.
        rank: of the process in its job, where the evidence says so.
        world_size: number of ranks.
        span: of the device's work; None where there is none.
        meetings: ends of its collectives in ns, ascending; empty where it is no rank.
    """

    op_count: int
    kind: str
    rank: int | None
    world_size: int | None
    span: Span | None
    meetings: Times = field(default_factory=lambda: np.zeros(0, dtype=np.int64), compare=False)


@dataclass(frozen=True)
class EngineLog:
    """What an inference engine printed.

    Attributes:
        engine: as in `engine_setting`.
        span: of its lines; None where they carry no time.
        is_start: it tells the figures that an engine prints once, when it starts.
        is_serving: it tells the state of the engine while it serves.
        weight_bytes: of the model, per device.
    """

    engine: str
    span: Span | None
    is_start: bool
    is_serving: bool
    weight_bytes: int | None


@dataclass(frozen=True)
class Traits:
    """One file; what it does not tell is None or empty.

    Attributes:
        path: as the user named it.
        source_ids: one for each kind of evidence in it.
        devices: product names of devices, as `NVIDIA H200`, in lower case without the maker.
        device_bytes: size of the device in an error of memory.
        recording: the time-line in it.
        log: the engine's log in it.
        failures: bytes asked for and bytes free of each allocation that failed.
        named_after: the run whose name it has; empty where names do not tell runs apart.
    """

    path: str
    source_ids: tuple[int, ...]
    devices: frozenset[str]
    device_bytes: int | None
    recording: Recording | None
    log: EngineLog | None
    failures: tuple[tuple[int | None, int | None], ...] = ()
    named_after: str = ""


def traits_of(connection: duckdb.DuckDBPyConnection) -> tuple[Traits, ...]:
    """Every file of the case, in order of reading."""
    devices = _devices(connection)
    sizes = dict(connection.execute(_DEVICE_BYTES).fetchall())
    recordings = _recordings(connection)
    logs = _logs(connection)
    failures = _failures(connection)
    files = connection.execute("SELECT path, source_id FROM source ORDER BY source_id").fetchall()
    found = []
    for path, rows in groupby(files, key=lambda row: row[0]):
        ids = tuple(source_id for _, source_id in rows)
        found.append(
            Traits(
                path,
                ids,
                frozenset(name for source_id in ids for name in devices.get(source_id, ())),
                next((sizes[source_id] for source_id in ids if source_id in sizes), None),
                next((recordings[source_id] for source_id in ids if source_id in recordings), None),
                next((logs[source_id] for source_id in ids if source_id in logs), None),
                tuple(failure for source_id in ids for failure in failures.get(source_id, ())),
            )
        )
    runs = runs_by_name({file.path: file.failures for file in found})
    return tuple(replace(file, named_after=runs.get(file.path, "")) for file in found)


def _failures(connection: duckdb.DuckDBPyConnection) -> dict[int, tuple[tuple[int | None, int | None], ...]]:
    rows = connection.execute(_FAILURES).fetchall()
    return {
        source_id: tuple((tried, free) for _, tried, free in each)
        for source_id, each in groupby(rows, key=lambda row: row[0])
    }


def _devices(connection: duckdb.DuckDBPyConnection) -> dict[int, tuple[str, ...]]:
    named: dict[int, tuple[str, ...]] = {}
    for source_id, name in connection.execute(_DEVICE_NAMES).fetchall():
        plain = str(name).lower().removeprefix("nvidia ").removesuffix("...").strip()
        named[source_id] = (*named.get(source_id, ()), plain)
    return named


def _recordings(connection: duckdb.DuckDBPyConnection) -> dict[int, Recording]:
    rows = connection.execute(_RECORDINGS).fetchall()
    is_set = sum(rank is not None for _, _, rank, *_ in rows) > 1
    return {
        source_id: Recording(
            op_count,
            kind,
            rank,
            world_size,
            _span(start_ns, end_ns),
            _meetings(connection, source_id if is_set and rank is not None else None),
        )
        for source_id, kind, rank, world_size, op_count, start_ns, end_ns in rows
    }


def _meetings(connection: duckdb.DuckDBPyConnection, source_id: int | None) -> Times:
    ends = connection.execute(_MEETINGS, {"source": source_id, "most": MOST_COMPARED}).fetchnumpy()["end_ns"]
    return np.sort(np.asarray(ends, dtype=np.int64))


def _logs(connection: duckdb.DuckDBPyConnection) -> dict[int, EngineLog]:
    return {
        source_id: EngineLog(engine, _span(start_ns, end_ns), is_start, is_serving, weight_bytes)
        for source_id, engine, start_ns, end_ns, is_start, is_serving, weight_bytes in connection.execute(
            _LOGS
        ).fetchall()
    }


def _span(start_ns: int | None, end_ns: int | None) -> Span | None:
    return None if start_ns is None or end_ns is None else Span(start_ns, end_ns)


_DEVICE_NAMES = """
SELECT DISTINCT source_id, name FROM (
    SELECT source_id, name FROM device UNION ALL SELECT source_id, name FROM gpu_sample
)
WHERE name IS NOT NULL
ORDER BY source_id, name
"""

_DEVICE_BYTES = """
SELECT source_id, max(total_bytes) FROM oom_event WHERE total_bytes IS NOT NULL GROUP BY source_id
"""

_FAILURES = """
SELECT DISTINCT source_id, tried_bytes, free_bytes FROM oom_event WHERE tried_bytes IS NOT NULL
ORDER BY source_id, tried_bytes, free_bytes LIMIT 1000
"""

_RECORDINGS = """
WITH op AS (
    SELECT source_id, count(*) AS op_count, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM kernel GROUP BY source_id
    UNION ALL SELECT source_id, count(*), min(start_ns), max(end_ns) FROM memcpy GROUP BY source_id
    UNION ALL SELECT source_id, count(*), min(start_ns), max(end_ns) FROM memset GROUP BY source_id
    UNION ALL SELECT source_id, count(*), min(start_ns), max(end_ns) FROM graph_trace GROUP BY source_id
    UNION ALL SELECT source_id, count(*), NULL, NULL FROM api_call GROUP BY source_id
)
SELECT source_id, kind, rank, world_size, op_count, start_ns::HUGEINT + coalesce(clock_offset_ns, 0),
    end_ns::HUGEINT + coalesce(clock_offset_ns, 0)
FROM (
    SELECT source_id, sum(op_count)::BIGINT AS op_count, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM op GROUP BY source_id
) JOIN source USING (source_id)
"""

_LOGS = """
WITH line AS (
    SELECT source_id, engine, time_ns, false AS is_start, true AS is_serving, NULL AS weight_bytes FROM engine_sample
    UNION ALL SELECT source_id, engine, time_ns, false, false, NULL FROM engine_event
    UNION ALL SELECT source_id, engine, time_ns, true, false, CASE WHEN figure = 'weights' THEN amount_bytes END
    FROM engine_figure
)
SELECT source_id, mode(engine), min(time_ns), max(time_ns), bool_or(is_start), bool_or(is_serving), max(weight_bytes)
FROM line JOIN source USING (source_id)
WHERE engine IS NOT NULL AND kind = 'engine-log'
GROUP BY source_id
"""

_MEETINGS = """
SELECT end_ns FROM kernel JOIN text ON text_id = name_id
WHERE source_id = $source AND end_ns IS NOT NULL AND NOT regexp_matches(lower(text), 'send|recv')
    AND regexp_matches(lower(text), '^(void )?(nccl|rccl)|nccl(dev)?kernel|(^|[^a-z])cross_device_reduce'
        || '|(one|two)_?shot_?all_?reduce|multimem_all_reduce')
ORDER BY end_ns DESC LIMIT $most
"""
