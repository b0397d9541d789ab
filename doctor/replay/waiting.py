"""Finds the calls that wait for the device, and what they wait for.

A sync, copy or allocation waits when work that was pending before it ended while it ran, or up to 3 us after it
returned (clocks of host and device differ by that much). What it waits for is the last operation of each such stream.
A sync that found everything done is kept as a wait too: with a faster host it would have something to wait for.
Launches wait for their own kernels where nearly all of them return only when those have ended (CUDA_LAUNCH_BLOCKING).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from doctor.case.arrays.columns import IN_CACHE, bounds_of, gather, slices
from doctor.case.replay_queries import CallNames
from doctor.replay.intervals import running_end
from doctor.replay.run import Calls, Flag, Int, Ops, Real, Waits

CLOCK_SLACK_NS = 3_000.0
"""How long after a call's return the awaited work may seem to end."""
LEAST_START_NS = 3_000.0
"""No kernel starts sooner after its launch began: where most seem to, the clocks disagree, and it may not have ended
within the call either."""
WAITING_LAUNCHES = 0.95
"""Share of the launches from which on they wait for their kernels: by chance a few do, by setting all."""


@dataclass(frozen=True)
class _Awaited:
    """Pairs of a call and an operation that it awaits, and the kind of the pair."""

    call: Int
    op: Int
    is_own_copy: Flag


@dataclass(frozen=True)
class Processes:
    """Who belongs together: the process of each launching thread and of each stream, -1 for a stream of none."""

    of_thread: Int
    of_stream: Int


@dataclass(frozen=True)
class _Stream:
    """Operations of one stream: positions, when they were launched, ascending, and by which threads; the process."""

    first: int
    last: int
    process: int
    launched: Real
    users: Int


def of_class(calls: Calls, names: CallNames, wanted: tuple[str, ...]) -> Flag:
    """Calls of the wanted classes; virtual calls, named -1, are of none."""
    is_wanted = np.asarray([*(one in wanted for one in names.call_class), False])
    return gather(is_wanted, calls.name)


def find_waits(calls: Calls, ops: Ops, processes: Processes, names: CallNames) -> tuple[Calls, Waits]:
    """The waits, and the calls with their own times without waiting."""
    latest = running_end(ops.stream, ops.end)
    streams = _streams(calls, ops, processes)
    pairs = _merge(
        _await_copies(calls, ops, latest, of_class(calls, names, ("copy",)), names),
        _await_launches(calls, ops, latest, of_class(calls, names, ("launch",))),
        _await_streams(calls, ops, latest, processes, streams, names),
        _await_events(calls, ops, latest, processes, streams, names),
    )
    return _own_times(calls, latest, pairs)


def _is_event_wait(calls: Calls, names: CallNames) -> Flag:
    is_event = np.asarray([*("EventSynchronize" in name for name in names.base_name), False])
    return gather(is_event, calls.name)


def _await_copies(calls: Calls, ops: Ops, latest: Real, is_copy: Flag, names: CallNames) -> _Awaited:
    """Copies that hold the host until they are done."""
    always = gather(np.append(names.is_blocking_copy, False), calls.name)
    own = np.flatnonzero(~ops.is_tied & gather(is_copy, ops.call) & (ops.holds_host | gather(always, ops.call)))
    own = own[_ends_within(calls, ops.call[own], latest[own]) & (ops.start[own] < calls.end[ops.call[own]])]
    return _Awaited(ops.call[own], own, np.ones(len(own), dtype=np.bool_))


def _await_launches(calls: Calls, ops: Ops, latest: Real, is_launch: Flag) -> _Awaited:
    """Launches that hold the host until their kernels have ended: nearly all of them, or none."""
    is_own = ~ops.is_tied & gather(is_launch, ops.call)
    count = np.count_nonzero(is_own)
    least, missed = WAITING_LAUNCHES * count, 0
    held = []
    for part in slices(len(is_own), IN_CACHE):
        own = part.start + np.flatnonzero(is_own[part])
        call = ops.call[own]
        is_held = (latest[own] <= calls.end[call]) & (ops.start[own] >= calls.start[call] + LEAST_START_NS)
        held.append(own[is_held])
        missed += len(own) - len(held[-1])
        if missed > count - least:
            break
    found = np.concatenate(held)
    found = found if len(found) >= least else found[:0]
    return _Awaited(ops.call[found], found, np.ones(len(found), dtype=np.bool_))


def _ends_within(calls: Calls, call: Int, end: Real) -> Flag:
    return (calls.end[call] > calls.start[call]) & (end > calls.start[call]) & (end <= calls.end[call] + CLOCK_SLACK_NS)


def _streams(calls: Calls, ops: Ops, processes: Processes) -> list[_Stream]:
    """The streams that hold operations."""
    bounds = bounds_of(ops.stream, len(processes.of_stream)).tolist()
    found = []
    for process, first, last in zip(processes.of_stream.tolist(), bounds[:-1], bounds[1:], strict=True):
        if last > first:
            call = ops.call[first:last]
            launched = np.maximum.accumulate(gather(calls.start, call))
            users = np.flatnonzero(np.bincount(gather(calls.thread, call)))
            found.append(_Stream(first, last, process, launched, users))
    return found


def _last_launched(calls: Calls, processes: Processes, stream: _Stream, waiting: Int) -> Int:
    """Last operation of the stream launched when each call began or before, -1 where there is none."""
    place = np.searchsorted(stream.launched, calls.start[waiting], side="right") - 1
    is_any = (place >= 0) & (processes.of_thread[calls.thread[waiting]] == stream.process)
    return np.where(is_any, stream.first + place, -1)


def _is_of_one_stream(calls: Calls, names: CallNames) -> Flag:
    """Calls that wait for one stream, whichever: a thread waits for one that it launches into."""
    is_one = np.asarray([*("StreamSynchronize" in name for name in names.base_name), False])
    return gather(is_one, calls.name)


def _await_streams(
    calls: Calls, ops: Ops, latest: Real, processes: Processes, streams: Sequence[_Stream], names: CallNames
) -> _Awaited:
    """Synchronisations and allocations: the last operation of every stream that drained meanwhile."""
    is_sync = of_class(calls, names, ("sync",)) & ~_is_event_wait(calls, names)
    is_alloc = of_class(calls, names, ("alloc",))
    waiting = np.flatnonzero((is_sync | is_alloc) & (calls.end > calls.start))
    found: list[tuple[Int, Int]] = []
    is_all_idle = np.ones(len(waiting), dtype=np.bool_)
    newest, newest_launch = np.full(len(waiting), -1), np.full(len(waiting), -np.inf)
    is_of_one = _is_of_one_stream(calls, names)[waiting]
    for stream in streams:
        last = _last_launched(calls, processes, stream, waiting)
        is_any = (last >= 0) & (~is_of_one | np.isin(calls.thread[waiting], stream.users))
        is_drained = is_any & (latest[last] <= calls.end[waiting] + CLOCK_SLACK_NS)
        is_all_idle &= ~is_any | is_drained
        blocked = is_drained & (latest[last] > calls.start[waiting]) & (ops.start[last] < calls.end[waiting])
        found.append((np.flatnonzero(blocked), last[blocked]))
        launch = calls.start[ops.call[last]]
        newer = is_drained & ~blocked & (launch > newest_launch) & (ops.start[last] < calls.start[waiting])
        newest, newest_launch = np.where(newer, last, newest), np.where(newer, launch, newest_launch)
    row = np.concatenate([pair[0] for pair in found]) if found else np.zeros(0, dtype=np.int64)
    op = np.concatenate([pair[1] for pair in found]) if found else np.zeros(0, dtype=np.int64)
    keeps = is_sync[waiting[row]] | is_all_idle[row]  # an allocation waits for the whole device or not at all
    row, op = row[keeps], op[keeps]
    quiet = np.setdiff1d(np.flatnonzero(is_sync[waiting] & (newest >= 0)), row)
    call = waiting[np.concatenate((row, quiet))]
    return _Awaited(call, np.concatenate((op, newest[quiet])), np.zeros(len(call), dtype=np.bool_))


def _await_events(
    calls: Calls, ops: Ops, latest: Real, processes: Processes, streams: Sequence[_Stream], names: CallNames
) -> _Awaited:
    """Event synchronisations: the operation that ended last before the return, in whatever stream."""
    waiting = np.flatnonzero(_is_event_wait(calls, names) & (calls.end > calls.start))
    best = np.full(len(waiting), -1, dtype=np.int64)
    best_end = calls.start[waiting].copy()
    for stream in streams:
        launched = _last_launched(calls, processes, stream, waiting)
        ended = np.searchsorted(latest[stream.first : stream.last], calls.end[waiting] + CLOCK_SLACK_NS, side="right")
        last = np.minimum(launched, stream.first + ended - 1)
        is_better = (last >= stream.first) & (latest[last] > best_end) & (ops.start[last] < calls.end[waiting])
        best, best_end = np.where(is_better, last, best), np.where(is_better, latest[last], best_end)
    blocked = best >= 0
    return _Awaited(waiting[blocked], best[blocked], np.zeros(int(blocked.sum()), dtype=np.bool_))


def _merge(*parts: _Awaited) -> _Awaited:
    call = np.concatenate([part.call for part in parts]).astype(np.int64)
    order = np.argsort(call, kind="stable")
    op = np.concatenate([part.op for part in parts]).astype(np.int64)
    return _Awaited(call[order], op[order], np.concatenate([part.is_own_copy for part in parts])[order])


def _own_times(calls: Calls, latest: Real, pairs: _Awaited) -> tuple[Calls, Waits]:
    """Split each waiting call into what it waits and what it takes anyway."""
    call, first = np.unique(pairs.call, return_index=True)
    horizon = np.maximum.reduceat(latest[pairs.op], first) if len(first) else np.zeros(0)
    did_block = horizon > calls.start[call]
    length = calls.end[call] - calls.start[call]
    lag = np.where(did_block, calls.end[call] - horizon, length)
    own = calls.own.copy()
    own[call] = np.maximum(lag, 0.0)
    waits = Waits(
        call,
        calls.start[call],
        calls.end[call],
        lag,
        np.append(first, len(pairs.op)).astype(np.int64),
        pairs.op,
        np.ones(len(call), dtype=np.bool_),
        pairs.is_own_copy[first] if len(first) else np.zeros(0, dtype=np.bool_),
        did_block,
    )
    return replace(calls, own=own), waits
