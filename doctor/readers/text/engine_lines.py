"""What a kind of line in an engine's log is: a literal part to know it by, a pattern, and the rows it gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from doctor.readers.text.stamp import Stamp

GIB = 2**30
MOST_WHOLE = 2**62
_UNIT_BYTES = {
    "b": 1, "bytes": 1, "kb": 2**10, "kib": 2**10, "mb": 2**20, "mib": 2**20, "gb": GIB, "gib": GIB, "tib": 2**40,
}  # fmt: skip


class Row(NamedTuple):
    """A row of a case table."""

    table: str
    values: dict[str, Any]


class Kind(NamedTuple):
    """One kind of line.

    Attributes:
        clue: literal part of every such line.
        rows: what a line with the clue gives; nothing where it is another kind after all.
        is_last: a line of this kind is of no other.
    """

    clue: str
    rows: Callable[[str, Stamp], Iterable[Row]]
    is_last: bool = False


def figure(engine: str, at: Stamp, name: str, **amounts: float | None) -> Row:
    """A row of `engine_figure`; amounts are `size_bytes`, `count`, `share` or `ns`."""
    columns = {"size_bytes": "amount_bytes", "count": "amount_count", "share": "amount_share", "ns": "amount_ns"}
    values: dict[str, Any] = {
        "engine": engine,
        "replica_id": at.replica_id,
        "rank": at.rank,
        "line_id": at.line_id,
        "time_ns": at.time_ns,
        "figure": name,
    }
    for amount, value in amounts.items():
        column = columns[amount]
        values[column] = whole(value) if column in {"amount_bytes", "amount_ns"} else value
    return Row("engine_figure", values)


def event(
    engine: str | None,
    at: Stamp,
    name: str,
    detail: str | None = None,
    count: float | None = None,
    size: int | None = None,
) -> Row:
    """A row of `engine_event`."""
    return Row(
        "engine_event",
        {
            "engine": engine,
            "replica_id": at.replica_id,
            "line_id": at.line_id,
            "time_ns": at.time_ns,
            "event": name,
            "detail": detail,
            "amount_count": count,
            "amount_bytes": whole(size),
        },
    )


def sample(engine: str, at: Stamp, phase: str, **values: float | None) -> Row:
    """A row of `engine_sample`; values by column."""
    return Row(
        "engine_sample",
        {
            "engine": engine,
            "replica_id": at.replica_id,
            "line_id": at.line_id,
            "time_ns": at.time_ns,
            "phase": phase,
            **{name: whole(value) if name.endswith("_ns") else value for name, value in values.items()},
        },
    )


def setting(engine: str, at: Stamp, word: str, spelled: str, told: str, said_by: str = "log") -> Row:
    """A row of `engine_setting`."""
    return Row(
        "engine_setting",
        {
            "engine": engine,
            "setting": word,
            "spelled": spelled,
            "told": told,
            "said_by": said_by,
            "line_id": at.line_id,
        },
    )


def said(engine: str | None, clue: str, name: str, detail: re.Pattern[str] | None = None) -> Kind:
    """A line that is an event by its mere presence; `detail` has one group."""

    def rows(text: str, at: Stamp) -> Iterable[Row]:
        found = None if detail is None else detail.search(text)
        return (event(engine, at, name, None if found is None else found[1].lower()[:80]),)

    return Kind(clue, rows)


def whole(value: float | None) -> int | None:
    """A whole number that a column can hold; None for what nobody measured."""
    return None if value is None or abs(value) >= MOST_WHOLE else int(value)


def number(text: str | None) -> float | None:
    """`1,234.5` as a number; None for what is none (`nan`, `N/A`)."""
    if text is None:
        return None
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if abs(value) < 1e18 else None  # false for nan as well


def size_bytes(amount: str | None, unit: str) -> int | None:
    """`14.99` and `GiB` as bytes; engines write GB and mean GiB."""
    value = number(amount)
    scale = _UNIT_BYTES.get(unit.lower())
    return None if value is None or scale is None else round(value * scale)
