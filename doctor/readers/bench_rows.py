"""One run of a benchmark as a row of the case, whatever wrote its columns down."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from doctor.readers.bench_columns import column_of, word_column
from doctor.readers.bench_labels import fields_of, is_baseline, is_label
from doctor.readers.text.engine_lines import whole

FIGURES = frozenset(
    {"output_token_hz", "total_token_hz", "request_hz", "latency_ns", "ttft_p50_ns", "tpot_p50_ns", "itl_p50_ns"}
)
"""Columns of which a run has at least one."""

_DRAFTED = frozenset({"k", "depth", "draft len", "draft length", "num draft", "drafts"})
"""Short names for the tokens drafted a step, beside a length of acceptance only."""
_AT_MOST_ONE = frozenset({"device_busy_share", "hit_share", "late_share"})
_MOST_WORD = 60
_NS = {
    "ns": 1.0,
    "us": 1e3,
    "ms": 1e6,
    "s": 1e9,
    "sec": 1e9,
    "secs": 1e9,
    "seconds": 1e9,
    "min": 6e10,
    "mins": 6e10,
    "minutes": 6e10,
}
_AMOUNT = re.compile(
    r"\s*(-?[\d,]{1,20}(?:\.\d{1,12})?(?:e[+\-]?\d{1,3})?)\s*(%|ns|us|ms|seconds|secs|sec|minutes|mins|min|s|x|tok/s|tokens/s|req/s|reqs/s)?\s*(?:\([^()]{0,40}\))?\s*\Z"
)
_DECIMAL_COMMA = re.compile(r"-?\d{1,12},(?:\d{1,2}|\d{4,9})|-?0,\d{3}")
_CLOCK = re.compile(r"\s*(?:(\d{1,3})\s?h\s?)?(\d{1,4})\s?m(?:in)?\s?(?:(\d{1,2}(?:\.\d{1,6})?)\s?s?(?:ec)?)?\s*\Z")
"""`5m29s`, `23 min 16 s`, `1h 2m`."""


def row_of(fields: Iterable[tuple[str, Any]], tool: str) -> dict[str, Any] | None:
    """A row of `bench_row`; None where there is no figure of speed among the fields."""
    row: dict[str, Any] = {}
    words: dict[str, str] = {}
    places: dict[str, int] = {}
    of_k: list[Any] = []
    for name, value in _unfolded(fields):
        if name.strip().lower() in _DRAFTED:
            of_k.append(value)
        known, amount = column_of(name), _amount(value)
        if known is not None and amount is not None:
            column, scale, place = known
            if place <= places.get(column, 99):  # a median is better than a mean
                row[column], places[column] = _scaled(column, scale, *amount), place
        elif known is not None and isinstance(value, str) and (told := _label_of(value)):
            words |= told  # a column called `load` that names ways to load a model
        elif (word := word_column(name)) is not None and value is not None and len(str(value)) <= _MOST_WORD:
            words[word] = str(value).lower()
    if "accept_length_count" in row and "draft_token_count" not in row:
        drafted = next((amount[0] for value in of_k if (amount := _amount(value)) is not None), None)
        row |= {} if drafted is None else {"draft_token_count": drafted}
    if not FIGURES & row.keys():
        return None
    condition = json.dumps(dict(sorted(words.items()))) if words else None
    return {"tool": tool, "condition": condition, **_completed(row)}


_OF_A_PROFILE = re.compile(r"(?:time ?\(%\)|self cpu|stddev \()", re.IGNORECASE)
"""Headings of a profile's sums, which are no benchmark's."""


def is_header(names: Iterable[str]) -> bool:
    """Tell whether names of columns are those of a benchmark: a figure of speed, and what it belongs to."""
    plain = [name.strip().strip('"') for name in names]
    if any(_OF_A_PROFILE.match(name) for name in plain):
        return False
    known = [column[0] for name in plain if (column := column_of(name)) is not None]
    varied = [name for name in plain if word_column(name) is not None or (name and is_label(name))]
    return bool(FIGURES & set(known)) and len(known) + len(varied) >= 2


def _unfolded(fields: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The fields, with a label in words in place of what it stands for."""
    for name, value in fields:
        is_words = isinstance(value, str) and (
            is_label(name) or (column_of(name) is not None and _amount(value) is None)
        )
        told = list(fields_of(value)) if is_words else []
        if told:
            yield from told
        elif not (isinstance(value, str) and is_label(name) and name and is_baseline(value)):
            yield name, value


def _completed(row: dict[str, Any]) -> dict[str, Any]:
    """Tokens a request where only the sums are given."""
    done = row.get("completed_count")
    for total, each in (("total_prompt", "prompt_token_count"), ("total_output", "output_token_count")):
        amount = row.pop(total, None)
        if amount is not None and done and each not in row:
            row[each] = amount / done
    goodput = row.pop("goodput_hz", None)
    if goodput is not None and row.get("request_hz") and "late_share" not in row:
        row["late_share"] = max(0.0, 1 - goodput / row["request_hz"])
    return row


def _label_of(value: str) -> dict[str, str]:
    """What a label that stands where a number should be says in words."""
    return {name: told for name, told in fields_of(value) if column_of(name) is None}


def number_of(value: Any) -> float | None:
    """The number in a value; None where it is none."""
    amount = _amount(value)
    return None if amount is None else amount[0]


def _pointed(number: str) -> str:
    """Without commas between thousands; a comma that parts no three digits parts decimals: `95,7`."""
    is_decimal = _DECIMAL_COMMA.fullmatch(number) is not None
    return number.replace(",", ".") if is_decimal else number.replace(",", "")


def _scaled(column: str, scale: float, number: float, unit: str) -> float | int | None:
    """The number in the column's unit; a unit beside the number counts more than the column's name."""
    if column in _AT_MOST_ONE and number * scale > 1:
        return number / 100  # a percentage that does not say so
    if not column.endswith("_ns"):
        return number * scale
    return whole(number * _NS.get(unit, scale))


def _amount(value: Any) -> tuple[float, str] | None:
    """A number and its unit: of JSON, or of text such as `1,234.5`, `66.5%`, `2.55 s`."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return (float(value), "") if abs(value) < 1e18 else None
    told = str(value)[:80].lower()
    if (clock := _CLOCK.match(told)) is not None:
        return float(clock[1] or 0) * 3600 + float(clock[2]) * 60 + float(clock[3] or 0), "s"
    found = _AMOUNT.match(told)
    if found is None:
        return None
    try:
        number = float(_pointed(found[1]))
    except ValueError:
        return None
    return (number / 100, "") if found[2] == "%" else (number, found[2] or "")
