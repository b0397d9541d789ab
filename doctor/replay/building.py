"""Builds a `Run` from what was recorded: joins launches, ties the rest to the clock, tells why operations started."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from doctor.case.arrays.columns import gather, in_groups, in_order
from doctor.case.replay_queries import RecordedCalls, RecordedOps, Recording
from doctor.replay.collectives import find_meetings, split
from doctor.replay.intervals import running_end
from doctor.replay.run import Calls, Flag, Int, Ops, Real, Run, index_by_id, position_of
from doctor.replay.waiting import Processes, find_waits

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
    thread = np.concatenate((np.arange(thread_count, dtype=np.int32), recorded.launcher))
    # calls of one thread lie in order; another order for them would cost a copy of each column
    order = in_groups(thread, thread_count)

    def whole(values: Int) -> Int:
        return in_order(np.concatenate((np.full(thread_count, -1, dtype=values.dtype), values)), order)

    def real(values: Real) -> Real:
        return in_order(np.concatenate((np.zeros(thread_count), values)), order)

    start, end = real(recorded.start_ns()), real(recorded.end_ns())
    thread = in_order(thread, order)
    silence = start.astype(np.float32)
    silence[1:] = start[1:] - end[:-1]
    silence[:1] = 0.0
    silence[1:][thread[1:] != thread[:-1]] = 0.0
    np.maximum(silence, 0.0, out=silence)
    return Calls(
        whole(recorded.host_call_id()),
        thread,
        start,
        end,
        silence,
        (end - start).astype(np.float32),
        whole(recorded.name()),
        whole(recorded.correlation_id()),
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
        (end - start).astype(np.float32),
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
    in_window = calls.call_id[calls.call_id >= 0]
    if not len(in_window):
        return launched
    is_before = (launched < 0) & (host_call_id >= 0) & (host_call_id < in_window.min())
    first = np.searchsorted(calls.thread, np.arange(int(thread.max(initial=-1)) + 1)).astype(launched.dtype)
    return np.where(is_before, gather(first, thread), launched)


def _tie_to_clock(launched: Int, start: Real, thread: Int, calls: Calls) -> Int:
    """The launching call, or for operations without one the last call of the thread that began before they did."""
    call = launched.copy()
    for one in np.unique(thread[launched < 0]):
        tied = np.flatnonzero((launched < 0) & (thread == one))
        first, last = np.searchsorted(calls.thread, (one, one + 1))
        call[tied] = first + np.searchsorted(calls.start[first:last], start[tied], side="right") - 1
    return call


def _never_after_followers(call: Int, stream: Int, calls: Calls) -> Int:
    """Make each thread's calls ascend along a stream: tied work comes no later than what queues behind it."""
    ascending = call.copy()
    thread = gather(calls.thread, call)
    order = np.lexsort((thread, stream))  # in order within each stream and thread
    bounds = np.flatnonzero((np.diff(stream[order]) != 0) | (np.diff(thread[order]) != 0)) + 1
    for first, last in zip((0, *bounds), (*bounds, len(call)), strict=True):
        here = order[first:last]
        ascending[here] = np.minimum.accumulate(call[here][::-1])[::-1]
    return ascending


def _tell_cause(ops: Ops, calls: Calls, stream_device: Int) -> _Timing:
    """Why each operation started when it did: its launch, its stream, another stream, or itself."""
    after_launch = (ops.start - gather(calls.end, ops.call)).astype(np.float32)
    gap, is_first = _gap_in_stream(ops)
    follows_sibling = _follows_sibling(ops)
    is_late_node = _is_late_node(ops, len(calls.call_id))
    is_launched = ~ops.is_tied & (after_launch < HOST_CAUSED_NS) & ~is_late_node
    is_queued = ~ops.is_tied & ~is_launched & ~is_first & (gap < QUEUED_NS)
    source = _find_sources(ops, stream_device, ~ops.is_tied & ~is_launched & ~is_queued)
    # inside one graph only the device can be late; and what stood in the queue longer than it waited behind the one
    # before started when that one had ended, not so and so long after its launch
    stood = after_launch - gap
    is_queued |= ~ops.is_tied & (source < 0) & (follows_sibling | (~is_launched & ~is_first & (stood > gap)))
    is_crossing = source >= 0

    observed = (ops.start - gather(calls.start, ops.call)).astype(np.float32)
    usual = median_by_group(observed, latency_class(ops), is_launched, DEFAULT_LATENCY_NS)
    latency = np.where(is_queued | is_crossing, np.minimum(usual, observed), observed)
    distance = np.where(is_queued, gap, np.minimum(np.float32(IDLE_DISTANCE_NS), gap))
    source_distance = np.zeros(len(source), dtype=np.float32)
    source_distance[is_crossing] = ops.start[is_crossing] - ops.end[source[is_crossing]]
    return _Timing(latency, distance, source, source_distance, is_queued)


def latency_class(ops: Ops) -> Int:
    """Operations whose launches take about as long: by kind, those of graph launches apart."""
    return ops.kind + 4 * ops.is_graph


def median_by_group(values: Real, group: Int, among: Flag, default: float) -> Real:
    """Median of `values` over the elements in `among` with the same small group number, for every element."""
    medians = np.full(int(group.max(initial=-1)) + 1, default, dtype=values.dtype)
    for one in np.unique(group[among]):
        medians[one] = np.median(values[among & (group == one)])
    return gather(medians, group)


def _gap_in_stream(ops: Ops) -> tuple[Real, Flag]:
    """Time from the latest end before it in its stream to each start; 0 for the first of a stream."""
    latest = running_end(ops.stream, ops.end)
    is_first = np.ones(len(ops.op_id), dtype=np.bool_)
    is_first[1:] = ops.stream[1:] != ops.stream[:-1]
    gap = np.zeros(len(ops.op_id), dtype=np.float32)
    gap[1:] = ops.start[1:] - latest[:-1]
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
    device = gather(stream_device, ops.stream)
    for one in np.unique(device[among]):
        members = np.flatnonzero(device == one)
        by_end = members[np.argsort(ops.end[members], kind="stable")]
        late = np.flatnonzero(among & (device == one))
        place = np.searchsorted(ops.end[by_end], ops.start[late], side="right") - 1
        found = by_end[np.maximum(place, 0)]
        is_real = (
            (place >= 0)
            & (ops.start[late] - ops.end[found] < CROSS_STREAM_NS)
            & (ops.stream[found] != ops.stream[late])
            & (ops.start[found] < ops.start[late])
        )
        source[late[is_real]] = found[is_real]
    return source
