"""Columns of a query as numpy arrays, rows numbered by group, and sums and maxima that run within groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int = npt.NDArray[np.int64]
Code = npt.NDArray[np.int32]
Real = npt.NDArray[np.float64]
Flag = npt.NDArray[np.bool_]

SLICE_ROWS = 4 * 122_880
"""Rows that are handed to DuckDB at a time: groups of its rows."""
UNKNOWN = np.iinfo(np.int64).min
"""Stands for NULL in an array of whole numbers."""


def fetch(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """Rows of a SELECT; rows of a SELECT from one table alone come in the table's order."""
    return connection.sql(sql).to_arrow_table()


class Scan:
    """Rows of one table, in the table's order, a column at a time: there may be millions, and few are needed."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, table: str, where: str = "true") -> None:
        self._connection = connection
        self._rows = f"FROM {table} WHERE {where}"
        [(self._count,)] = connection.execute(f"SELECT count(*) {self._rows}").fetchall()

    def column(self, expression: str, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        """An expression without NULL, of every row: put in its place part by part, so that it is there but once."""
        values = np.empty(self._count, dtype=kind)
        first = 0
        for part in self._connection.sql(f"SELECT {expression} AS it {self._rows}").to_arrow_reader(SLICE_ROWS):
            values[first : first + part.num_rows] = part.column(0).to_numpy(zero_copy_only=False)
            first += part.num_rows
        return values

    def whole(self, expression: str) -> Int:
        """Whole numbers, `UNKNOWN` where NULL, of every row."""
        return np.asarray(self.column(f"coalesce({expression}, {UNKNOWN:d})", np.int64))

    def groups(self, *columns: str) -> Groups:
        """Every row numbered by what it has in these columns."""
        rows = fetch(self._connection, f"SELECT {', '.join(columns)} {self._rows}")
        return group([rows.column(at) for at in range(len(columns))])


def streamed(parts: Iterator[pa.Table]) -> pa.RecordBatchReader:
    """Rows that are made while they are stored; at least one part, which may be empty."""
    first = next(parts)
    batches = (batch for part in chain((first,), parts) for batch in part.to_batches())
    return pa.RecordBatchReader.from_batches(first.schema, batches)


def slices(count: int, size: int = SLICE_ROWS) -> Iterator[slice]:
    """Parts of so many rows, at least one."""
    for first in range(0, max(count, 1), size):
        yield slice(first, min(first + size, count))


def whole(rows: pa.Table, name: str) -> Int:
    """A column of whole numbers, `UNKNOWN` where NULL."""
    column = rows.column(name)
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(UNKNOWN, column.type))
    return np.asarray(column.to_numpy(), dtype=np.int64)


def nullable(values: Int) -> pa.Array:
    """An Arrow column, NULL where `UNKNOWN`."""
    is_unknown = values == UNKNOWN
    return pa.array(values, mask=is_unknown) if is_unknown.any() else pa.array(values)


def spelled(code: npt.NDArray[np.integer], words: Sequence[object], kind: pa.DataType) -> pa.DictionaryArray:
    """A column that names one of few words in each row; a code below zero is NULL."""
    indices = pa.array(code, mask=code < 0) if len(code) and int(code.min()) < 0 else pa.array(code)
    return pa.DictionaryArray.from_arrays(indices, pa.array(words, kind))


@dataclass(frozen=True)
class Groups:
    """Rows numbered by what is in a few of their columns.

    Attributes:
        code: int32, the number of each row's group.
        keys: what each group has in common, ascending, NULL last.
    """

    code: Code
    keys: tuple[tuple[int | None, ...], ...]


def group(columns: Sequence[pa.ChunkedArray]) -> Groups:
    """Number the distinct combinations of values."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    keys: list[tuple[int | None, ...]] = [()]
    for column in columns:
        if (value := _only_value(column)) is not None:
            keys = [(*key, value) for key in keys]
            continue
        encoded = column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        encoded = encoded.combine_chunks()
        if isinstance(encoded, pa.ChunkedArray):  # no rows
            return Groups(np.zeros(0, dtype=np.int32), ())
        values = encoded.dictionary.to_pylist()
        index = pc.fill_null(encoded.indices, len(values)).to_numpy(zero_copy_only=False)
        values.append(None)
        code = code * len(values) + index
        keys = [(*key, value) for key in keys for value in values]
        code, keys = _only_present(code, keys)
    if len(keys) == 1:
        return Groups(np.zeros(len(code), dtype=np.int32), tuple(keys))
    order = sorted(range(len(keys)), key=lambda at: tuple((value is None, value or 0) for value in keys[at]))
    rank = np.empty(len(keys), dtype=np.int32)
    rank[order] = np.arange(len(keys), dtype=np.int32)
    return Groups(rank[code], tuple(keys[at] for at in order))


def _only_value(column: pa.ChunkedArray) -> int | None:
    """What every row has in a column of whole numbers, None where they differ or some have nothing."""
    if column.null_count or not pa.types.is_integer(column.type):
        return None
    ends = pc.min_max(column).as_py()
    return ends["min"] if ends["min"] == ends["max"] else None


def _only_present(code: Int, keys: list[tuple[int | None, ...]]) -> tuple[Int, list[tuple[int | None, ...]]]:
    present = np.bincount(code, minlength=len(keys)) > 0
    return (np.cumsum(present) - 1)[code], [key for key, is_here in zip(keys, present, strict=True) if is_here]


def bounds_of(sorted_code: Code, count: int) -> Int:
    """Where each of `count` groups begins among rows in order of group, and where the last ends."""
    return np.searchsorted(sorted_code, np.arange(count + 1)).astype(np.int64)


def in_groups(code: Code, count: int) -> Code | slice:
    """The same as `by_group`, to index arrays with: all rows, without a copy of any, where there is one group."""
    return by_group(code, count).astype(np.int32) if count > 1 else slice(None)


def by_group(code: Code, count: int) -> Int:
    """Rows in order of group, and within a group as they were."""
    if count <= 1:
        return np.arange(len(code))
    small = code.astype(np.int16) if count < 1 << 15 else code  # numpy sorts 16 bits by counting
    return np.argsort(small, kind="stable")


def rows_of(code: Code, one: int, count: int) -> Int | slice:
    """The rows of one of `count` groups, to index arrays with; all of them, without a copy, where there is one."""
    return slice(None) if count <= 1 else np.flatnonzero(code == one)


def reached_before(values: Int, bounds: Int) -> Int:
    """Largest value of the rows before each in its group, `UNKNOWN` for the first."""
    before = np.full(len(values), UNKNOWN, dtype=np.int64)
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if last > first + 1:
            np.maximum.accumulate(values[first : last - 1], out=before[first + 1 : last])
    return before


def medians(code: Int, values: Int, count: int) -> Real:
    """Median of the values of each of `count` groups, NaN where it has none. Values lie in [0, 2**31)."""
    together = np.sort((code.astype(np.int64) << 31) | values)
    first = np.searchsorted(together, np.arange(count + 1, dtype=np.int64) << 31)
    size = np.diff(first)
    there = size > 0
    low, high = (first[:-1] + (size - 1) // 2)[there], (first[:-1] + size // 2)[there]
    middle = np.full(count, np.nan)
    middle[there] = ((together[low] & 0x7FFFFFFF) + (together[high] & 0x7FFFFFFF)) / 2.0
    return middle
