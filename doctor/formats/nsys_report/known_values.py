"""A column of a few known rows, from which columns of many rows are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from doctor.formats.nsys_report.levels import Bools, Ints


@dataclass(frozen=True)
class Numbers:
    """Whole numbers that rows have in place of the known ones, none of which stands for NULL.

    Attributes:
        values: the numbers.
        where: which rows have one; None where all do.
    """

    values: Ints
    where: Bools | None

    def of(self, rows: slice) -> Numbers:
        """Those of some rows that follow each other, from the first or to the last."""
        if self.where is None:
            return Numbers(self.values[rows], None)
        before = np.count_nonzero(self.where[: rows.start])
        where = self.where[rows]
        return Numbers(self.values[before : before + np.count_nonzero(where)], where)


def together(parts: Sequence[Numbers | None], sizes: Sequence[int]) -> Numbers | None:
    """The numbers of parts of so many rows as those of one; None where no part has any."""
    there = [part for part in parts if part is not None]
    if not there:
        return None
    values = np.concatenate([part.values for part in there])
    if len(there) == len(parts) and all(part.where is None for part in there):
        return Numbers(values, None)
    where = [
        np.full(size, part is not None) if part is None or part.where is None else part.where
        for part, size in zip(parts, sizes, strict=True)
    ]
    return Numbers(values, np.concatenate(where))


class KnownValues:
    """A column of whole numbers (with NULL), of texts under a dictionary, or of anything else that Arrow holds.

    Whole numbers are kept and looked up as numpy arrays: their memory is used again for the next batch, while Arrow
    gives its own back to the system each time, which costs more than the looking up.
    """

    def __init__(self, column: pa.Array) -> None:
        self._column = column
        self._dictionary: pa.Array | None = None
        if pa.types.is_dictionary(column.type):
            self._dictionary, column = column.dictionary, column.indices.cast(pa.int64())
        self._is_whole = pa.types.is_int64(column.type)
        if self._is_whole:
            self._is_there: Bools = column.is_valid().to_numpy(zero_copy_only=False)
            self._values: Ints = np.zeros(len(column), dtype=np.int64)
            self._values[self._is_there] = column.drop_null().to_numpy()

    def array(self, row: Ints, own: Numbers | None = None) -> pa.Array:
        """The values of some rows, but for those that have a number of their own."""
        if own is not None and own.where is None:
            return pa.array(own.values)
        if self._dictionary is not None:
            return pa.DictionaryArray.from_arrays(self._numbers(row, None).cast(pa.int32()), self._dictionary)
        if not self._is_whole:
            return self._column.take(pa.array(row))
        return self._numbers(row, own)

    def _numbers(self, row: Ints, own: Numbers | None) -> pa.Array:
        if own is None and not self._is_there.any():
            return pa.nulls(row.size, pa.int64())
        found = self._values.take(row)
        if own is not None:
            found[own.where] = own.values
        if self._is_there.all():
            return pa.array(found)
        is_there = self._is_there.take(row)
        if own is not None:
            is_there[own.where] = True
        return pa.array(found) if is_there.all() else pa.array(found, mask=~is_there)
