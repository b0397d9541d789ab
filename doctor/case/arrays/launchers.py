"""Which threads of a process launch by turns, and which at the same time.

PyTorch's backward pass launches from a thread of its own while the one that called it waits: such threads are one
launcher, and a pause of either holds the device up. Threads that each run the model are launchers of their own.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from doctor.case.arrays.calls import HostCalls
from doctor.case.arrays.columns import Code, Int, gather, spelled
from doctor.case.arrays.intervals import ThreadCalls

MOST_SHARED_TIME = 0.005
"""Launching threads take turns where two of them are inside a call for less of their time than this. In recordings of
forward and backward threads it is 0.0000, where threads run the model side by side 0.03 to 0.08."""
MOST_CHANGES = 0.05
"""Nor is a call in twenty, or more, of another thread than the one before: one in a hundred where a backward pass has
a thread of its own, one in three where threads stand in each other's way, though they are hardly in a call at once."""


def as_rows(calls: HostCalls, here: ThreadCalls) -> pa.Table:
    """Columns of the table `launcher`: of each launching thread a number within its process, shared by those in turns.

    Numbers begin at 0, the launcher of most work in the window.
    """
    keys, process, thread = calls.threads.keys, calls.threads.process, gather(calls.thread, here.call)
    launched = np.bincount(thread, gather(here.op_count, here.call), len(keys))
    launching = np.flatnonzero(np.bincount(calls.thread, here.op_count, len(keys))).astype(np.int32)
    number = np.zeros(len(keys), dtype=np.int32)
    for one in np.unique(process[launching]):
        members = launching[(process[launching] == one) & (launched[launching] > 0)]
        if len(members) > 1:
            lanes = _lanes(members, calls, here.call[np.isin(thread, members)])
            number[members] = _by_work(lanes, launched[members])
    return pa.table(
        {
            "source_id": spelled(launching, [key[0] for key in keys], pa.int16()),
            "pid": spelled(launching, [key[1] for key in keys], pa.int64()),
            "tid": spelled(launching, [key[2] for key in keys], pa.int64()),
            "launcher_id": number[launching],
        }
    )


def _lanes(members: Code, calls: HostCalls, at: Code) -> Code:
    """Of each thread a number that it shares with those that it takes turns with."""
    start, end, thread = gather(calls.start, at), gather(calls.end, at), gather(calls.thread, at)
    ended = np.maximum.accumulate(end)
    shared = np.maximum(np.minimum(ended[:-1], end[1:]) - start[1:], 0).sum()
    is_rare = np.count_nonzero(thread[1:] != thread[:-1]) < MOST_CHANGES * len(at)
    if is_rare and shared <= MOST_SHARED_TIME * (end - start).sum():
        return np.zeros(len(members), dtype=np.int32)
    return _one_after_the_other(np.searchsorted(members, thread), len(members), start, end)


def _one_after_the_other(thread: Int, count: int, start: Int, end: Int) -> Code:
    """Of each thread a number that it shares with those that had ended before it began, as workers of one pool do."""
    begun, ended = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(begun, thread, start)
    np.maximum.at(ended, thread, end)
    lanes = np.zeros(count, dtype=np.int32)
    free_at: list[int] = []
    for one in np.argsort(begun, kind="stable").tolist():
        lane = next((lane for lane, free in enumerate(free_at) if free <= begun[one]), len(free_at))
        free_at[lane : lane + 1] = [int(ended[one])]
        lanes[one] = lane
    return lanes


def _by_work(lanes: Code, launched: Int) -> Code:
    """Lanes numbered anew, those that launched most first."""
    work = np.bincount(lanes, launched)
    rank = np.empty(len(work), dtype=np.int32)
    rank[np.argsort(-work, kind="stable")] = np.arange(len(work), dtype=np.int32)
    return rank[lanes]
