"""Events that repeat themselves: their rows are those that reading each field by field gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.formats.nsys_report.event_kinds import EVENT_TABLES
from doctor.formats.nsys_report.repeated_events import RepeatedEvents
from doctor.formats.nsys_report.table_rows import EventCounts, RowDecoder
from doctor.formats.nsys_report.templates import BYTES_BEHIND, LEAST_REPEATS, Events, Templates, fixed_bits
from tests.fuzz.native_reports import MUTATIONS
from tests.support.native_reports import (
    GLOBAL_PID,
    HEALTHY,
    SICK,
    TID,
    assert_templates_change_nothing,
    call,
    chunk,
    event,
    events_of,
    kernel,
    nvtx_range,
    report,
    tables_of,
    take_apart,
)
from tests.support.samples import SAMPLES
from tests.support.traces import shared_trace

KERNELS, CALLS, RANGES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"


def in_blocks(events: list[bytes], of: int = 8) -> list[bytes]:
    """Blocks of some events each."""
    return [chunk(events[index : index + of]) for index in range(0, len(events), of)]


def rows(chunks: list[bytes], table: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = tables_of(chunks, batch_bytes=1)[0][table].to_pylist()
    return found


@pytest.mark.parametrize(
    "path",
    [*sorted(SAMPLES.rglob("*.nsys-rep"))[:6], report(SICK), report(HEALTHY)],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_a_real_report_reads_the_same(path: Path) -> None:
    assert_templates_change_nothing(list(take_apart(path).stream.chunks))


@pytest.mark.parametrize("name", ["public/jsun_result", "public/yoon_poolformer_d", "h200x2/scaling-sick"])
def test_a_report_of_others_reads_the_same(name: str) -> None:
    assert_templates_change_nothing(list(take_apart(shared_trace(f"{name}.nsys-rep")).stream.chunks))


def test_damage_in_blocks_that_are_known_by_then_changes_nothing() -> None:
    block = chunk(events_of(list(take_apart(report(SICK)).stream.chunks)[1])[2000:2150])
    for seed in range(25):
        dice = random.Random(seed)
        assert_templates_change_nothing(
            [block, block, dice.choice(MUTATIONS)(block, dice), block, dice.choice(MUTATIONS)(block, dice)]
        )


numbers = st.one_of(st.integers(0, 300), st.integers(-(2**63), 2**63 - 1))
kernels = st.builds(
    lambda start, name, grid, node: event(
        79, 107, {1: start, 2: start, 3: 7, 8: GLOBAL_PID, 101: {1: name, 10: grid, **({27: node} if node else {})}}
    ),
    numbers,
    st.integers(0, 3),
    numbers,
    st.none() | numbers,
)
ranges = st.builds(nvtx_range, st.integers(0, 2**40), st.sampled_from([b"step", b"layer", b"", b"\xff"]))
calls = st.builds(call, st.integers(0, 2**40), st.integers(0, 3), st.sampled_from([0, 1, 27, 222]))
broken = st.sampled_from([b"", b"\xff\xff", event(79, 102, {1: 1}), event(9999, 107, {1: 5}), event(41, 101, {1: 1})])


@given(st.lists(st.one_of(kernels, ranges, calls, broken), min_size=1, max_size=80))
@settings(deadline=None, max_examples=50)
def test_made_events_read_the_same(events: list[bytes]) -> None:
    assert_templates_change_nothing(in_blocks(events * 3))


def test_a_change_anywhere_but_in_a_varying_number_is_seen() -> None:
    usual = [kernel(1000 + index, 1) for index in range(32)]
    other = event(
        79,
        107,
        {1: 2000, 2: 2010, 3: 2000, 4: 0, 5: 1, 6: 9, 8: GLOBAL_PID, 101: dict.fromkeys((1, 2, *range(10, 16)), 1)},
    )
    assert len(other) == len(kernel(2000, 1))
    found = rows(in_blocks([*usual, other, *usual]), KERNELS)
    assert [row["streamId"] for row in found] == [7] * 32 + [9] + [7] * 32
    assert [row["start"] for row in found][:33] == [*range(1000, 1032), 2000]


def test_times_before_the_capture_window_stay_negative() -> None:
    starts = list(range(-40, 40))
    found = rows(in_blocks([kernel(start, 1, correlation=5) for start in starts]), KERNELS)
    assert [row["start"] for row in found] == starts
    assert [row["end"] for row in found] == [start + 10 for start in starts]


def test_a_number_that_an_event_lacks_stays_absent_between_those_that_have_it() -> None:
    nodes = [None if index % 3 else index << 32 for index in range(60)]
    events = [
        event(79, 107, {1: 100, 8: GLOBAL_PID, 101: {1: 1, **({} if node is None else {27: node})}}) for node in nodes
    ]
    assert [row["graphNodeId"] for row in rows(in_blocks(events), KERNELS)] == nodes


def test_of_a_varying_number_that_is_there_twice_the_last_counts() -> None:
    events = [event(79, 107, [(1, 900 - index), (1, 100 + index), (8, GLOBAL_PID)]) for index in range(60)]
    assert [row["start"] for row in rows(in_blocks(events), KERNELS)] == list(range(100, 160))


def test_an_event_that_is_a_copy_and_a_memory_set_gives_both_manyeach_time() -> None:
    events = [event(80, 107, {1: 100 + index, 102: {1: 4}, 103: {1: 8}}) for index in range(40)]
    tables, counts = tables_of(in_blocks(events), batch_bytes=1)
    assert counts.events == 40
    for table in ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"):
        assert tables[table].column("start").to_pylist() == list(range(100, 140))


def test_texts_come_back_with_ranges_that_repeat() -> None:
    texts = [f"layer_{index % 4}".encode() for index in range(64)]
    found = rows(in_blocks([nvtx_range(10 * index, text) for index, text in enumerate(texts)]), RANGES)
    assert [str(row["text"]).encode() for row in found] == texts
    assert [row["start"] for row in found] == list(range(0, 640, 10))


def test_most_of_a_recording_that_repeats_itself_fits_templates() -> None:
    known = [kernel(1000 + index, index % 5) for index in range(50)]
    repeated = RepeatedEvents(EVENT_TABLES)
    assert not repeated.match(side_by_side(known)).any()
    repeated.learn(side_by_side(known), list(RowDecoder(EVENT_TABLES, EventCounts()).decode(known)))
    assert repeated.match(side_by_side([kernel(5000 + index, index % 5) for index in range(50)])).all()
    assert not repeated.match(side_by_side([kernel(5000, 5)])).any()


@pytest.mark.parametrize(
    "made",
    [
        lambda index: event(127, 107, {1: index, 2: index, 3: index, 6: 7, 8: GLOBAL_PID, 106: {1: 9}}),
        lambda index: event(48, 108, {1: index, 2: index + 5, 3: index, 6: 102, 7: 3, 8: index % 7, 13: TID}),
    ],
    ids=["CUDA events, whose time is there twice", "overheads, with their kind where calls have what they returned"],
)
def test_what_varies_beside_the_columns_keeps_no_event_from_repeating(made: Callable[[int], bytes]) -> None:
    calls = [event(48, 108, {1: i, 2: i + 5, 3: i, 6: 0, 7: 3, 8: i % 7, 13: TID}) for i in range(1000, 1050)]
    known = [*calls, *map(made, range(1000, 1050))]
    repeated = RepeatedEvents(EVENT_TABLES)
    repeated.learn(side_by_side(known), list(RowDecoder(EVENT_TABLES, EventCounts()).decode(known)))
    assert repeated.match(side_by_side([made(index) for index in range(5000, 5050)])).all()


def side_by_side(raws: list[bytes]) -> Events:
    sizes = np.array([len(raw) for raw in raws], dtype=np.int64)
    end = np.cumsum(sizes)
    return Events(np.frombuffer(b"".join(raws) + bytes(BYTES_BEHIND), dtype=np.uint8), end - sizes, end)


def test_an_event_of_another_size_or_with_longer_numbers_fits_no_template() -> None:
    known = [b"\x08\x4f\xda\x06\x04\x08" + bytes([index]) + b"\x10\x05" for index in range(LEAST_REPEATS)]
    templates = Templates(num_words=2)
    many = side_by_side(known).rows(2, np.arange(len(known)))
    mask = fixed_bits(len(known[0]), [(6, 1)])
    templates.add_layouts(many.only(np.array([0])), [mask])
    assert templates.add(many.only(np.array([0])), [mask], first_number=5) == [0]
    others = [known[0] + b"\x00", known[0][:-1] + b"\x06", known[0][:6] + b"\x81" + known[0][7:], known[1]]
    found = templates.match(side_by_side(others).rows(2, np.arange(len(others))))
    assert found.tolist() == [0, 0, 0, 5]
