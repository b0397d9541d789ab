"""The clocks of a recording, and how one is turned into another.

A report holds its clocks as a graph. Until 2025.5 the header lists pairs of numbered clocks with `a = b + offset`;
since 2025.6 a section of its own names clocks by UUID, gives each a kind, and ties two of them together by a point in
time that both show and the ratio of their rates. Only ties of equal rate are followed here: GPU and CPU counters run at
rates of their own, but the way from events to UTC does not pass them.

Checked against the start times (UTC, local, machine) of the exports of 30 recordings.
"""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from doctor.formats.nsys_report import wire
from doctor.formats.nsys_report.wire import Message, WireError

_INT64 = 1 << 64
_EQUAL_RATE = struct.unpack("<Q", struct.pack("<d", 1.0))[0]
_OLD_EVENTS, _OLD_SYSTEM, _OLD_UTC, _OLD_LOCAL = 7, 3, 9, 10
_NEW_EVENTS, _NEW_UTC, _NEW_LOCAL = 14, 11, 12
_NEW_SYSTEMS = (7, 10)

Ties = list[tuple[Hashable, Hashable, int]]
"""(a, b, offset) with `b = a + offset`."""


@dataclass(frozen=True)
class StartTimes:
    """The start of the capture window, which is time 0 of the events, on other clocks; None where no way leads there.

    Attributes:
        utc_ns: since the epoch.
        local_ns: the same in the local time of the machine, as if it were UTC.
        system_ns: on the machine's monotonic clock.
    """

    utc_ns: int | None = None
    local_ns: int | None = None
    system_ns: int | None = None


def read_start_times(header: Message, time_conversion: bytes | None) -> StartTimes:
    """Find the start of the capture window on every clock of interest.

    Args:
        header: the header of the event stream.
        time_conversion: the section "Time Conversion Data", None where the report has none.
    """
    try:
        if time_conversion is not None:
            return _new_start_times(Message(time_conversion))
        shown = _reach(_OLD_EVENTS, list(_old_ties(header)))
    except WireError:
        return StartTimes()
    return StartTimes(shown.get(_OLD_UTC), shown.get(_OLD_LOCAL), shown.get(_OLD_SYSTEM))


def _old_ties(header: Message) -> Iterator[tuple[int, int, int]]:
    for group in header.messages(16):
        for pair in group.messages(1):
            first, second, text = pair.integer(1), pair.integer(2), pair.text(5) or ""
            is_offset = pair.text(6) == "Offset" and re.fullmatch(r"-?[0-9]{1,20}", text)
            if is_offset and first is not None and second is not None:
                yield first, second, -wire.signed(int(text) % _INT64)


def _new_start_times(message: Message) -> StartTimes:
    kinds: dict[int | None, list[bytes | None]] = {}
    for clocks in message.messages(1):
        for clock in clocks.messages(1):
            kinds.setdefault(clock.integer(2), []).append(clock.raw(1))
    ties: Ties = []
    for group in message.messages(2):
        for pair in group.messages(1):
            tie = _new_tie(pair)
            if tie is not None:
                ties.append(tie)
    events = kinds.get(_NEW_EVENTS)
    if not events:
        return StartTimes()
    shown = _reach(events[0], ties)
    found = [_first(shown, [clock for kind in group for clock in kinds.get(kind, [])]) for group in _NEW_GROUPS]
    return StartTimes(*found)


_NEW_GROUPS = ((_NEW_UTC,), (_NEW_LOCAL,), _NEW_SYSTEMS)


def _new_tie(pair: Message) -> tuple[bytes, bytes, int] | None:
    first, second, tie = pair.raw(1), pair.raw(2), pair.message(3)
    if first is None or second is None or tie is None or tie.integer(2) != _EQUAL_RATE:
        return None
    point = tie.message(1)
    if point is None:
        return None
    return first, second, (point.integer(2) or 0) - (point.integer(1) or 0)


def _reach(start: Hashable, ties: Ties) -> dict[Hashable, int]:
    """What every clock that can be reached shows at time 0 of the first."""
    neighbours: dict[Hashable, list[tuple[Hashable, int]]] = {}
    for first, second, offset in ties:
        neighbours.setdefault(first, []).append((second, offset))
        neighbours.setdefault(second, []).append((first, -offset))
    shown: dict[Hashable, int] = {start: 0}
    waiting = deque([start])
    while waiting:
        clock = waiting.popleft()
        for other, offset in neighbours.get(clock, []):
            if other not in shown:
                shown[other] = shown[clock] + offset
                waiting.append(other)
    return shown


def _first(shown: dict[Hashable, int], clocks: list[bytes | None]) -> int | None:
    return next((shown[clock] for clock in clocks if clock in shown), None)
