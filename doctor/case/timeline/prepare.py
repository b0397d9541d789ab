"""Opens a case for looking at it, and builds the level of detail of its time-line once, beside it in memory."""

from __future__ import annotations

from contextlib import closing
from importlib import resources
from pathlib import Path

import duckdb

from doctor.case.connection import connect
from doctor.case.store import open_case
from doctor.case.timeline.items import ITEM
from doctor.case.timeline.tracks import prepare_tracks

BINS = 2**16
"""Narrowest bins of the whole recording."""
BIN_WIDTHS = (1, 16)
"""Bins are kept once as they are and once in sixteens, for views of everything."""
DEEPEST = 7
"""Annotation ranges nested deeper share the last lane."""
LONG_BINS = 8
"""Items at least this many bins long are kept by name: they can be told apart on a screen drawn from bins."""
_CASE = "evidence"


def open_for_viewing(path: Path) -> duckdb.DuckDBPyConnection:
    """Open a derived case file read-only, with room for tables of our own beside it in memory.

    A connection to the file itself could hold none: DuckDB opens nothing writable in a process's read-only database.

    Raises:
        CaseError: the file is missing or no case file of this layout.
    """
    with closing(open_case(path)):  # says what is wrong with it
        pass
    connection = connect()
    quoted = str(path).replace("'", "''")
    connection.execute(f"ATTACH '{quoted}' AS {_CASE} (READ_ONLY)")
    connection.execute("ATTACH ':memory:' AS timeline")
    connection.execute(f"USE {_CASE}")
    return connection


def viewing_cursor(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """A cursor for another thread on what `open_for_viewing` gave; a fresh cursor would look at the wrong database."""
    cursor = connection.cursor()
    cursor.execute(f"USE {_CASE}")
    return cursor


def prepare(connection: duckdb.DuckDBPyConnection) -> None:
    """Fill the database `timeline` of what `open_for_viewing` gave; its cursors see it too."""
    script = resources.files("doctor.case.timeline").joinpath("detail.sql").read_text(encoding="utf-8")
    prepare_tracks(connection)
    connection.execute(script.replace("{bins}", str(BINS)).replace("{deepest}", str(DEEPEST)))
    connection.execute(_BIN)
    for width in BIN_WIDTHS[1:]:
        connection.execute(_WIDER_BIN, {"width": width})
    connection.execute(_LONG_ITEM, {"bins": LONG_BINS})


_BIN = f"""
CREATE TABLE timeline.bin AS
WITH {ITEM},
placed AS (
    SELECT lane_id, work, item.start_ns - extent.start_ns AS start_ns, item.end_ns - extent.start_ns AS end_ns, bin_ns,
        ((item.start_ns - extent.start_ns) // bin_ns)::INTEGER AS first,
        (greatest(item.end_ns - extent.start_ns - 1, item.start_ns - extent.start_ns) // bin_ns)::INTEGER AS last
    FROM item, timeline.extent
),
part AS (
    SELECT lane_id, work, first AS bin, sum(end_ns - start_ns) AS busy_ns, count(*) AS item_count
    FROM placed WHERE first = last GROUP BY ALL
    UNION ALL
    SELECT lane_id, work, bin, sum(least(end_ns, (bin + 1) * bin_ns) - greatest(start_ns, bin * bin_ns)),
        count(*) FILTER (bin = first)
    FROM (SELECT *, unnest(generate_series(first, last))::INTEGER AS bin FROM placed WHERE first < last)
    GROUP BY ALL
)
SELECT lane_id, 1 AS width, bin, work, sum(busy_ns)::BIGINT AS busy_ns, sum(item_count)::BIGINT AS item_count
FROM part GROUP BY lane_id, bin, work ORDER BY bin, lane_id, work
"""

_WIDER_BIN = """
INSERT INTO timeline.bin
SELECT lane_id, $width, bin // $width AS wide, work, sum(busy_ns), sum(item_count)
FROM timeline.bin WHERE width = 1 GROUP BY lane_id, wide, work ORDER BY wide, lane_id, work
"""

_LONG_ITEM = f"""
CREATE TABLE timeline.long_item AS
WITH {ITEM}
SELECT item.* FROM item, timeline.extent WHERE item.end_ns - item.start_ns >= $bins * bin_ns ORDER BY item.start_ns
"""
