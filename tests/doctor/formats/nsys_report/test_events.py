"""Where events begin and end: found all at once, against one after the other."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from doctor.formats.nsys_report import wire
from doctor.formats.nsys_report.events import MAX_EVENTS_OF_A_CHUNK, event_spans
from doctor.formats.nsys_report.wire import WireError
from tests.fuzz.native_reports import MUTATIONS
from tests.support.native_reports import HEALTHY, SICK, chunk, events_of, report, take_apart

bodies = st.one_of(
    st.binary(max_size=40),
    st.binary(min_size=1, max_size=300).map(lambda tail: b"\x08\x30" + tail),
    st.sampled_from([b"\x08" + b"\x0a\x02\x08" * 9, b"\x08" + bytes(20_000), b"\x0a\x05\x08", b"\x08\x01"]),
)


def one_by_one(raw: bytes) -> tuple[list[tuple[int, int]], list[tuple[int, int]], bool]:
    """Events, generic events, and whether the chunk could be walked to its end."""
    events: list[tuple[int, int]] = []
    generic: list[tuple[int, int]] = []
    position = 0
    try:
        while position < len(raw):
            size, position = wire.read_varint(raw, position, len(raw))
            stop = position + size
            if stop > len(raw):
                return events, generic, False
            for _ in range(MAX_EVENTS_OF_A_CHUNK):
                if position + 2 > stop:
                    break
                length, body = wire.read_varint(raw, position + 1, stop)
                if length > stop - body or raw[position] not in (0x0A, 0x12):
                    return events, generic, False
                (events if raw[position] == 0x0A else generic).append((body, body + length))
                position = body + length
            if position != stop:
                return events, generic, False
    except WireError:
        return events, generic, False
    return events, generic, True


def assert_found(raw: bytes) -> None:
    spans = event_spans(raw)
    found = list(zip(spans.start.tolist(), spans.end.tolist(), strict=True)), spans.generic, spans.is_whole
    assert found == one_by_one(raw)


@given(st.lists(bodies, max_size=12), st.lists(bodies, max_size=2), st.lists(bodies, max_size=4))
@example([b"\x08", b""], [], [bytes(6)])  # an empty event at the end of its message
@settings(deadline=None)
def test_events_of_any_content_are_found(events: list[bytes], generic: list[bytes], more: list[bytes]) -> None:
    assert_found(chunk(events, generic) + chunk(more, generic))


@given(st.binary(max_size=60))
@settings(deadline=None)
def test_arbitrary_bytes_are_walked_as_far_as_they_are_events(raw: bytes) -> None:
    assert_found(raw)
    assert_found(wire.write_sized(raw))


@pytest.mark.parametrize("name", [SICK, HEALTHY])
def test_damaged_blocks_of_real_events_are_walked_as_far_as_they_are_whole(name: str) -> None:
    block = next(iter(take_apart(report(name)).stream.chunks))
    events = events_of(block)
    assert_found(block)
    for seed in range(60):
        dice = random.Random(seed)
        first = dice.randrange(len(events) - 60)
        assert_found(dice.choice(MUTATIONS)(chunk(events[first : first + 60]), dice))


@pytest.mark.parametrize(
    ("event", "count"),
    [(b"\x0a\x02\x08\x01", 0), (b"\x0a\x02\x08\x01", 3), (b"\x0a\x00", 3)],
    ids=["as many as may be", "more of a type", "more empty ones"],
)
def test_a_block_gives_no_more_events_than_any_recorder_writes(event: bytes, count: int) -> None:
    spans = event_spans(wire.write_sized(event * (MAX_EVENTS_OF_A_CHUNK + count)))
    assert spans.start.size + len(spans.generic) == MAX_EVENTS_OF_A_CHUNK
    assert spans.is_whole is (count == 0)
