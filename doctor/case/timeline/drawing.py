"""What a screen of the time-line shows: cells that are partly busy, and the items wide enough to be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from doctor.case.timeline.bound_values import bound
from doctor.case.timeline.items import ITEM, Work
from doctor.case.timeline.prepare import BIN_WIDTHS, LONG_BINS
from doctor.case.timeline.view import View

_MOST_ITEMS = 5_000
_LEAST_BINS_A_CELL = LONG_BINS // 2


@dataclass(frozen=True)
class Lane:
    """One row of the time-line.

    Attributes:
        lane_id: its place.
        kind: `step`, `stream`, `thread` or `range`.
        device_id: of a stream.
        stream_id: of a stream.
        pid: process.
        tid: of a thread and its ranges.
        depth: of ranges: how many others are around them.
        item_count: what it holds in the whole recording.
    """

    lane_id: int
    kind: str
    device_id: int | None
    stream_id: int | None
    pid: int | None
    tid: int | None
    depth: int | None
    item_count: int


@dataclass(frozen=True)
class Cell:
    """How busy a lane is in one cell of the view: the share of the most frequent kind of work, and items begun."""

    cell: int
    work: Work
    share: float
    item_count: int


@dataclass(frozen=True)
class Item:
    """One piece of work, on the case's clock; `name` is empty where it has none."""

    lane_id: int
    item_id: int
    start_ns: int
    end_ns: int
    work: Work
    name: str


@dataclass(frozen=True)
class Drawing:
    """A screen: cells by lane, in order, and the items at least two cells wide."""

    view: View
    cells: dict[int, tuple[Cell, ...]]
    items: tuple[Item, ...]


def extent(connection: duckdb.DuckDBPyConnection) -> tuple[int, int] | None:
    """First and last time of the recording on the case's clock, None where it holds no time-line."""
    rows = connection.execute("SELECT start_ns, end_ns FROM timeline.extent").fetchall()
    return (int(rows[0][0]), int(rows[0][1])) if rows else None


def lanes(connection: duckdb.DuckDBPyConnection) -> tuple[Lane, ...]:
    """The rows of the time-line in the order in which they are shown."""
    return tuple(Lane(*row) for row in connection.execute(_LANES).fetchall())


def draw(connection: duckdb.DuckDBPyConnection, view: View, shown: Sequence[int]) -> Drawing:
    """What the view shows of some lanes.

    Wide views are added up from the bins that `prepare` made, narrow ones from the items themselves, so that either
    touches a few hundred thousand rows at most, whatever the recording holds.
    """
    values = {**bound(view), "lanes": list(shown)}
    width = _width_of_bins(connection, view)
    if width is None:
        cells = connection.execute(_CELLS_OF_ITEMS, values).fetchall()
        items = connection.execute(_ITEMS, values | {"most": _MOST_ITEMS}).fetchall()
    else:
        cells = connection.execute(_CELLS_OF_BINS, values | {"width": width}).fetchall()
        items = connection.execute(_LONG_ITEMS, values | {"most": _MOST_ITEMS}).fetchall()
    return Drawing(view, _by_lane(cells, view), tuple(item_of(*row) for row in items))


def item_of(lane_id: int, item_id: int, start_ns: int, end_ns: int, work: int, name: str) -> Item:
    """An item from a row of a query."""
    return Item(lane_id, item_id, start_ns, end_ns, Work(work), name)


def _width_of_bins(connection: duckdb.DuckDBPyConnection, view: View) -> int | None:
    """The widest bins that give each cell some, None where all are too wide."""
    [(bin_ns,)] = connection.execute("SELECT coalesce(max(bin_ns), 1) FROM timeline.extent").fetchall()
    fitting = [width for width in BIN_WIDTHS if view.cell_ns >= _LEAST_BINS_A_CELL * bin_ns * width]
    return max(fitting, default=None)


def _by_lane(rows: list[tuple[int, int, int, int, int]], view: View) -> dict[int, tuple[Cell, ...]]:
    """Rows come by lane and cell, the most frequent work first."""
    lanes: dict[int, list[Cell]] = {}
    for lane_id, cell, work, busy_ns, count in rows:
        line = lanes.setdefault(lane_id, [])
        line.append(Cell(cell, Work(work), min(busy_ns / view.cell_ns, 1.0), count))
    return {lane_id: tuple(line) for lane_id, line in lanes.items()}


_LANES = (
    "SELECT lane_id, lane_kind, device_id, stream_id, pid, tid, depth, item_count FROM timeline.lane ORDER BY lane_id"
)

_MOST_FREQUENT = """
SELECT lane_id, cell::INTEGER, arg_max(work, busy_ns), sum(busy_ns)::BIGINT, sum(item_count)::BIGINT
FROM busy WHERE cell BETWEEN 0 AND $cells - 1
GROUP BY lane_id, cell ORDER BY lane_id, cell
"""

_CELLS_OF_BINS = f"""
WITH busy AS (
    SELECT lane_id, (start_ns + (2 * bin + 1) * bin_ns * width // 2 - $start) * $cells // $length AS cell, work,
        sum(busy_ns) AS busy_ns, sum(item_count) AS item_count
    FROM timeline.bin, timeline.extent
    WHERE width = $width
        AND bin BETWEEN ($start - start_ns) // (bin_ns * width) AND ($start + $length - start_ns) // (bin_ns * width)
        AND lane_id IN (SELECT unnest($lanes))
    GROUP BY ALL
)
{_MOST_FREQUENT}
"""

# an item's cells come from integers alone: cell c holds the time t where length * c // cells <= t
_CELLS_OF_ITEMS = f"""
WITH {ITEM},
placed AS (
    SELECT lane_id, work, greatest(start_ns - $start, 0) AS start_ns, least(end_ns - $start, $length) AS end_ns,
        start_ns >= $start AS is_begun,
        greatest(start_ns - $start, 0) * $cells // $length AS first,
        greatest(least(end_ns - $start, $length) * $cells - 1, greatest(start_ns - $start, 0) * $cells) // $length
            AS last
    FROM item
    WHERE start_ns < $start + $length AND end_ns >= $start AND lane_id IN (SELECT unnest($lanes))
),
busy AS (
    SELECT lane_id, first AS cell, work, sum(end_ns - start_ns) AS busy_ns, count(*) FILTER (is_begun) AS item_count
    FROM placed WHERE first = last GROUP BY ALL
    UNION ALL
    SELECT lane_id, cell, work,
        sum(least(end_ns, (cell + 1) * $length / $cells) - greatest(start_ns, cell * $length / $cells)),
        count(*) FILTER (is_begun AND cell = first)
    FROM (SELECT *, unnest(generate_series(first, last)) AS cell FROM placed WHERE first < last) GROUP BY ALL
)
{_MOST_FREQUENT}
"""

_NAMED = """
SELECT lane_id, item_id, start_ns, end_ns, work, coalesce(text, '')
FROM wide LEFT JOIN text ON text_id = name_id ORDER BY start_ns, end_ns DESC
"""

_ITEMS = f"""
WITH {ITEM},
wide AS (
    SELECT * FROM item
    WHERE start_ns < $start + $length AND end_ns >= $start AND (end_ns - start_ns) * $cells >= $length * 2
        AND lane_id IN (SELECT unnest($lanes))
    LIMIT $most
)
{_NAMED}
"""

_LONG_ITEMS = f"""
WITH wide AS (
    SELECT * FROM timeline.long_item
    WHERE start_ns < $start + $length AND end_ns >= $start AND (end_ns - start_ns) * $cells >= $length * 2
        AND lane_id IN (SELECT unnest($lanes))
    LIMIT $most
)
{_NAMED}
"""
