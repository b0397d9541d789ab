"""Rows and amounts that can be: what damage, or a hostile file, makes of numbers would break sums later on.

Real recordings stay far below every bound here; what is beyond is left out and counted, so that the file is marked
incomplete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

_LATEST_NS = 1 << 62
"""146 years from the beginning of the clock: the difference of two such times stays in 64 bits."""
_LONGEST_NS = 10**16
"""A hundred days: sums of it over a recording stay in 64 bits."""
_LARGEST = 1 << 53
"""Nine petabytes, or as many things."""
_TIMES = ("start_ns", "end_ns", "time_ns")
_AMOUNTS = ("_bytes", "_count")
_DIMENSIONS = ("grid_", "block_")
_LONGEST_GRID = (1 << 31) - 1
"""Blocks of a grid along its first axis, by CUDA's own limit."""
_WIDEST = 1 << 16
"""The same along the others, by CUDA's and HIP's; blocks have fewer threads. Products of three stay in 64 bits."""

Column: TypeAlias = pa.Array | pa.ChunkedArray


@dataclass(frozen=True)
class Possible:
    """Columns of a batch without what cannot be.

    Attributes:
        columns: as they were where nothing was wrong.
        lost_rows: rows left out for their times.
        lost_values: number of amounts that became NULL, by column.
    """

    columns: Mapping[str, Column]
    lost_rows: int
    lost_values: Mapping[str, int]


def possible(columns: Mapping[str, Column]) -> Possible:
    """Leave out rows with times, and make NULL of amounts, that no recording can have.

    Times are those of the columns `start_ns`, `end_ns` and `time_ns`; an interval ends after it starts. Amounts are
    whole numbers in columns of bytes, counts, and dimensions of grids and blocks. Costs one pass over each such column
    where all is well.
    """
    kept, lost_rows = _with_possible_times(columns)
    replaced = {name: _limited(kept[name], *_bounds(name)) for name in kept if _is_beyond(kept[name], _bounds(name))}
    lost = {name: kept[name].null_count for name in replaced}
    return Possible(
        {**kept, **replaced}, lost_rows, {name: replaced[name].null_count - before for name, before in lost.items()}
    )


def _with_possible_times(columns: Mapping[str, Column]) -> tuple[Mapping[str, Column], int]:
    masks = list(_impossible(columns))
    if not masks:
        return columns, 0
    lost = masks[0]
    for mask in masks[1:]:
        lost = pc.or_(lost, mask)
    kept = pc.invert(lost)
    return {name: values.filter(kept) for name, values in columns.items()}, pc.sum(lost).as_py()


def _impossible(columns: Mapping[str, Column]) -> Iterator[Column]:
    """A mask of each kind of impossible row that there is."""
    times = {name: columns[name] for name in _TIMES if name in columns and _is_whole(columns[name])}
    odd = [values for values in times.values() if not _lies_within(values, _LATEST_NS)]
    for values in odd:
        yield _outside(values, -_LATEST_NS, _LATEST_NS - 1)
    if "start_ns" in times and "end_ns" in times:
        length = pc.subtract(times["end_ns"], times["start_ns"])  # may wrap around, where a mask above has the row
        if odd or not _lies_between(length, 0, _LONGEST_NS):
            yield _outside(length, 0, _LONGEST_NS)


def _outside(values: Column, least: int, most: int) -> Column:
    return pc.fill_null(pc.or_(pc.less(values, least), pc.greater(values, most)), False)


def _is_whole(values: Column) -> bool:
    return bool(pa.types.is_signed_integer(values.type))


def _lies_within(values: Column, bound: int) -> bool:
    return _lies_between(values, -bound, bound - 1)


def _lies_between(values: Column, least: int, most: int) -> bool:
    ends = pc.min_max(values)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return low is None or (least <= low and high <= most)


def _bounds(name: str) -> tuple[int, int]:
    """Least and most of a column; none at all where the column is no amount."""
    if name.startswith(_DIMENSIONS):
        return 0, _LONGEST_GRID if name == "grid_x" else _WIDEST
    return (-_LARGEST, _LARGEST) if name.endswith(_AMOUNTS) else (0, -1)


def _is_beyond(values: Column, bounds: tuple[int, int]) -> bool:
    least, most = bounds
    return least <= most and _is_whole(values) and not _lies_between(values, least, most)


def _limited(values: Column, least: int, most: int) -> Column:
    return pc.if_else(pc.invert(_outside(values, least, most)), values, pa.scalar(None, values.type))
