"""Builds a `Run` from what was recorded: joins launches, ties the rest to the clock, tells why operations started."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from doctor.case.arrays.columns import IN_CACHE, bounds_of, gather, in_groups, in_order, slices
from doctor.case.replay_queries import RecordedCalls, RecordedOps, Recording
from doctor.replay.collectives import find_meetings, split
from doctor.replay.intervals import running_end
from doctor.replay.run import Calls, Flag, Int, Ops, Real, Run, index_by_id, position_of
from doctor.replay.waiting import Processes, find_waits

_Number = TypeVar("_Number", bound=np.generic)

HOST_CAUSED_NS = 10_000.0
"""An operation that starts within this time after its launch returned was waited for by the device."""
QUEUED_NS = 10_000.0
"""An operation that starts within this time after its stream's previous one was waiting in the queue."""
CROSS_STREAM_NS = 20_000.0
"""An operation that starts within this time after one of another stream was waiting for that one."""
IDLE_DISTANCE_NS = 340.0
"""Least distance to the one before in its stream for work that the device was waiting for, should it come sooner. What
brings work so much sooner is a CUDA graph: 0.34 us a node on an H200 (eager launches in a queue: 1.0 to 1.4 us)."""
DEFAULT_LATENCY_NS = 8_000.0
"""Launch to start on an idle device where the recording has none: 8 to 10 us on an H200."""


@dataclass(frozen=True)
class _Timing:
    latency: Real
    distance: Real
    source: Int
    source_distance: Real
    is_queued: Flag


def build_run(recording: Recording) -> Run:
    """Arrays of every process in the window. Calls are laid out before operations are read: both may be millions."""
    recorded = recording.calls()
    processes = Processes(recorded.launcher_process, recording.stream_process)
    calls = _order_calls(recorded)
    del recorded
    ops, collective = _order_ops(recording, recording.ops(), calls)
    meetings = find_meetings(ops, collective, gather(recording.stream_device, ops.stream))
    ops = split(ops, meetings, len(recording.stream_device))
    # the stream in which ranks meet is of no device and no process
    apart = np.full(min(len(meetings), 1), -1, dtype=np.int64)
    device = np.concatenate((recording.stream_device, apart))
    processes = replace(processes, of_stream=np.concatenate((processes.of_stream, apart)))
    calls, waits = find_waits(calls, ops, processes, recording.names)
    return Run(calls, ops, waits, device, processes.of_thread)


def _order_calls(recorded: RecordedCalls) -> Calls:
    """Sort by thread and put a virtual call before each thread's first."""
    thread_count = len(recorded.launcher_process)
    order = in_groups(recorded.launcher, thread_count)
    bounds = np.concatenate(([0], np.cumsum(np.bincount(recorded.launcher, minlength=thread_count)))).tolist()

    def behind_virtual(values: npt.NDArray[_Number], virtual: int) -> npt.NDArray[_Number]:
        ordered = np.empty(len(values) + thread_count, dtype=values.dtype)
        for thread, (first, last) in enumerate(pairwise(bounds)):
            of_thread = slice(first, last) if isinstance(order, slice) else order[first:last]
            ordered[first + thread] = virtual
            ordered[first + thread + 1 : last + thread + 1] = in_order(values, of_thread)
        return ordered

    start, end = behind_virtual(recorded.start_ns(), 0), behind_virtual(recorded.end_ns(), 0)
    silence = np.zeros(len(start), dtype=np.float32)
    np.subtract(start[1:], end[:-1], out=silence[1:])
    silence[[first + thread for thread, first in enumerate(bounds[:-1])]] = 0.0
    np.maximum(silence, 0.0, out=silence)
    return Calls(
        behind_virtual(recorded.host_call_id(), -1),
        np.repeat(np.arange(thread_count, dtype=np.int32), np.diff(bounds) + 1),
        start,
        end,
        silence,
        np.subtract(end, start, out=np.empty(len(start), dtype=np.float32)),
        behind_virtual(recorded.name(), -1),
        behind_virtual(recorded.correlation_id(), -1),
    )


def _order_ops(recording: Recording, recorded: RecordedOps, calls: Calls) -> tuple[Ops, Int]:
    """Operations in order of start within each stream, and the number of each one's collective."""
    order = in_groups(recorded.stream, len(recording.stream_device))
    stream = in_order(recorded.stream, order)
    start, end = in_order(recorded.start_ns(), order), in_order(recorded.end_ns(), order)
    host_call_id = in_order(recorded.host_call_id(), order)
    launched = position_of(index_by_id(calls.call_id), host_call_id)
    home = gather(_home(launched, stream, recording.stream_process, calls), stream)
    launched = _launched_before(launched, host_call_id, home, calls)
    del host_call_id
    call = _tie_to_clock(launched, start, home, calls)
    call = _never_after_followers(call, stream, calls)
    is_graph_call = np.asarray([*(one == "graph" for one in recording.names.call_class), False])
    is_graph_call = gather(is_graph_call, calls.name)
    count = len(start)
    ops = Ops(
        in_order(recorded.device_op_id, order),
        stream,
        call,
        start,
        end,
        np.subtract(end, start, out=np.empty(count, dtype=np.float32)),
        latency=np.zeros(count, dtype=np.float32),
        distance=np.zeros(count, dtype=np.float32),
        source=np.full(count, -1, dtype=np.int32),
        source_distance=np.zeros(count, dtype=np.float32),
        kind=in_order(recorded.kind(), order),
        is_tied=call != launched,
        is_queued=np.zeros(count, dtype=np.bool_),
        is_graph=in_order(recorded.is_graph(), order) | ((launched >= 0) & gather(is_graph_call, launched)),
        holds_host=in_order(recorded.holds_host(), order),
    )
    collective = in_order(recorded.collective(), order)
    del recorded, launched, order
    timing = _tell_cause(ops, calls, recording.stream_device)
    timed = replace(
        ops,
        latency=timing.latency,
        distance=timing.distance,
        source=timing.source,
        source_distance=timing.source_distance,
        is_queued=timing.is_queued,
    )
    return timed, collective


def _home(launched: Int, stream: Int, stream_process: Int, calls: Calls) -> Int:
    """The thread that launched most into each stream, the main one of the process where nothing is known."""
    home = stream_process.astype(np.int32)
    thread_count = int(calls.thread.max(initial=-1)) + 1
    if thread_count == int(stream_process.max(initial=-1)) + 1:
        return home  # one thread a process
    known = launched >= 0
    pair, count = np.unique(
        stream[known].astype(np.int64) * thread_count + calls.thread[launched[known]], return_counts=True
    )
    rising = np.argsort(count, kind="stable")  # the last one written stays
    home[pair[rising] // thread_count] = pair[rising] % thread_count
    return home


def _launched_before(launched: Int, host_call_id: Int, thread: Int, calls: Calls) -> Int:
    """Work whose launch came before the window stands in the queue when it opens: the thread's virtual call has it."""
    least = calls.call_id.min(initial=np.iinfo(calls.call_id.dtype).max, where=calls.call_id >= 0)
    before = np.flatnonzero((launched < 0) & (host_call_id >= 0) & (host_call_id < least))
    if not len(before) or calls.call_id.max() < 0:
        return launched
    virtual = bounds_of(calls.thread, int(thread.max(initial=-1)) + 1).astype(launched.dtype)
    found = launched.copy()
    found[before] = virtual[thread[before]]
    return found


def _tie_to_clock(launched: Int, start: Real, thread: Int, calls: Calls) -> Int:
    """The launching call, or for operations without one the last call of the thread that began before they did."""
    unlaunched = np.flatnonzero(launched < 0)
    if not len(unlaunched):
        return launched
    call = launched.copy()
    for one in np.unique(thread[unlaunched]):
        tied = unlaunched[thread[unlaunched] == one]
        first, last = np.searchsorted(calls.thread, (one, one + 1))
        call[tied] = first + np.searchsorted(calls.start[first:last], start[tied], side="right") - 1
    return call


def _never_after_followers(call: Int, stream: Int, calls: Calls) -> Int:
    """Make each thread's calls ascend along a stream: tied work comes no later than what queues behind it."""
    thread = gather(calls.thread, call)
    is_same_stream = stream[1:] == stream[:-1]
    if not (is_same_stream & ((call[1:] < call[:-1]) | (thread[1:] != thread[:-1]))).any():
        return call  # one thread a stream, and nothing to put right: as most recordings are
    ascending = call.copy()
    order = np.lexsort((thread, stream))  # in order within each stream and thread
    bounds = np.flatnonzero((np.diff(stream[order]) != 0) | (np.diff(thread[order]) != 0)) + 1
    for first, last in zip((0, *bounds), (*bounds, len(call)), strict=True):
        here = order[first:last]
        ascending[here] = np.minimum.accumulate(call[here][::-1])[::-1]
    return ascending


def _tell_cause(ops: Ops, calls: Calls, stream_device: Int) -> _Timing:
    """Why each operation started when it did: its launch, its stream, another stream, or itself."""
    after_launch = _since(calls.end, ops)
    gap, is_first = _gap_in_stream(ops)
    is_late_node = _is_late_node(ops, len(calls.call_id))
    is_launched = ~ops.is_tied & (after_launch < HOST_CAUSED_NS) & ~is_late_node
    is_queued = ~ops.is_tied & ~is_launched & ~is_first & (gap < QUEUED_NS)
    source = _find_sources(ops, stream_device, ~ops.is_tied & ~is_launched & ~is_queued)
    # inside one graph only the device can be late; and what stood in the queue longer than it waited behind the one
    # before started when that one had ended, not so and so long after its launch
    stood = np.subtract(after_launch, gap, out=after_launch)
    is_queued |= ~ops.is_tied & (source < 0) & (_follows_sibling(ops) | (~is_launched & ~is_first & (stood > gap)))
    del after_launch, stood

    latency = _since(calls.start, ops)
    kind = latency_class(ops)
    usual = _medians(latency, kind, is_launched, DEFAULT_LATENCY_NS)
    crossing = np.flatnonzero(source >= 0)
    for part in slices(len(source), IN_CACHE):
        late = np.flatnonzero(is_queued[part] | (source[part] >= 0))
        latency[part][late] = np.minimum(usual[kind[part][late]], latency[part][late])
    idle = np.flatnonzero(~is_queued)
    gap[idle] = np.minimum(np.float32(IDLE_DISTANCE_NS), gap[idle])
    source_distance = np.zeros(len(source), dtype=np.float32)
    source_distance[crossing] = ops.start[crossing] - ops.end[source[crossing]]
    return _Timing(latency, gap, source, source_distance, is_queued)


def _since(time_of_call: Real, ops: Ops) -> Real:
    """From a time of its call to the start of each operation, in ns."""
    since = np.empty(len(ops.call), dtype=np.float32)
    for part in slices(len(since), IN_CACHE):
        np.subtract(ops.start[part], gather(time_of_call, ops.call[part]), out=since[part])
    return since


def latency_class(ops: Ops) -> Int:
    """Operations whose launches take about as long: by kind, those of graph launches apart."""
    return ops.kind + np.int8(4) * ops.is_graph


def median_by_group(values: Real, group: Int, among: Flag, default: float) -> Real:
    """Median of `values` over the elements in `among` with the same small group number, for every element."""
    return gather(_medians(values, group, among, default), group)


def _medians(values: Real, group: Int, among: Flag, default: float) -> Real:
    """Median of each group number, `default` where nothing of it is in `among`."""
    medians = np.full(int(group.max(initial=-1)) + 1, default, dtype=values.dtype)
    for one in np.flatnonzero(np.bincount(group[among])) if len(group) else ():
        medians[one] = np.median(values[among & (group == one)])
    return medians


def _gap_in_stream(ops: Ops) -> tuple[Real, Flag]:
    """Time from the latest end before it in its stream to each start; 0 for the first of a stream."""
    latest = running_end(ops.stream, ops.end)
    is_first = np.ones(len(ops.op_id), dtype=np.bool_)
    np.not_equal(ops.stream[1:], ops.stream[:-1], out=is_first[1:])
    gap = np.zeros(len(ops.op_id), dtype=np.float32)
    np.subtract(ops.start[1:], latest[:-1], out=gap[1:])
    gap[is_first] = 0.0
    return gap, is_first


def _follows_sibling(ops: Ops) -> Flag:
    """The operation before it in its stream is of the same graph launch."""
    if not ops.is_graph.any():
        return ops.is_graph
    follows = np.zeros(len(ops.op_id), dtype=np.bool_)
    follows[1:] = (ops.stream[1:] == ops.stream[:-1]) & (ops.call[1:] == ops.call[:-1])
    return follows & ops.is_graph & ~ops.is_tied


def _is_late_node(ops: Ops, call_count: int) -> Flag:
    """A node of a graph launch that is not the launch's first."""
    nodes = ops.is_graph & ~ops.is_tied
    if not nodes.any():
        return nodes
    earliest = np.full(call_count, np.inf)
    np.minimum.at(earliest, ops.call[nodes], ops.start[nodes])
    return nodes & (ops.start > earliest[ops.call])


def _find_sources(ops: Ops, stream_device: Int, among: Flag) -> Int:
    """Operation of another stream of the device that ended last before the start, within 20 us, or -1."""
    source = np.full(len(ops.op_id), -1, dtype=np.int32)
    late = np.flatnonzero(among)
    device = stream_device[ops.stream[late]]
    bounds = bounds_of(ops.stream, len(stream_device)).tolist()
    for one in np.unique(device):
        streams = [(bounds[stream], bounds[stream + 1]) for stream in np.flatnonzero(stream_device == one)]
        if sum(last > first for first, last in streams) < 2:
            continue  # there is no other stream to wait for
        here = late[device == one]
        members = np.concatenate([np.arange(first, last, dtype=np.int32) for first, last in streams])
        by_end = members[np.argsort(gather(ops.end, members), kind="stable")]
        place = np.searchsorted(gather(ops.end, by_end), ops.start[here], side="right") - 1
        found = by_end[np.maximum(place, 0)]
        is_real = (
            (place >= 0)
            & (ops.start[here] - ops.end[found] < CROSS_STREAM_NS)
            & (ops.stream[found] != ops.stream[here])
            & (ops.start[found] < ops.start[here])
        )
        source[here[is_real]] = found[is_real]
    return source
