"""Builds the zoomable time-line of a case: rows of streams and threads, and close-ups where findings point."""

from __future__ import annotations

from collections.abc import Iterable

import duckdb

from doctor.case import track_queries as queries
from doctor.diagnosis.tracks import STREAM_KINDS, THREAD_KINDS, CloseUp, Span, Track, ZoomableTimeline
from doctor.rule import Evidence

MOST_CLOSE_UPS = 10
MOST_LETTERS_OF_A_NAME = 120


def zoomable_timeline(
    connection: duckdb.DuckDBPyConnection, evidence: Iterable[Evidence], start_ns: int, end_ns: int
) -> ZoomableTimeline:
    """The time-line of a derived case.

    Args:
        connection: a derived case with a window.
        evidence: of the findings, most telling first; its places are seen close up.
        start_ns: of the window.
        end_ns: of the window.
    """
    rows = queries.prepare(connection)
    try:
        tracks = _tracks(rows, queries.cells(connection), end_ns - start_ns)
        close_ups = _close_ups(connection, [time for time in _moments(evidence) if start_ns <= time < end_ns])
        steps = queries.steps(connection)
    finally:
        queries.release(connection)
    return ZoomableTimeline(tracks, close_ups, steps)


def _tracks(
    rows: tuple[queries.TrackRow, ...], cells: tuple[queries.TrackCell, ...], length_ns: int
) -> tuple[Track, ...]:
    shares = {(row.track_id, kind): [0.0] * queries.BINS for row in rows for kind in range(len(STREAM_KINDS))}
    for cell in cells:
        shares[cell.track_id, cell.kind][cell.bin] = cell.share
    are_many = len({(row.source_id, row.pid) for row in rows}) > 1
    return tuple(
        Track(
            _label(row, are_many=are_many),
            STREAM_KINDS if row.is_stream else THREAD_KINDS,
            min(row.busy_ns / max(length_ns, 1), 1.0),
            tuple(tuple(shares[row.track_id, kind]) for kind in range(len(STREAM_KINDS))),
        )
        for row in rows
    )


def _label(row: queries.TrackRow, *, are_many: bool) -> str:
    process = f"process {row.pid}, " if are_many and row.pid is not None else ""
    if row.is_stream:
        return f"{process}GPU {row.device_id}, stream {row.stream_id}"
    name = row.thread_name or ""
    if name.startswith("thread "):  # a PyTorch trace repeats the number in the name
        return f"{process}{name}"
    return f"{process}thread {row.tid}" + (f" ({name})" if name else "")


def _moments(evidence: Iterable[Evidence]) -> list[int]:
    return [entry.where.start_ns for entry in evidence if entry.where is not None and entry.where.start_ns is not None]


def _close_ups(connection: duckdb.DuckDBPyConnection, moments: list[int]) -> tuple[CloseUp, ...]:
    """One for each moment that no earlier one shows; they do not overlap."""
    found: list[CloseUp] = []
    for moment in moments:
        if len(found) == MOST_CLOSE_UPS:
            break
        if any(known.start_ns <= moment < known.end_ns for known in found):
            continue
        low, high, spans = queries.spans_around(connection, moment)
        low = max([low, *(known.end_ns for known in found if known.end_ns <= moment)])
        high = min([high, *(known.start_ns for known in found if known.start_ns > moment)])
        shown = tuple(_span(row) for row in spans if row.end_ns > low and row.start_ns < high)
        if shown and high > low:
            found.append(CloseUp(low, high, shown))
    return tuple(sorted(found, key=lambda close_up: close_up.start_ns))


def _span(row: queries.SpanRow) -> Span:
    return Span(row.track_id, row.kind, row.start_ns, row.end_ns, row.name[:MOST_LETTERS_OF_A_NAME])
