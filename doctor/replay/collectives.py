"""Ties the ranks of a job together: a collective ends when its last rank has come and the data has moved.

Recorded, a collective's kernel lasts from the arrival of its rank to the end, waiting included. Here each becomes two
operations: the arrival, which takes no time, and the transfer, which starts once every rank has arrived. So a rank that
comes sooner lets the others go sooner, and shortening a transfer does not shorten a wait.

Which kernels are one collective is told by their ends: they have the same name, run on different devices at the same
time, and end within 50 us of each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from doctor.replay.run import Flag, Int, Ops, Real

SAME_END_NS = 50_000.0
MOMENT_NS = 0.25
"""Recorded times are whole nanoseconds: fractions put arrival, meeting and transfer in order."""


@dataclass(frozen=True)
class Meeting:
    """Kernels of one collective: positions of operations, and when the last of them started."""

    ops: tuple[int, ...]
    met: float


def find_meetings(ops: Ops, collective: Int, device: Int) -> list[Meeting]:
    """Collectives seen on two devices or more.

    Args:
        ops: operations.
        collective: of each operation, a number of the collective's name, or -1.
        device: of each operation.
    """
    members = np.flatnonzero(collective >= 0)
    members = members[np.lexsort((ops.end[members], collective[members]))]
    if len(np.unique(device[members])) < 2:
        return []
    groups: list[list[int]] = []
    seen: set[int] = set()
    for op in members.tolist():
        last = groups[-1][-1] if groups else op
        is_same = collective[op] == collective[last] and ops.end[op] - ops.end[last] <= SAME_END_NS
        if not groups or not is_same or device[op] in seen:
            groups.append([])
            seen = set()
        groups[-1].append(op)
        seen.add(device[op])
    return [meeting for group in groups if (meeting := _meeting(group, ops)) is not None]


def _meeting(group: list[int], ops: Ops) -> Meeting | None:
    met = max(ops.start[op] for op in group)
    if len(group) < 2 or met + 4 * MOMENT_NS > min(ops.end[op] for op in group):
        return None
    return Meeting(tuple(group), float(met))


def split(ops: Ops, meetings: list[Meeting], stream_count: int) -> Ops:
    """Operations with every collective split into arrival and transfer, and one more stream in which ranks meet."""
    if not meetings:
        return ops
    at = np.asarray([op for meeting in meetings for op in meeting.ops], dtype=np.int64)
    met = np.asarray([meeting.met for meeting in meetings for _ in meeting.ops])
    size = np.asarray([len(meeting.ops) for meeting in meetings])
    is_collective = np.zeros(len(ops.op_id), dtype=np.bool_)
    is_collective[at] = True
    return _with_sources(ops, is_collective, at, met, size, stream_count)


def _with_sources(ops: Ops, is_collective: Flag, at: Int, met: Real, size: Int, stream_count: int) -> Ops:
    position = np.arange(len(ops.op_id)) + np.cumsum(is_collective) - is_collective  # of arrivals and of all others
    copies = np.repeat(np.arange(len(ops.op_id)), 1 + is_collective)
    laid_out = {name: getattr(ops, name)[copies] for name in ops.__dataclass_fields__}
    source = laid_out["source"]
    source[source >= 0] = (position + is_collective)[source[source >= 0]]  # whoever awaits a collective awaits its end
    arrival, transfer = position[at], position[at] + 1

    laid_out["op_id"][arrival] = -1
    laid_out["end"][arrival] = laid_out["start"][arrival]
    laid_out["duration"][arrival] = 0.0
    laid_out["start"][transfer] = met + 2 * MOMENT_NS
    laid_out["duration"][transfer] = laid_out["end"][transfer] - laid_out["start"][transfer]
    laid_out["latency"][transfer] = -np.inf
    laid_out["distance"][transfer] = 0.0
    laid_out["source_distance"][transfer] = MOMENT_NS
    laid_out["is_queued"][transfer] = False

    meeting = _meeting_points(ops, arrival, laid_out["start"][arrival], stream_count)
    order = np.argsort(meeting.start, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) + len(copies)
    last_of_meeting = np.repeat(np.maximum.reduceat(place, np.cumsum(size) - size), size)
    laid_out["source"][transfer] = last_of_meeting
    return Ops(**{name: np.concatenate((values, getattr(meeting, name)[order])) for name, values in laid_out.items()})


def _meeting_points(ops: Ops, arrival: Int, start: Real, stream: int) -> Ops:
    """One point for each arrival, all in one stream: the last of a meeting is there when all its ranks are."""
    count = len(arrival)
    none, zero = np.full(count, -1, dtype=np.int64), np.zeros(count)
    false = np.zeros(count, dtype=np.bool_)
    point = start + MOMENT_NS
    return replace(
        ops,
        op_id=none,
        stream=np.full(count, stream, dtype=np.int64),
        call=np.zeros(count, dtype=np.int64),
        start=point,
        end=point,
        duration=zero,
        latency=np.full(count, -np.inf),
        distance=zero,
        source=arrival,
        source_distance=np.full(count, MOMENT_NS),
        kind=np.zeros(count, dtype=np.int64),
        is_tied=~false,
        is_queued=false,
        is_graph=false,
        holds_host=false,
    )
