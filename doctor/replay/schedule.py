"""Max-plus replay: when does the last operation end?

The run is cut into pieces: consecutive operations of one stream that were launched between the same two waits, cut
further behind each operation that somebody awaits and before each one that awaits another stream. Inside a piece
everything is known up to two unknowns, when its thread resumed (h) and when its stream had ended before (e); its end
is `max(e + S, h + X)` with two numbers that numpy computes for all pieces at once. What is left is one short pass
over pieces and waits in recorded order, which is a topological order. Linear in calls and operations.
Source: max-plus algebra, Baccelli, Cohen, Olsder and Quadrat, "Synchronization and Linearity", 1992.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from doctor.case.arrays.columns import IN_CACHE, gather, slices
from doctor.replay.intervals import running_end
from doctor.replay.run import Calls, Flag, Int, Real, Run, Waits


@dataclass(frozen=True)
class Plan:
    """Pieces and their order; depends on who waits for whom, not on durations, so that most cures share it.

    Attributes:
        segment: of each operation, the stretch of its thread between two waits.
        resumed_after: position of the call after which each segment begins.
        wait_segment: segment that each wait ends.
        next_segment: segment that each wait begins.
        first: first operation of each piece.
        last: last operation of each piece.
        stream: of each piece.
        source_piece: piece whose end the first operation also awaits, or -1.
        awaited_piece: of each entry of `Waits.op`.
        events: pieces (p >= 0) and waits (-1 - w) in topological order.
        stream_count: number of streams.
        segment_count: number of segments.
    """

    segment: Int
    resumed_after: Int
    wait_segment: Int
    next_segment: Int
    first: Int
    last: Int
    stream: Int
    source_piece: Int
    awaited_piece: Int
    events: Int
    stream_count: int
    segment_count: int


@dataclass(frozen=True)
class Schedule:
    """Times of a replay, in ns from the window's start.

    Attributes:
        piece_end: latest end in its stream up to the end of each piece.
        wait_end: return of each wait.
    """

    piece_end: Real
    wait_end: Real

    @property
    def makespan_ns(self) -> float:
        """End of the last operation."""
        return float(self.piece_end.max(initial=0.0))


def plan(run: Run) -> Plan:
    """Cut the run into pieces and order them."""
    calls, ops, waits = run.calls, run.ops, run.waits
    segment_of_call, starts = _segments(run)
    segment = gather(segment_of_call, ops.call)
    time = _order_time(run, segment, starts)
    source = np.where(gather(time, ops.source) < time, ops.source, -1) if len(time) else ops.source
    is_first = _cuts(run, segment, source)
    piece_of_op = np.cumsum(is_first, dtype=np.int32) - 1
    first = np.flatnonzero(is_first)
    last = np.append(first[1:] - 1, len(is_first) - 1) if len(first) else first
    wait_segment = segment_of_call[waits.call]
    is_last_call = np.append(calls.thread[1:] != calls.thread[:-1], True)
    return Plan(
        segment,
        starts - 1,
        wait_segment,
        np.where(is_last_call[waits.call], len(starts), wait_segment + 1),
        first,
        last,
        ops.stream[first],
        np.where(source[first] >= 0, piece_of_op[source[first]], -1),
        piece_of_op[waits.op],
        _topological(time[last], waits.end),
        int(ops.stream.max(initial=-1)) + 1,
        len(starts) + 1,
    )


def _segments(run: Run) -> tuple[Int, Int]:
    """Segment of each call, and the first call of each segment: one begins with each thread and behind each wait."""
    thread = run.calls.thread
    opens = np.zeros(len(thread), dtype=np.bool_)
    opens[1:] = thread[1:] != thread[:-1]
    opens[:1] = True
    behind = run.waits.call + 1
    opens[behind[behind < len(opens)]] = True
    return np.cumsum(opens, dtype=np.int32) - 1, np.flatnonzero(opens)


def _order_time(run: Run, segment: Int, starts: Int) -> Real:
    """Recorded start, but never before the segment began: clocks of host and device can disagree."""
    waits = run.waits
    began = np.full(len(starts), -np.inf)
    place = np.searchsorted(waits.call, starts - 1)
    is_behind_wait = np.append(waits.call, -1)[place] == starts - 1
    is_behind_wait &= run.calls.call_id[starts] >= 0  # otherwise the wait was another thread's last call
    began[is_behind_wait] = waits.end[place[is_behind_wait]]
    return running_end(run.ops.stream, np.maximum(run.ops.start, gather(began, segment)))


def _cuts(run: Run, segment: Int, source: Int) -> Flag:
    """First operations of pieces."""
    stream = run.ops.stream
    is_first = source >= 0
    is_first[:1] = True
    is_first[1:] |= (stream[1:] != stream[:-1]) | (segment[1:] != segment[:-1])
    behind = np.concatenate((run.waits.op, source[source >= 0])) + 1
    is_first[behind[behind < len(stream)]] = True
    return is_first


def _topological(piece_time: Real, wait_time: Real) -> Int:
    """Pieces by their last start, waits by their return; a wait goes before what it lets start at the same time."""
    time = np.concatenate((wait_time, piece_time))
    is_piece = np.concatenate((np.zeros(len(wait_time)), np.ones(len(piece_time))))
    code = np.concatenate((-1 - np.arange(len(wait_time)), np.arange(len(piece_time))))
    return code[np.lexsort((is_piece, time))].astype(np.int64)


@dataclass(frozen=True)
class _Weights:
    """The numbers of the pass: two of each piece, one of each crossing, three of each wait."""

    stretch: Real
    reach: Real
    crossing: Real
    until_wait: Real
    own: Real
    lag: Real


def replay(run: Run, cut: Plan) -> Schedule:
    """Times of every piece and wait, with the run's present durations. `cut` is the plan of this run's structure."""
    weights = _weigh(run, cut)
    piece_end, wait_end = _pass(cut, run.waits, weights)
    return Schedule(np.asarray(piece_end), np.asarray(wait_end))


def _weigh(run: Run, cut: Plan) -> _Weights:
    calls, ops, waits = run.calls, run.ops, run.waits
    began, resumed = _host_clock(calls, cut)
    count = len(cut.first)
    before, until_last, farthest = np.empty(count), np.empty(count), np.empty(count)
    clock = 0.0
    for part, firsts, lasts in zip(*_parts(len(ops.call), cut.first, cut.last), strict=True):
        device_clock = np.add(ops.distance[part], ops.duration[part], dtype=np.float64)
        np.maximum(device_clock, 0.0, out=device_clock)
        first = cut.first[firsts] - part.start
        growth_of_first = device_clock[first]
        device_clock[:1] += clock  # added up in the order of all operations
        np.cumsum(device_clock, out=device_clock)
        clock = device_clock[-1] if len(device_clock) else clock
        before[firsts] = device_clock[first] - growth_of_first
        until_last[lasts] = device_clock[cut.last[lasts] - part.start]
        reach = gather(began, ops.call[part])
        reach -= gather(resumed, cut.segment[part])
        reach += ops.latency[part]
        reach += ops.duration[part]
        reach -= device_clock
        _farthest(reach, first, firsts, farthest)
    return _Weights(
        until_last - before,
        farthest + until_last,
        ops.source_distance[cut.first] - ops.distance[cut.first],
        began[waits.call] - resumed[cut.wait_segment],
        calls.own[waits.call],
        np.where(waits.is_active, waits.lag, -np.inf),
    )


def _host_clock(calls: Calls, cut: Plan) -> tuple[Real, Real]:
    """When each call began and each segment resumed, if no call waited. Part by part: there may be ten million."""
    began, resumed = np.empty(len(calls.own)), np.zeros(len(cut.resumed_after))
    clock = 0.0
    for part, behind in zip(*_parts(len(began), cut.resumed_after), strict=True):
        ended = np.add(calls.silence[part], calls.own[part], dtype=np.float64, out=began[part])
        ended[:1] += clock
        np.cumsum(ended, out=ended)
        clock = ended[-1] if len(ended) else clock
        resumed[behind] = ended[cut.resumed_after[behind] - part.start]
        ended -= calls.own[part]
    return began, resumed


def _parts(count: int, *ascending: Int) -> Iterator[Sequence[slice]]:
    """Parts of so many rows that stay in the cache, then of each list of rows which entries lie in each part."""
    parts = list(slices(count, IN_CACHE))
    yield parts
    for rows in ascending:
        edges = np.searchsorted(rows, [part.start for part in parts]).tolist()
        yield [slice(first, last) for first, last in zip(edges, (*edges[1:], len(rows)), strict=True)]


def _farthest(reach: Real, first: Int, pieces: slice, farthest: Real) -> None:
    """Largest reach of each piece that begins in a part, or that goes on in it."""
    going_on = reach[: first[0]] if len(first) else reach
    if len(going_on):
        farthest[pieces.start - 1] = max(farthest[pieces.start - 1], going_on.max())
    if len(first):
        farthest[pieces] = np.maximum.reduceat(reach, first)


def _pass(cut: Plan, waits: Waits, weights: _Weights) -> tuple[list[float], list[float]]:
    """The sequential part; lists, since reading one element of an array costs more than the arithmetic."""
    resumed = [0.0] * cut.segment_count
    stream_end = [-np.inf] * cut.stream_count
    piece_end = [0.0] * len(cut.first)
    wait_end = [0.0] * len(waits.call)
    stream, segment = cut.stream.tolist(), cut.segment[cut.first].tolist()
    stretch, reach = weights.stretch.tolist(), weights.reach.tolist()
    source, crossing = cut.source_piece.tolist(), weights.crossing.tolist()
    wait_segment, next_segment = cut.wait_segment.tolist(), cut.next_segment.tolist()
    until, own, lag = weights.until_wait.tolist(), weights.own.tolist(), weights.lag.tolist()
    first, awaited = waits.first.tolist(), cut.awaited_piece.tolist()
    for event in cut.events.tolist():
        if event >= 0:
            before = stream_end[stream[event]]
            if source[event] >= 0:
                before = max(before, piece_end[source[event]] + crossing[event])
            end = max(before + stretch[event], resumed[segment[event]] + reach[event])
            stream_end[stream[event]] = piece_end[event] = end
        else:
            wait = -1 - event
            ended = max(piece_end[piece] for piece in awaited[first[wait] : first[wait + 1]])
            called = resumed[wait_segment[wait]] + until[wait]
            resumed[next_segment[wait]] = wait_end[wait] = max(called + own[wait], ended + lag[wait])
    return piece_end, wait_end
