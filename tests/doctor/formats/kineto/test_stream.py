from __future__ import annotations

import json
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.formats.kineto.events import TraceEvent
from doctor.formats.kineto.scan import value_end
from doctor.formats.kineto.stream import TraceStream

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.text('ab"\\{}[],:\n\u20ac', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('a"{},[]', max_size=4), inner, max_size=3),
    max_leaves=8,
)
EVENTS = st.fixed_dictionaries(
    {"ph": st.sampled_from("XMis"), "cat": st.sampled_from(("kernel", "}, {", "")), "name": VALUES},
    optional={"ts": st.integers(0, 2**60), "args": st.dictionaries(st.text('a}{",', max_size=4), VALUES, max_size=3)},
)
TRACES = st.lists(EVENTS, max_size=30)
BESIDE = st.dictionaries(st.sampled_from(("cupti_version", "username", 'odd "{[ key')), VALUES, max_size=3)


def in_chunks(text: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


def taken(stream: TraceStream) -> list[TraceEvent]:
    return [event for events in stream.event_lists() for event in events]


@settings(max_examples=300, deadline=None)
@given(TRACES, BESIDE, BESIDE, st.integers(1, 300), st.integers(1, 300), st.sampled_from((None, 1)))
def test_any_trace_gives_its_events_whatever_the_size_of_its_pieces(
    events: list[dict[str, object]],
    before: dict[str, object],
    after: dict[str, object],
    chunk_bytes: int,
    slice_bytes: int,
    indent: int | None,
) -> None:
    text = json.dumps(
        {**before, "traceEvents": events, **{f"{key}_": value for key, value in after.items()}}, indent=indent
    )
    stream = TraceStream(in_chunks(text.encode(), chunk_bytes), slice_bytes)
    found = taken(stream)
    assert [(event.ph, event.cat, event.name) for event in found] == [
        (event["ph"], event["cat"], event["name"]) for event in events
    ]
    assert stream.header == {key: value for key, value in before.items() if key == "cupti_version"}
    assert (stream.is_cut, stream.skipped_count, stream.has_events) == (False, 0, True)


@settings(max_examples=300, deadline=None)
@given(TRACES, st.floats(0, 1, exclude_max=True), st.integers(1, 200), st.integers(1, 200))
def test_a_trace_that_is_cut_anywhere_gives_its_whole_events_and_knows_it(
    events: list[dict[str, object]], kept_share: float, chunk_bytes: int, slice_bytes: int
) -> None:
    text = json.dumps({"traceEvents": events}).encode()
    kept = text[: int(len(text) * kept_share)]
    stream = TraceStream(in_chunks(kept, chunk_bytes), slice_bytes)
    found = taken(stream)
    whole = 0
    while whole < len(events) and kept.startswith(text[: len(json.dumps({"traceEvents": events[: whole + 1]})) - 2]):
        whole += 1
    assert [event.name for event in found] == [event["name"] for event in events[:whole]]
    assert stream.is_cut or not kept


@settings(max_examples=200, deadline=None)
@given(VALUES, st.sampled_from((b",", b"]", b"} ", b" \n")))
def test_the_end_of_a_value_is_found_and_never_before_its_last_byte(value: object, behind: bytes) -> None:
    text = json.dumps(value).encode()
    assert value_end(text + behind, 0) == len(text)
    assert all(value_end(text[:cut], 0) is None for cut in range(len(text)))


def test_values_that_name_users_and_hosts_are_not_kept() -> None:
    text = b'{"username": "alice", "hostname": "box", "rank": 1, "traceEvents": []}'
    stream = TraceStream(iter([text]))
    assert taken(stream) == []
    assert stream.header == {}
