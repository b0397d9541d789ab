"""Interval algebra on arrays: running ends and unions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from doctor.case.arrays.columns import IN_CACHE, gather, slices

Int = npt.NDArray[np.signedinteger]
Real = npt.NDArray[np.floating]


def running_end(group: Int, end: Real) -> Real:
    """Latest end so far within each group. Groups are contiguous, elements in order of start."""
    latest = end.copy()
    bounds = np.flatnonzero(np.diff(group)) + 1
    for first, last in zip((0, *bounds), (*bounds, len(end)), strict=True):
        np.maximum.accumulate(end[first:last], out=latest[first:last])
    return latest


def union_length(start: Real, end: Real) -> float:
    """Length of the union of intervals, in any order; time that two of them share counts once."""
    order = None if (start[1:] >= start[:-1]).all() else np.argsort(start, kind="stable").astype(np.int32)
    length, reached = 0.0, -np.inf
    for part in slices(len(start), IN_CACHE):
        begins, ends = (one[part] if order is None else gather(one, order[part]) for one in (start, end))
        latest = np.maximum.accumulate(np.concatenate(([reached], ends)))
        length += float(np.maximum(latest[1:] - np.maximum(begins, latest[:-1]), 0.0).sum())
        reached = latest[-1]
    return length


def union_by_group(group: Int, start: Real, end: Real, count: int) -> Real:
    """Length of the union of intervals of each of `count` groups."""
    lengths = []
    for one in range(count):
        here = group == one
        lengths.append(union_length(start, end) if here.all() else union_length(start[here], end[here]))
    return np.asarray(lengths)
