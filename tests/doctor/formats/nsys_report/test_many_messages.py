"""The vectorised readers against the plain one, message by message."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.formats.nsys_report import wire
from doctor.formats.nsys_report.columns import PayloadColumns
from doctor.formats.nsys_report.event_kinds import TEXT, Column
from doctor.formats.nsys_report.levels import scan_level, varints
from doctor.formats.nsys_report.payloads import side_by_side
from doctor.formats.nsys_report.shapes import ShapedRows, shaped_rows
from doctor.formats.nsys_report.wire import Message, WireError
from tests.support.native_reports import message

COLUMNS = (Column("a", (1,)), Column("b", (2,)), Column("c", (16, 1)), Column("d", (16, 17)), Column("e", (300,)))
values = st.one_of(st.integers(0, 300), st.integers(-(2**63), 2**63 - 1))
inner = st.dictionaries(st.sampled_from([1, 5, 17]), values, max_size=3)
plain = st.dictionaries(st.sampled_from([1, 2, 9, 300]), values, max_size=4)
whole_numbers = st.builds(
    lambda outer, nested: {**outer, **({16: nested} if nested is not None else {})}, plain, st.none() | inner
)
anything = st.binary(max_size=24)


def expected(raw: bytes, column: Column) -> int | None:
    """What the plain reader says; None also where the message is none."""
    outer: Message | None = Message(raw)
    for number in column.path[:-1]:
        outer = outer.message(number) if outer is not None else None
    return None if outer is None else outer.integer(column.path[-1])


@given(st.lists(whole_numbers, min_size=1, max_size=12))
@settings(deadline=None)
def test_columns_equal_the_plain_reader(dicts: list[dict[int, object]]) -> None:
    messages = [message(one) for one in dicts]  # type: ignore[arg-type] # nested dicts of numbers
    payloads = side_by_side(messages)
    decoded = PayloadColumns(payloads, COLUMNS)
    assert not decoded.is_bad.any()
    for column in COLUMNS:
        assert decoded.array(column, np.arange(len(messages))).to_pylist() == [
            expected(raw, column) for raw in messages
        ]


@given(st.lists(whole_numbers, min_size=1, max_size=12))
@settings(deadline=None)
def test_fast_and_general_path_agree(dicts: list[dict[int, object]]) -> None:
    messages = [message(one) for one in dicts]  # type: ignore[arg-type] # nested dicts of numbers
    payloads = side_by_side(messages)
    fast = PayloadColumns(payloads, COLUMNS)
    general = PayloadColumns(payloads, (*COLUMNS, Column("text", (99,), TEXT)))
    for column in COLUMNS:
        rows = np.arange(len(messages))
        assert fast.array(column, rows).to_pylist() == general.array(column, rows).to_pylist()


@given(st.lists(whole_numbers, min_size=1, max_size=12))
@settings(deadline=None)
def test_every_row_is_shaped_once_or_handed_back(dicts: list[dict[int, object]]) -> None:
    messages = [message(one) for one in dicts]  # type: ignore[arg-type] # nested dicts of numbers
    payloads = side_by_side(messages)
    parts = list(shaped_rows(payloads, frozenset({(16,)})))
    rows = np.concatenate([part.rows if isinstance(part, ShapedRows) else part for part in parts])
    assert sorted(rows.tolist()) == list(range(len(messages)))


@given(st.lists(anything, min_size=1, max_size=12))
@settings(deadline=None)
def test_arbitrary_bytes_are_marked_bad_exactly_where_the_plain_reader_fails(messages: list[bytes]) -> None:
    payloads = side_by_side(messages)
    level = scan_level(payloads.buffer, payloads.start, payloads.end)
    for row, raw in enumerate(messages):
        try:
            numbers = {field.number for field in wire.read_fields(raw)}
        except WireError:
            assert level.bad[row]
            continue
        assert not level.bad[row]
        found = {number for number, hits in level.fields.items() if any(row in hit.row for hit in hits)}
        assert found == numbers


@given(st.lists(anything, min_size=1, max_size=12))
@settings(deadline=None)
def test_arbitrary_bytes_never_give_a_value_that_the_plain_reader_does_not(messages: list[bytes]) -> None:
    payloads = side_by_side(messages)
    decoded = PayloadColumns(payloads, COLUMNS)
    for row, raw in enumerate(messages):
        if decoded.is_bad[row]:
            continue
        for column in COLUMNS:
            value = decoded.array(column, np.array([row])).to_pylist()[0]
            if value is not None:
                assert value == expected(raw, column)


@given(st.lists(values, min_size=1, max_size=20))
@settings(deadline=None)
def test_numbers_of_any_length_are_read(numbers: list[int]) -> None:
    encoded = [wire.write_varint(value) for value in numbers]
    payloads = side_by_side(encoded)
    assert varints(payloads.buffer, payloads.start, payloads.end - 1).tolist() == numbers
