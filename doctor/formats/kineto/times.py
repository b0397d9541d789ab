"""Decimal microseconds as text to whole nanoseconds, without a detour through floating point."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation, Overflow

_INT64 = 1 << 63


def nanoseconds(microseconds: bytes) -> int | None:
    """Nanoseconds of a JSON number (or text that holds one); None for anything else or beyond 64 bits.

    Fractions below a nanosecond are rounded.
    """
    whole, _, fraction = microseconds.partition(b".")
    try:
        if len(fraction) <= 3:
            return _in_range(int(whole + fraction.ljust(3, b"0")))
    except ValueError:
        pass
    try:
        exact = Decimal(microseconds.decode().strip('"'))
        return _in_range(round(exact * 1000)) if exact.is_finite() and exact.adjusted() < 20 else None
    except (InvalidOperation, Overflow, UnicodeDecodeError):
        return None


def ends(starts: Iterable[int | None], durations: Iterable[bytes]) -> list[int | None]:
    """End of each interval; None where start or duration is unknown."""
    found: list[int | None] = []
    for start, text in zip(starts, durations, strict=True):
        duration = nanoseconds(text)
        found.append(None if start is None or duration is None else _in_range(start + duration))
    return found


def _in_range(value: int) -> int | None:
    return value if -_INT64 <= value < _INT64 else None
