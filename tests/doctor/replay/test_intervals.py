from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from doctor.replay.intervals import running_end, union_by_group, union_length

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda pair: (pair[0], sum(pair))))


def ends(intervals: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.asarray(intervals, dtype=np.float64).reshape(len(intervals), 2)
    return table[:, 0], table[:, 1]


@given(INTERVALS)
def test_a_union_counts_every_nanosecond_once(intervals: list[tuple[int, int]]) -> None:
    assert union_length(*ends(intervals)) == len({ns for first, last in intervals for ns in range(first, last)})


@given(INTERVALS, INTERVALS)
def test_a_union_is_no_shorter_than_its_parts_and_no_longer_than_their_sum(
    some: list[tuple[int, int]], more: list[tuple[int, int]]
) -> None:
    parts = union_length(*ends(some)), union_length(*ends(more))
    assert max(parts) <= union_length(*ends(some + more)) <= sum(parts)


@given(INTERVALS, st.integers(1, 4))
def test_groups_do_not_share_time(intervals: list[tuple[int, int]], count: int) -> None:
    group = np.arange(len(intervals)) % count
    start, end = ends(intervals)
    expected = [union_length(start[group == one], end[group == one]) for one in range(count)]
    assert union_by_group(group, start, end, count).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50))))
def test_running_end_is_the_latest_so_far_in_its_group(pairs: list[tuple[int, int]]) -> None:
    pairs = sorted(pairs, key=lambda pair: pair[0])
    group = np.asarray([pair[0] for pair in pairs], dtype=np.int64)
    end = np.asarray([pair[1] for pair in pairs], dtype=np.float64)
    expected = [max(e for g, e in pairs[: i + 1] if g == pairs[i][0]) for i in range(len(pairs))]
    assert running_end(group, end).tolist() == expected
