"""A column of a few known rows, from which columns of many rows are made."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from doctor.formats.nsys_report.levels import Bools, Ints


class KnownValues:
    """A column of whole numbers (with NULL), or of anything else that Arrow holds.

    Whole numbers are kept and looked up as numpy arrays: their memory is used again for the next batch, while Arrow
    gives its own back to the system each time, which costs more than the looking up.
    """

    def __init__(self, column: pa.Array) -> None:
        self._column = column
        self._is_whole = pa.types.is_int64(column.type)
        if self._is_whole:
            self._is_there: Bools = column.is_valid().to_numpy(zero_copy_only=False)
            self._values: Ints = np.zeros(len(column), dtype=np.int64)
            self._values[self._is_there] = column.drop_null().to_numpy()

    def with_rows(self, columns: list[pa.Array]) -> KnownValues:
        """The column with more rows behind its own."""
        return KnownValues(pa.concat_arrays([self._column, *columns]))

    def array(self, row: Ints) -> pa.Array:
        """The values of some rows."""
        if not self._is_whole:
            return self._column.take(pa.array(row))
        if self._column.null_count == len(self._column):
            return pa.nulls(row.size, pa.int64())
        return _array(self._values.take(row), self._is_there, row)

    def array_with(self, row: Ints, chosen: Bools, values: Ints) -> pa.Array:
        """The values of some rows, and where `chosen` other ones, none of which stands for NULL."""
        found = self._values.take(row)
        found[chosen] = values
        return _array(found, self._is_there, row)


def _array(values: Ints, is_there: Bools, row: Ints) -> pa.Array:
    if is_there.all():
        return pa.array(values)
    is_there = is_there.take(row)
    return pa.array(values) if is_there.all() else pa.array(values, mask=~is_there)
