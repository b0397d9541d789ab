"""What a time-line that people zoom into shows: a bounded row per stream and thread, and close-ups of the evidence."""

from __future__ import annotations

from dataclasses import dataclass

STREAM_KINDS = ("compute", "communication", "copy")
THREAD_KINDS = ("launch", "wait", "other call")


@dataclass(frozen=True)
class Track:
    """One row of the time-line over the whole window.

    Attributes:
        label: `GPU 0, stream 7` or `thread 4242`.
        kinds: what its work is told apart by, `STREAM_KINDS` or `THREAD_KINDS`.
        busy_share: share of the window in which anything ran here, 0 to 1.
        shares: for each kind, the share of each bin that it took, 0 to 1; every track has the same number of bins, of
            equal length.
    """

    label: str
    kinds: tuple[str, ...]
    busy_share: float
    shares: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Span:
    """One piece of work, seen close up.

    Attributes:
        track: index of the row it lies in.
        kind: index into the row's kinds.
        start_ns: on the clock of the window.
        end_ns: its end.
        name: kernel, copy or call.
    """

    track: int
    kind: int
    start_ns: int
    end_ns: int
    name: str


@dataclass(frozen=True)
class CloseUp:
    """All work of the shown rows between two times around a piece of evidence."""

    start_ns: int
    end_ns: int
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class ZoomableTimeline:
    """Rows and close-ups; empty unless it was asked for, since it takes a pass over all work.

    Attributes:
        tracks: rows.
        close_ups: where single pieces of work can be seen; they do not overlap.
        steps: start and end of the engine's steps, of the process that takes most of them; empty where there are none,
            or too many to draw.
    """

    tracks: tuple[Track, ...] = ()
    close_ups: tuple[CloseUp, ...] = ()
    steps: tuple[tuple[int, int], ...] = ()
