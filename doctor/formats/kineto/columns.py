"""Columns of whole numbers and texts out of loosely typed values; what does not fit is NULL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_INT64 = 1 << 63
_NUMBER_AT_END = re.compile(r"-?\d+$")
NO_STREAM = 0xFFFFFFFF
_ZERO, _NO_STREAM, _UNKNOWN = (pa.scalar(value, pa.int64()) for value in (0, NO_STREAM, None))


def whole_numbers(values: Sequence[Any]) -> pa.Array:
    """An int64 column; numbers as text count as numbers."""
    try:
        return pa.array(values, pa.int64())
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([_whole(value) for value in values], pa.int64())


def texts(values: Sequence[Any]) -> pa.DictionaryArray:
    """A dictionary-encoded string column."""
    try:
        distinct = dict.fromkeys(values)
    except TypeError:  # a list or an object where a text belongs
        values = [value if isinstance(value, str) else None for value in values]
        distinct = dict.fromkeys(values)
    places = {value: at for at, value in enumerate(distinct)}
    codes = list(map(places.__getitem__, values))
    words = [value if isinstance(value, str) else None for value in places]
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(words, pa.string()))


def trailing_number(value: Any) -> int | None:
    """The number that a row's name ends in: traces of 2021 call stream 7 `stream 7`."""
    if isinstance(value, str):
        found = _NUMBER_AT_END.search(value.strip())
        return _whole(found[0]) if found else None
    return _whole(value)


def ids(values: Sequence[Any]) -> pa.Array:
    """An int64 column of ids that may stand at the end of a text; negative ones and `NO_STREAM` are NULL."""
    try:
        numbers = pa.array(values, pa.int64())
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        numbers = pa.array([trailing_number(value) for value in values], pa.int64())
    is_id = pc.and_(pc.greater_equal(numbers, _ZERO), pc.not_equal(numbers, _NO_STREAM))
    return pc.if_else(is_id, numbers, _UNKNOWN)


def not_negative(values: Sequence[Any]) -> pa.Array:
    """An int64 column; negative numbers are NULL."""
    numbers = whole_numbers(values)
    return pc.if_else(pc.greater_equal(numbers, _ZERO), numbers, _UNKNOWN)


def three(values: Sequence[Any]) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Three int64 columns out of lists of three; NULL where a value is none."""
    try:
        rows = pa.array(values, pa.list_(pa.int64(), 3))
        x, y, z = (pc.list_element(rows, at) for at in range(3))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        told = [value if isinstance(value, list) and len(value) == 3 else (None, None, None) for value in values]
        x, y, z = (whole_numbers([value[at] for value in told]) for at in range(3))
    return x, y, z


def _whole(value: Any) -> int | None:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if -_INT64 <= number < _INT64 else None
