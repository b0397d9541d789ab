"""Nanoseconds, bytes, shares and tokens as people write them. No input or output."""

from __future__ import annotations

_TIME_STEPS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
_BYTE_STEPS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_MOST_NS = 1 << 62
_PARSE_TIMES = {"": 1, "ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}


def format_ns(nanoseconds: float) -> str:
    """A duration in the largest unit that leaves at least one digit before the point: `44.3 ms`."""
    for step, unit in _TIME_STEPS:
        if abs(nanoseconds) >= step:
            return f"{_three_digits(nanoseconds / step)} {unit}"
    return "0 ns" if nanoseconds == 0 else f"{nanoseconds:.2g} ns"


def format_bytes(size_bytes: float) -> str:
    """A size in binary units: `1.50 GiB`."""
    for step, unit in _BYTE_STEPS:
        if abs(size_bytes) >= step:
            return f"{_three_digits(size_bytes / step)} {unit}"
    return f"{size_bytes:.0f} B"


def format_rate(bytes_per_s: float) -> str:
    """A data rate in decimal units, as vendors quote links and memories: `27.7 GB/s`."""
    for step, unit in ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if abs(bytes_per_s) >= step:
            return f"{_three_digits(bytes_per_s / step)} {unit}"
    return f"{bytes_per_s:.0f} B/s"


def format_share(share: float) -> str:
    """A share of one as a percentage: `0.0123` is `1.2 %`."""
    return f"{share * 100:.1f} %"


def format_speedup(factor: float) -> str:
    """A speed-up factor: `12x`, `4.1x`, and `1.07x` below two, where the second digit carries the meaning."""
    digits = 0 if factor >= 10 else 1 if factor >= 2 else 2
    return f"{factor:.{digits}f}x"


def format_count(count: float) -> str:
    """A count with thousands separators, one decimal where it is not whole."""
    return f"{count:,.0f}" if float(count).is_integer() else f"{count:,.1f}"


def format_counted(count: float, noun: str, plural: str = "") -> str:
    """A count with what is counted: `1 step`, `2 steps`; `plural` where it is not the noun with an s."""
    return f"{format_count(count)} {noun if count == 1 else plural or f'{noun}s'}"


def format_stated(amount: str, *, is_confirmed: bool) -> str:
    """A figure of the data sheet, marked where no public document of the vendor states it."""
    return amount if is_confirmed else f"{amount}, unconfirmed: its vendor publishes no data sheet"


def parse_ns(text: str) -> int:
    """Nanoseconds of a time such as `1.2s`, `340 ms`, `15us` or plain `1200000`.

    Raises:
        ValueError: the text is not a number with an optional time unit, or beyond what any clock of ns shows.
    """
    stripped = text.strip()
    digits = stripped.rstrip("nums ")
    unit = stripped[len(digits) :].strip()
    if unit not in _PARSE_TIMES:
        raise ValueError(f"'{text}' is not a time")
    nanoseconds = float(digits) * _PARSE_TIMES[unit]
    if not -_MOST_NS < nanoseconds < _MOST_NS:
        raise ValueError(f"'{text}' is no time that a recording has")
    return round(nanoseconds)


def _three_digits(value: float) -> str:
    magnitude = abs(value)
    if magnitude >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if magnitude >= 10 else f"{value:.2f}"
