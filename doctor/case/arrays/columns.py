"""Columns of a query as numpy arrays, rows numbered by group, and sums and maxima that run within groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int = npt.NDArray[np.int64]
Code = npt.NDArray[np.int32]
Real = npt.NDArray[np.float64]
Flag = npt.NDArray[np.bool_]
Words = Mapping[str, tuple[str, Sequence[str]]]
"""Of columns that are numbers the enumeration, and its words in order of number."""
_Number = TypeVar("_Number", bound=np.generic)

SLICE_ROWS = 4 * 122_880
"""Rows that are handed to DuckDB at a time: groups of its rows."""
IN_CACHE = 1 << 16
"""Rows of a part that stays in the processor's cache with what is made on the way."""
LARGEST_TABLE = 1 << 16
"""Numbers that a table may be made for: it stays in the cache."""
FEW_GROUPS = 8
"""Groups up to which rows are put in order of group without sorting."""
UNKNOWN = np.iinfo(np.int64).min
"""Stands for NULL in an array of whole numbers."""


def fetch(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """Rows of a SELECT; rows of a SELECT from one table alone come in the table's order."""
    return connection.sql(sql).to_arrow_table()


class Scan:
    """Rows of one table, in the table's order, a column at a time: there may be millions, and few are needed.

    Attributes:
        count: of the rows.
    """

    count: int

    def __init__(self, connection: duckdb.DuckDBPyConnection, table: str, where: str = "true") -> None:
        self._connection = connection
        self._rows = f"FROM {table} WHERE {where}"
        [(self.count,)] = connection.execute(f"SELECT count(*) {self._rows}").fetchall()

    def column(self, expression: str, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        """An expression without NULL, of every row."""
        values = np.empty(self.count, dtype=kind)
        self.fill(values, expression)
        return values

    def fill(self, values: npt.NDArray[Any], expression: str) -> None:
        """Put an expression without NULL, of every row, in its place part by part, so that it is there but once."""
        first = 0
        for part in self._connection.sql(f"SELECT {expression} AS it {self._rows}").to_arrow_reader(SLICE_ROWS):
            values[first : first + part.num_rows] = part.column(0).to_numpy(zero_copy_only=False)
            first += part.num_rows

    def whole(self, expression: str) -> Int:
        """Whole numbers, `UNKNOWN` where NULL, of every row."""
        return np.asarray(self.column(f"coalesce({expression}, {UNKNOWN:d})", np.int64))

    def groups(self, *columns: str) -> Groups:
        """Every row numbered by what it has in these columns of whole numbers; read part by part, as any column."""
        found = self._connection.execute(f"SELECT DISTINCT {', '.join(columns)} {self._rows}").fetchall()
        keys = in_order_of_keys(found)
        code = np.zeros(self.count, dtype=np.int32)
        if len(keys) > 1:
            numbering = _Numbering.of(keys)
            read = ", ".join(f"coalesce({columns[at]}, {UNKNOWN:d})" for at in numbering.differing)
            first = 0
            for part in self._connection.sql(f"SELECT {read} {self._rows}").to_arrow_reader(SLICE_ROWS):
                code[first : first + part.num_rows] = numbering.of_rows([one.to_numpy() for one in part.columns])
                first += part.num_rows
        return Groups(code, keys)


def streamed(parts: Iterator[pa.Table]) -> pa.RecordBatchReader:
    """Rows that are made while they are stored; at least one part, which may be empty."""
    first = next(parts)
    batches = (batch for part in chain((first,), parts) for batch in part.to_batches())
    return pa.RecordBatchReader.from_batches(first.schema, batches)


@dataclass(frozen=True)
class Coded:
    """Rows that name the words of enumerations by numbers: DuckDB would take a text for each of millions of rows first.

    Attributes:
        rows: as they come.
        words: of each such column; NULL where no word has the number.
    """

    rows: pa.RecordBatchReader
    words: Words

    def spelled(self, relation: str) -> str:
        """A SELECT of these rows, which stand under the name `relation`, with the words in place of the numbers."""
        columns = []
        for column, (enumeration, words) in self.words.items():
            cases = " ".join(f"WHEN {at:d} THEN '{word}'::{enumeration}" for at, word in enumerate(words))
            spelled = f"CASE {column} {cases} END" if words else "NULL"
            columns.append(f"({spelled})::{enumeration} AS {column}")
        return f"SELECT * REPLACE ({', '.join(columns)}) FROM {relation}"


def slices(count: int, size: int = SLICE_ROWS) -> Iterator[slice]:
    """Parts of so many rows, at least one."""
    for first in range(0, max(count, 1), size):
        yield slice(first, min(first + size, count))


def gather(values: npt.NDArray[_Number], at: npt.NDArray[np.integer]) -> npt.NDArray[_Number]:
    """The values at some positions, -1 being the last: `values[at]`, without a copy of `at` in 64 bits.

    That copy is what indexing with millions of shorter numbers makes, and what it takes most of its time for.
    """
    found = np.empty(len(at), dtype=values.dtype)
    if len(at):
        for part in slices(len(at), IN_CACHE):
            values.take(at[part], out=found[part], mode="wrap")
    return found


def in_order(values: npt.NDArray[_Number], order: npt.NDArray[np.signedinteger] | slice) -> npt.NDArray[_Number]:
    """Values in an order as `in_groups` gives it."""
    return values[order] if isinstance(order, slice) else gather(values, order)


def scatter(values: npt.NDArray[_Number], at: npt.NDArray[np.signedinteger], into: npt.NDArray[_Number]) -> None:
    """Put values to some positions, part by part as in `gather`."""
    for part in slices(len(at), IN_CACHE):
        into[at[part]] = values[part]


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


def in_order_of_keys(keys: Iterable[tuple[int | None, ...]]) -> tuple[tuple[int | None, ...], ...]:
    """Keys ascending, None last."""
    return tuple(sorted(keys, key=lambda key: tuple((value is None, value or 0) for value in key)))


@dataclass(frozen=True)
class _Numbering:
    """The number of each combination of values, looked up column by column.

    Attributes:
        differing: columns in which not all combinations agree.
        values: what there is in each of these, ascending.
        combined: all combinations, ascending, each as one number of which the columns are digits.
        number: of each of these.
    """

    differing: tuple[int, ...]
    values: tuple[Int, ...]
    combined: Int
    number: Code

    @staticmethod
    def of(keys: Sequence[tuple[int | None, ...]]) -> _Numbering:
        """Combinations of two and more, numbered by their places; `UNKNOWN` stands for None."""
        columns = [np.asarray([UNKNOWN if one is None else one for one in of]) for of in zip(*keys, strict=True)]
        differing = tuple(at for at, column in enumerate(columns) if (column != column[0]).any())
        values = tuple(np.unique(columns[at]) for at in differing)
        combined = _digits([columns[at] for at in differing], values)
        order = np.argsort(combined)
        return _Numbering(differing, values, combined[order], order.astype(np.int32))

    def of_rows(self, columns: Sequence[Int]) -> Code:
        """The number of each row's combination, out of the columns that differ."""
        return gather(self.number, _place(self.combined, _digits(columns, self.values)))


def _digits(columns: Sequence[Int], values: Sequence[Int]) -> Int:
    combined = _place(values[0], columns[0]).astype(np.int64)
    for column, of_column in zip(columns[1:], values[1:], strict=True):
        combined *= len(of_column)
        combined += _place(of_column, column)
    return combined


def _place(ascending: Int, values: Int) -> npt.NDArray[np.signedinteger]:
    """Where each value stands among all that there are; by a table where they lie close together, as ids do."""
    least, span = int(ascending[0]), int(ascending[-1]) - int(ascending[0])
    if span >= LARGEST_TABLE:
        return np.searchsorted(ascending, values)
    table = np.zeros(span + 1, dtype=np.int32)
    table[ascending - least] = np.arange(len(ascending), dtype=np.int32)
    return table[values - least]


def bounds_of(sorted_code: npt.NDArray[np.signedinteger], count: int) -> Int:
    """Where each of `count` groups begins among rows in order of group, and where the last ends."""
    groups = np.arange(count + 1, dtype=sorted_code.dtype)  # of another type: a copy of all rows
    return np.searchsorted(sorted_code, groups).astype(np.int64)


def in_groups(code: Code, count: int) -> Code | slice:
    """The same as `by_group`, to index arrays with: all rows, without a copy of any, where there is one group."""
    return by_group(code, count).astype(np.int32, copy=False) if count > 1 else slice(None)


def by_group(code: Code, count: int) -> npt.NDArray[np.signedinteger]:
    """Rows in order of group, and within a group as they were."""
    if count <= 1:
        return np.arange(len(code), dtype=np.int32)
    if count <= FEW_GROUPS:  # looking through all rows for each is quicker than sorting them, and takes less memory
        each = code.astype(np.uint8)
        return np.concatenate([np.flatnonzero(each == one).astype(np.int32) for one in range(count)])
    small = code.astype(np.int16) if count < 1 << 15 else code  # numpy sorts 16 bits by counting
    return np.argsort(small, kind="stable")


def by_start(start: Int, ties: Callable[[Code], Sequence[npt.NDArray[Any]]]) -> Code:
    """Rows in order of start; of rows in question `ties` gives what else orders them, the most important last.

    A stable sort is quick where rows are nearly in order, as those of a recording are.
    """
    if (start[1:] > start[:-1]).all():
        return np.arange(len(start), dtype=np.int32)
    order = np.argsort(start, kind="stable").astype(np.int32)
    ascending = gather(start, order)
    tied = np.flatnonzero(ascending[1:] == ascending[:-1])
    if len(tied):
        at = np.unique(np.concatenate((tied, tied + 1)))
        rows = order[at]
        order[at] = rows[np.lexsort((*ties(rows), start[rows]))]
    return order


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
