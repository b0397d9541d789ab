from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.formats.nsys_report import wire
from doctor.formats.nsys_report.wire import Field, Message, WireError

numbers = st.integers(1, 2000)
fields = st.one_of(
    st.builds(lambda number, value: Field(number, wire.VARINT, value), numbers, st.integers(0, 2**64 - 1)),
    st.builds(lambda number, value: Field(number, wire.BYTES, value), numbers, st.binary(max_size=40)),
    st.builds(lambda number, value: Field(number, wire.FIXED64, value), numbers, st.integers(0, 2**64 - 1)),
    st.builds(lambda number, value: Field(number, wire.FIXED32, value), numbers, st.integers(0, 2**32 - 1)),
)


@given(st.lists(fields, max_size=8))
@settings(deadline=None)
def test_fields_come_back_as_they_were_written(written: list[Field]) -> None:
    assert list(wire.read_fields(wire.write_fields(written))) == written


@given(st.integers(-(2**63), 2**63 - 1))
@settings(deadline=None)
def test_a_negative_number_survives_its_unsigned_encoding(value: int) -> None:
    raw = wire.write_varint(value)
    assert wire.signed(wire.read_varint(raw, 0, len(raw))[0]) == value


@given(st.binary(max_size=60))
@settings(deadline=None)
def test_any_bytes_are_fields_or_an_error(raw: bytes) -> None:
    try:
        spans = list(wire.read_spans(raw))
    except WireError:
        return
    assert all(0 <= span.start <= span.end <= len(raw) for span in spans)
    assert not spans or spans[-1].end == len(raw)


@pytest.mark.parametrize(
    "raw",
    [b"\x0a\xff\xff\xff\xff\x7f", b"\x08", b"\x80" * 11, b"\x0b\x00", b"\x09\x01\x02", b"\x00\x01"],
    ids=["length over the end", "value missing", "endless number", "wire type 3", "cut fixed64", "field 0"],
)
def test_a_broken_message_is_an_error(raw: bytes) -> None:
    with pytest.raises(WireError):
        list(wire.read_spans(raw))


def test_the_last_value_of_a_number_counts() -> None:
    message = Message(wire.write_fields([Field(3, wire.VARINT, 1), Field(3, wire.VARINT, 2)]))
    assert message.integer(3) == 2
    assert message.integers(3) == [1, 2]
    assert message.integer(4) is None
    assert message.text(3) is None
