"""Finds one piece of work on the time-line and says what there is to say about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb

from doctor.case.timeline.bound_values import whole
from doctor.case.timeline.drawing import Item, item_of
from doctor.case.timeline.items import ITEM, Work


@dataclass(frozen=True)
class LaunchOf:
    """The host call that launched a device operation: its function, thread and start on the case's clock."""

    function: str
    tid: int | None
    start_ns: int


@dataclass(frozen=True)
class ItemFacts:
    """One item and what else is known of it: texts as they are shown, such as `grid 32 blocks of 256`."""

    item: Item
    facts: tuple[str, ...]
    launch: LaunchOf | None


_NEAR_NS = 10**7
_FAR_NS = 2**62
_FEW = 64
_ON_DEVICE = frozenset({Work.COMPUTE, Work.COMMUNICATION, Work.COPY, Work.GRAPH, Work.MEMSET})


def item_at(connection: duckdb.DuckDBPyConnection, lane_id: int, start_ns: int, end_ns: int) -> Item | None:
    """The longest item of a lane that lies in part between two times."""
    return _one(connection, _AT, {"lane": lane_id, "start": start_ns, "end": end_ns})


def silence_at(
    connection: duckdb.DuckDBPyConnection, lane_id: int, time_ns: int, reach_ns: int
) -> tuple[int | None, int | None]:
    """When the work before a time ended and the work after it begins, None where that is further than `reach_ns`."""
    found: tuple[int | None, int | None] = (None, None)
    for reach in (reach_ns // _FEW, reach_ns):  # nearly always near, and then found without reading much
        [found] = connection.execute(_SILENCE, {"lane": lane_id, "time": whole(time_ns), "reach": reach}).fetchall()
        if None not in found:
            break
    return found


def item_after(connection: duckdb.DuckDBPyConnection, lane_id: int, time_ns: int) -> Item | None:
    """The first item of a lane that begins after a time."""
    values = {"lane": lane_id, "time": time_ns}
    near, anywhere = {"until": time_ns + _NEAR_NS}, {"until": _FAR_NS}
    return _one(connection, _AFTER, values | near) or _one(connection, _AFTER, values | anywhere)


def item_before(connection: duckdb.DuckDBPyConnection, lane_id: int, time_ns: int) -> Item | None:
    """The last item of a lane that begins before a time."""
    values = {"lane": lane_id, "time": time_ns}
    near, anywhere = {"from": time_ns - _NEAR_NS}, {"from": -_FAR_NS}
    return _one(connection, _BEFORE, values | near) or _one(connection, _BEFORE, values | anywhere)


def named_after(connection: duckdb.DuckDBPyConnection, word: str, time_ns: int) -> Item | None:
    """The first item of any lane after a time whose name holds a word; the very first where none comes after."""
    values = {"word": word.lower(), "time": time_ns}
    return _one(connection, _NAMED_AFTER, values) or _one(connection, _NAMED_AFTER, values | {"time": -_FAR_NS})


def longest_named(connection: duckdb.DuckDBPyConnection, name: str) -> Item | None:
    """The longest device operation of exactly this name."""
    return _one(connection, _LONGEST_NAMED, {"name": name})


def facts_of(connection: duckdb.DuckDBPyConnection, item: Item) -> ItemFacts:
    """What the case knows of an item beyond its time."""
    if item.work in _ON_DEVICE:
        rows = connection.execute(_OP_FACTS, {"id": item.item_id, "start": item.start_ns}).fetchall()
        if rows:
            *facts, function, tid, called_ns = rows[0]
            launch = LaunchOf(function, tid, called_ns) if function is not None else None
            return ItemFacts(item, tuple(fact for fact in facts if fact), launch)
    return ItemFacts(item, (), None)


def range_place(connection: duckdb.DuckDBPyConnection, name: str) -> tuple[int, int] | None:
    """Start and end of the longest annotation range of this name."""
    rows = connection.execute(_RANGE, {"name": name}).fetchall()
    return (int(rows[0][0]), int(rows[0][1])) if rows else None


def _one(connection: duckdb.DuckDBPyConnection, sql: str, values: Mapping[str, object]) -> Item | None:
    rows = connection.execute(sql, dict(values)).fetchall()
    if not rows:
        return None
    return item_of(*rows[0])


_FOUND = """
SELECT lane_id, item_id, start_ns, end_ns, work, coalesce(text, '')
FROM found LEFT JOIN text ON text_id = name_id ORDER BY start_ns LIMIT 1
"""

_AT = f"""
WITH {ITEM},
found AS (
    SELECT * FROM item WHERE lane_id = $lane AND start_ns < $end AND end_ns >= $start
    ORDER BY least(end_ns, $end) - greatest(start_ns, $start) DESC, start_ns LIMIT 1
)
{_FOUND}
"""

_SILENCE = f"""
WITH {ITEM}
SELECT max(end_ns) FILTER (start_ns <= $time), min(start_ns) FILTER (start_ns > $time)
FROM item WHERE lane_id = $lane AND end_ns >= $time - $reach AND start_ns <= $time + $reach
"""

_AFTER = f"""
WITH {ITEM},
found AS (SELECT * FROM item WHERE lane_id = $lane AND start_ns > $time AND start_ns < $until ORDER BY start_ns LIMIT 1)
{_FOUND}
"""

_BEFORE = f"""
WITH {ITEM},
found AS (
    SELECT * FROM item WHERE lane_id = $lane AND start_ns < $time AND start_ns > $from ORDER BY start_ns DESC LIMIT 1
)
{_FOUND}
"""

_NAMED_AFTER = f"""
WITH {ITEM},
found AS (
    SELECT * FROM item
    WHERE name_id IN (SELECT text_id FROM text WHERE contains(lower(text), $word)) AND start_ns > $time
    ORDER BY start_ns LIMIT 1
)
{_FOUND}
"""

_LONGEST_NAMED = f"""
WITH {ITEM},
found AS (
    SELECT * FROM item WHERE name_id IN (SELECT text_id FROM text WHERE text = $name)
        AND lane_id IN (SELECT lane_id FROM timeline.lane WHERE lane_kind = 'stream')
    ORDER BY end_ns - start_ns DESC, start_ns LIMIT 1
)
{_FOUND}
"""

# the start narrows the search to one block of rows: device_op lies in order of start and has no key
_OP_FACTS = """
SELECT CASE WHEN grid_blocks IS NOT NULL THEN 'grid ' || grid_blocks || ' x ' || coalesce(block_threads, 0) END,
    CASE WHEN family NOT IN ('memcpy', 'memset', 'graph', 'other') THEN family::TEXT END,
    precision::TEXT,
    CASE WHEN size_bytes IS NOT NULL THEN formatReadableSize(size_bytes) END,
    CASE WHEN copy_kind IS NOT NULL
        THEN copy_kind || ' (' || coalesce(src_kind::TEXT, '?') || ' to ' || coalesce(dst_kind::TEXT, '?') || ')' END,
    base_name::TEXT, tid, host_call.start_ns
FROM (SELECT * FROM device_op WHERE start_ns = $start AND device_op_id = $id) AS op
LEFT JOIN launch USING (device_op_id) LEFT JOIN host_call USING (host_call_id)
LIMIT 1
"""

_RANGE = """
SELECT start_ns, end_ns FROM timeline.range_depth JOIN text ON text_id = name_id
WHERE text = $name ORDER BY end_ns - start_ns DESC, start_ns LIMIT 1
"""
