"""Decimal microseconds as text to whole nanoseconds, without a detour through floating point."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation, Overflow

import pyarrow as pa
import pyarrow.compute as pc

_INT64 = 1 << 63
_LONGEST_NS = pa.scalar(10**16, pa.int64())
"""No event lasts a hundred days; such a number is damage, and sums of it leave 64 bits."""
_ZERO, _UNKNOWN = pa.scalar(0, pa.int64()), pa.scalar(None, pa.int64())
_MICROSECONDS = pa.decimal128(22, 3)
_THOUSAND = pa.scalar(1000, pa.decimal128(4, 0))


def nanosecond_column(microseconds: Sequence[bytes]) -> pa.Array:
    """An int64 column of nanoseconds; what is no number, or none of 64 bits, is NULL.

    Args:
        microseconds: JSON numbers, or texts that hold one; fractions below a nanosecond are rounded.
    """
    try:
        exact = pa.array(microseconds, pa.binary()).cast(pa.string()).cast(_MICROSECONDS)
        return pc.multiply(exact, _THOUSAND).cast(pa.int64())
    except pa.ArrowInvalid:  # more digits, quotes, null, a number out of range: one by one
        return pa.array([nanoseconds(text) for text in microseconds], pa.int64())


def end_column(starts: pa.Array, durations: pa.Array) -> pa.Array:
    """End of each interval; NULL where start or duration is unknown, negative or absurd, or the sum leaves 64 bits."""
    is_possible = pc.and_kleene(pc.greater_equal(durations, _ZERO), pc.less_equal(durations, _LONGEST_NS))
    durations = pc.if_else(is_possible, durations, _UNKNOWN)
    try:
        return pc.add_checked(starts, durations)
    except pa.ArrowInvalid:
        pairs = zip(starts.to_pylist(), durations.to_pylist(), strict=True)
        sums = [None if start is None or duration is None else start + duration for start, duration in pairs]
        return pa.array([None if total is None else _in_range(total) for total in sums], pa.int64())


def nanoseconds(microseconds: bytes) -> int | None:
    """Nanoseconds of one JSON number, or of a text that holds one; None for anything else."""
    try:
        exact = Decimal(microseconds.decode().strip('"'))
    except (InvalidOperation, Overflow, UnicodeDecodeError):
        return None
    return _in_range(round(exact * 1000)) if exact.is_finite() and exact.adjusted() < 20 else None


def _in_range(value: int) -> int | None:
    return value if -_INT64 <= value < _INT64 else None
