"""Calls of launching threads in the window, and the launch-to-launch intervals that they make up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from doctor.case.arrays.calls import CallNames, HostCalls
from doctor.case.arrays.columns import (
    IN_CACHE,
    UNKNOWN,
    Code,
    Flag,
    Int,
    Words,
    bounds_of,
    by_group,
    gather,
    nullable,
    scatter,
    slices,
    spelled,
)
from doctor.case.arrays.steps import NO_STEP

_MEANS = ("sync", "alloc", "copy")
LONG_INTERVAL_NS = 1_000_000


@dataclass(frozen=True)
class ThreadCalls:
    """Calls of launching threads that begin in the window, in order of start.

    Attributes:
        call: `host_call_id`.
        silence: ns since the thread's earlier calls ended; `UNKNOWN` for the first and before the window.
        op_count: operations that each call of the case launched.
        interval: launches of its thread before each.
        step: `NO_STEP` between steps.
        order: the calls in order of thread.
        bounds: of the threads in that order.
    """

    call: Code
    silence: Int
    op_count: Code
    interval: Code
    step: Code
    order: Code
    bounds: Int


def thread_calls(calls: HostCalls, launched_by: Code, step: Code, window: tuple[int, int]) -> ThreadCalls:
    """Calls of launching threads; `step` is that of each call."""
    op_count = np.bincount(launched_by[launched_by >= 0], minlength=len(calls.start)).astype(np.int32)
    is_launching = np.bincount(calls.thread, op_count, len(calls.threads.keys)) > 0
    first, last = np.searchsorted(calls.start, window).tolist()
    at = np.arange(first, last, dtype=np.int32)
    here: Code | slice = slice(first, last)
    if not is_launching.all():
        here = at = at[gather(is_launching, calls.thread[first:last])]
    silence, thread = calls.silence[here], calls.thread[here]
    start, told = calls.start[here], np.full(len(at), UNKNOWN)
    for part in slices(len(at), IN_CACHE):
        is_told = (silence[part] != UNKNOWN) & (start[part] - silence[part] >= window[0])
        np.copyto(told[part], silence[part], where=is_told)
    order = by_group(thread, len(calls.threads.keys)).astype(np.int32, copy=False)
    bounds = bounds_of(gather(thread, order), len(calls.threads.keys))
    return ThreadCalls(
        at,
        told,
        op_count,
        _launches_before(op_count[here] > 0, order, bounds),
        step[here],
        order,
        bounds,
    )


def _launches_before(is_launching: Flag, order: Code, bounds: Int) -> Code:
    """Launches of its thread before each call."""
    launching = gather(is_launching, order)
    before = np.cumsum(launching, dtype=np.int32)
    before -= launching
    for first, last in pairwise(bounds.tolist()):
        before[first:last] -= before[first] if last > first else 0
    interval = np.empty(len(order), dtype=np.int32)
    scatter(before, order, into=interval)
    return interval


def words(names: CallNames) -> Words:
    """Of the columns of `as_rows` that name words by numbers."""
    classes = tuple(dict.fromkeys(names.call_class))
    return {"call_class": ("call_kind", classes), "step_kind": ("step_likeness", ("unusual", "usual"))}


def as_rows(calls: HostCalls, here: ThreadCalls, main_threads: Flag, is_usual_step: Flag) -> Iterator[pa.Table]:
    """Columns of the table `host_call`, part by part; `is_usual_step` is indexed by step id."""
    names, keys = calls.names, calls.threads.keys
    _, classes = words(names)["call_class"]
    call_class = np.asarray([classes.index(one) for one in names.call_class], dtype=np.int8)
    for part in slices(len(calls.start)):
        thread, name = calls.thread[part], calls.name[part]
        step, interval = _spread(here, here.step, part), _spread(here, here.interval, part)
        kind = np.where(step != NO_STEP, 0, -1).astype(np.int8)
        kind[step != NO_STEP] = is_usual_step[step[step != NO_STEP]]
        yield pa.table(
            {
                "host_call_id": np.arange(part.start, part.stop),
                "source_id": spelled(thread, [key[0] for key in keys], pa.int16()),
                "pid": spelled(thread, [key[1] for key in keys], pa.int64()),
                "tid": spelled(thread, [key[2] for key in keys], pa.int64()),
                "is_main": spelled(thread, main_threads.tolist(), pa.bool_()),
                "start_ns": calls.start[part],
                "end_ns": calls.end[part],
                "correlation_id": nullable(calls.correlation[part]),
                "name_id": spelled(name, names.name_id.tolist(), pa.int32()),
                "base_name": spelled(name, names.base_name, pa.string()),
                "call_class": gather(call_class, name),
                "is_blocking_copy": spelled(name, names.is_blocking_copy, pa.bool_()),
                "silence_ns": nullable(calls.silence[part]),
                "op_count": here.op_count[part],
                "step_id": pa.array(step, mask=step == NO_STEP),
                "step_kind": kind,
                "interval_id": pa.array(interval, mask=interval == NO_STEP),
            }
        )


def _spread(here: ThreadCalls, values: Code, part: slice) -> Code:
    """Values of the calls of launching threads among a part of all calls, `NO_STEP` at the others."""
    spread = np.full(part.stop - part.start, NO_STEP, dtype=np.int32)
    first, last = np.searchsorted(here.call, (part.start, part.stop)).tolist()
    if first < last:
        place = here.call[first:last] - part.start
        is_whole = place[-1] - place[0] == last - first - 1  # all threads launch
        spread[slice(place[0], place[-1] + 1) if is_whole else place] = values[first:last]
    return spread


def long_intervals(calls: HostCalls, here: ThreadCalls) -> pa.Table:
    """Columns of the table `long_interval`: launch-to-launch intervals that somebody may look at one by one."""
    first = _interval_starts(here)
    until = np.append(first[1:], len(here.order))[: len(first)]
    kept = np.flatnonzero(_is_looked_at(calls, here, first, until))
    first, size = first[kept], (until - first)[kept]
    begins = np.cumsum(size) - size
    rows = here.order[np.repeat(first - begins, size) + np.arange(int(size.sum()))]
    at = gather(here.call, rows)
    thread, keys = calls.thread[at[begins]], calls.threads.keys
    silence, length = _known(here.silence[rows]), gather(calls.end, at) - gather(calls.start, at)
    is_module = calls.names.in_class("module")[gather(calls.name, at)]
    is_waiting = calls.names.in_class(*_MEANS)[gather(calls.name, at)] & (gather(here.op_count, at) == 0)
    return pa.table(
        {
            "source_id": spelled(thread, [key[0] for key in keys], pa.int16()),
            "pid": spelled(thread, [key[1] for key in keys], pa.int64()),
            "tid": spelled(thread, [key[2] for key in keys], pa.int64()),
            "interval_id": here.interval[rows[begins]].astype(np.int64),
            "start_ns": calls.start[at[begins]] - silence[begins],
            "end_ns": calls.end[at[begins + size - 1]],
            "step_id": _first_known(here.step[rows], begins),
            "last_host_call_id": at[begins + size - 1].astype(np.int64),
            "silence_ns": _reduce(np.add, silence, begins),
            "longest_silence_ns": _reduce(np.maximum, silence, begins),
            "module_ns": _reduce(np.add, np.where(is_module, length, 0), begins),
            "module_count": _reduce(np.add, is_module.astype(np.int64), begins),
            "waiting_ns": _reduce(np.add, np.where(is_waiting, length, 0), begins),
        }
    )


def _is_looked_at(calls: HostCalls, here: ThreadCalls, first: Int, until: Int) -> Flag:
    """Intervals of 1 ms or more, with module calls, or of a process of which several threads launch.

    Outermost calls of a thread follow each other: the first begins, and the last ends, its interval.
    """
    opening, closing = gather(here.call, here.order[first]), gather(here.call, here.order[until - 1])
    length = gather(calls.end, closing) - gather(calls.start, opening) + _known(here.silence[here.order[first]])
    there = np.flatnonzero(np.diff(here.bounds))
    is_of_several = np.bincount(calls.threads.process[there], minlength=len(calls.threads.processes)) > 1
    is_kept = (length >= LONG_INTERVAL_NS) | gather(is_of_several[calls.threads.process], gather(calls.thread, opening))
    is_module = calls.names.in_class("module")
    if is_module.any():
        loading = np.flatnonzero(gather(is_module, gather(calls.name, gather(here.call, here.order))))
        is_kept[np.searchsorted(first, loading, side="right") - 1] = True
    return np.asarray(is_kept, dtype=np.bool_)


def _known(silence: Int) -> Int:
    return np.where(silence == UNKNOWN, 0, silence)


def _interval_starts(here: ThreadCalls) -> Int:
    """The first call of each interval, in order of thread."""
    interval = gather(here.interval, here.order)
    is_first = np.zeros(len(interval), dtype=np.bool_)
    is_first[1:] = interval[1:] != interval[:-1]
    is_first[here.bounds[:-1][here.bounds[:-1] < len(interval)]] = True
    return np.flatnonzero(is_first)


def _reduce(how: np.ufunc, values: npt.NDArray[Any], first: Int) -> npt.NDArray[Any]:
    return np.asarray(how.reduceat(values, first)) if len(first) else values[:0]


def _first_known(step: Code, first: Int) -> pa.Array:
    """The first step that a call of each interval falls in, NULL where none does."""
    known = np.flatnonzero(step != NO_STEP)
    place = np.searchsorted(known, first)
    found = np.append(known, len(step))[place]
    is_here = found < np.append(first[1:], len(step))
    return pa.array(np.append(step, 0)[found], mask=~is_here)


def paces(calls: HostCalls, here: ThreadCalls) -> pa.Table:
    """Median silence before a launch and time from launch to launch, of each thread, in ns; NULL where none is."""
    rows = []
    for thread, (first, last) in enumerate(zip(here.bounds[:-1].tolist(), here.bounds[1:].tolist(), strict=True)):
        launches = here.order[first:last]
        launches = launches[gather(here.op_count, gather(here.call, launches)) > 0]
        if len(launches):
            silence = gather(here.silence, launches)
            between = np.diff(gather(calls.start, gather(here.call, launches)))
            rows.append((*calls.threads.keys[thread], _median(silence[silence != UNKNOWN]), _median(between)))
    names = ("source_id", "pid", "tid", "silence_ns", "interval_ns")
    kinds = (pa.int16(), pa.int64(), pa.int64(), pa.float64(), pa.float64())
    return pa.table(
        {
            name: pa.array([row[at] for row in rows], kind)
            for at, (name, kind) in enumerate(zip(names, kinds, strict=True))
        }
    )


def _median(values: Int) -> float | None:
    return float(np.median(values)) if len(values) else None
