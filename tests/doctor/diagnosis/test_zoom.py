"""The time-line to zoom into says what the case says: counted again by plain queries on a real recording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise

import duckdb
import pytest

import doctor
from doctor.case import track_queries
from doctor.diagnosis.catalogue import load_catalogue
from doctor.diagnosis.options import DiagnosisOptions
from doctor.diagnosis.outcome import Diagnosis, Window
from doctor.diagnosis.runner import diagnose_case
from doctor.diagnosis.tracks import STREAM_KINDS, ZoomableTimeline
from doctor.diagnosis.zoom import MOST_CLOSE_UPS, zoomable_timeline
from doctor.rule import Evidence, Where
from tests.support.case_rows import GEMM, Rows
from tests.support.samples import sample, trace_of

Known = tuple[duckdb.DuckDBPyConnection, Diagnosis]


@pytest.fixture(scope="module")
def known() -> Iterator[Known]:
    with closing(doctor.load(trace_of(sample("engine-pageable-weights")))) as case:
        yield case, diagnose_case(case, load_catalogue(), DiagnosisOptions(is_zoomable=True))


def window_of(diagnosis: Diagnosis) -> Window:
    assert diagnosis.window is not None
    return diagnosis.window


def made(rows: Rows, *moments_us: int) -> ZoomableTimeline:
    with rows.derived() as case:
        [(start, end)] = case.execute("SELECT from_ns, until_ns FROM steady_window").fetchall()
        places = [Evidence("place", 1, "", Where(start_ns=moment * 1000)) for moment in moments_us]
        return zoomable_timeline(case, places, start, end)


def test_it_is_carried_only_where_it_is_asked_for(known: Known) -> None:
    case, diagnosis = known
    assert diagnosis.display.zoom.tracks
    assert not diagnose_case(case, load_catalogue(), DiagnosisOptions()).display.zoom.tracks


def test_a_stream_is_busy_as_long_as_its_operations_cover(known: Known) -> None:
    case, diagnosis = known
    [(busy_ns,)] = case.execute("SELECT busy_ns FROM device_busy").fetchall()
    window = window_of(diagnosis)
    [stream] = [track for track in diagnosis.display.zoom.tracks if track.kinds == STREAM_KINDS]
    assert stream.busy_share * (window.end_ns - window.start_ns) == pytest.approx(busy_ns)


def test_bins_add_up_to_the_time_of_each_kind(known: Known) -> None:
    case, diagnosis = known
    window = window_of(diagnosis)
    [(copied_ns,)] = case.execute(
        "SELECT coalesce(sum(least(end_ns, until_ns) - greatest(start_ns, from_ns)), 0) FROM device_op, steady_window"
        " WHERE kind IN ('memcpy', 'memset') AND end_ns > from_ns AND start_ns < until_ns"
    ).fetchall()
    [stream] = [track for track in diagnosis.display.zoom.tracks if track.kinds == STREAM_KINDS]
    shares = stream.shares[STREAM_KINDS.index("copy")]
    assert len(shares) == track_queries.BINS
    # bins differ by one ns at most
    assert sum(shares) / len(shares) * (window.end_ns - window.start_ns) == pytest.approx(copied_ns, rel=1e-4)


def test_a_close_up_holds_everything_that_runs_in_it_and_shows_the_evidence(known: Known) -> None:
    case, diagnosis = known
    close_ups = diagnosis.display.zoom.close_ups
    assert 0 < len(close_ups) <= MOST_CLOSE_UPS
    for close_up in close_ups:
        [(there,)] = case.execute(
            "SELECT (SELECT count(*) FROM device_op WHERE end_ns > $low AND start_ns < $high)"
            " + (SELECT count(*) FROM host_call WHERE end_ns > $low AND start_ns < $high)",
            {"low": close_up.start_ns, "high": close_up.end_ns},
        ).fetchall()
        assert len(close_up.spans) == there
    starts = [entry.where.start_ns for one in diagnosis.findings for entry in one.evidence if entry.where is not None]
    assert any(one.start_ns <= start < one.end_ns for start in starts if start is not None for one in close_ups)
    assert all(before.end_ns <= after.start_ns for before, after in pairwise(close_ups))


def test_steps_are_those_of_the_diagnosis(known: Known) -> None:
    _, diagnosis = known
    steps = diagnosis.display.zoom.steps
    assert len(steps) == window_of(diagnosis).steps
    assert all(before[1] <= after[0] for before, after in pairwise(steps))


def test_work_that_overlaps_on_a_stream_counts_once() -> None:
    rows = Rows()
    rows.launched(GEMM, 0, 10, 50)
    rows.launched(GEMM, 2, 30, 60)
    rows.launched(GEMM, 90, 100, 110)
    stream = made(rows).tracks[0]
    assert stream.busy_share == pytest.approx(0.6)  # 60 of the 100 us from the first kernel on
    assert max(stream.shares[0]) <= 1


def test_two_places_beside_each_other_are_one_close_up() -> None:
    rows = Rows()
    for place in range(40):
        rows.launched(GEMM, place * 20, place * 20 + 5, place * 20 + 10)
    assert len(made(rows, 100, 105, 10_000).close_ups) == 1


def test_rows_are_bounded_and_the_busiest_streams_are_kept() -> None:
    rows = Rows()
    for stream in range(30):
        rows.launched(GEMM, stream * 100, stream * 100 + 5, stream * 100 + 10 + stream, stream_id=stream)
    tracks = [track for track in made(rows).tracks if track.kinds == STREAM_KINDS]
    assert len(tracks) == track_queries.MOST_STREAMS
    assert {track.label for track in tracks} == {f"GPU 0, stream {stream}" for stream in range(22, 30)}
