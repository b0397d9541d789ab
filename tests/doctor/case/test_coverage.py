"""What intervals cover between edges is what counting every nanosecond gives."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from doctor.case.arrays.coverage import covered_between

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 25)), max_size=12)
EDGES = st.lists(st.integers(0, 90), min_size=2, max_size=8).map(sorted)


@given(INTERVALS, EDGES)
def test_what_intervals_cover_between_edges_is_what_counting_gives(
    intervals: list[tuple[int, int]], edges: list[int]
) -> None:
    start, length = np.asarray(sorted(intervals), dtype=np.int64).reshape(-1, 2).T
    covered = {ns for first, ns_count in intervals for ns in range(first, first + ns_count)}
    expected = [len(covered & set(range(first, last))) for first, last in pairwise(edges)]
    assert covered_between(start, start + length, np.asarray(edges)).tolist() == expected
