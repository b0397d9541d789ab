"""The time-line of a real recording, at any zoom: bins and items tell the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from doctor.case.kernel_queries import kernels_by_family, kernels_by_name
from doctor.case.memory_queries import copy_groups, device_memories
from doctor.case.step_queries import phases, step_columns, steps
from doctor.case.timeline.drawing import Lane, draw, extent, lanes
from doctor.case.timeline.items import Work
from doctor.case.timeline.picture import Cursor, picture
from doctor.case.timeline.places import (
    facts_of,
    item_after,
    item_at,
    item_before,
    longest_named,
    named_after,
    range_place,
    silence_at,
)
from doctor.case.timeline.prepare import open_for_viewing, prepare, viewing_cursor
from doctor.case.timeline.tracks import track_cells, tracks
from doctor.case.timeline.view import SHORTEST_NS, View
from tests.support.samples import sample, trace_of
from tests.support.terminal_app import saved_case


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    path = saved_case(trace_of(sample("pageable-copies")), tmp_path_factory.mktemp("case"))
    connection = open_for_viewing(path)
    prepare(connection)
    yield connection
    connection.close()


def stream_of(case: duckdb.DuckDBPyConnection) -> Lane:
    return next(lane for lane in lanes(case) if lane.kind == "stream")


def whole(case: duckdb.DuckDBPyConnection, cells: int) -> View:
    span = extent(case)
    assert span is not None
    return View(span[0], span[1] - span[0], cells)


def test_lanes_come_as_steps_streams_threads_and_ranges(case: duckdb.DuckDBPyConnection) -> None:
    kinds = [lane.kind for lane in lanes(case)]
    assert kinds == sorted(kinds, key=["step", "stream", "thread", "range"].index)
    assert [lane.depth for lane in lanes(case) if lane.kind == "range"] == [0, 1, 2]


@pytest.mark.parametrize("zoom", [1, 7, 50, 900])
def test_cells_add_up_to_the_work_in_the_view_at_any_zoom(case: duckdb.DuckDBPyConnection, zoom: int) -> None:
    lane = stream_of(case)
    view = whole(case, 100)
    view = view.zoomed(zoom, view.start_ns + view.length_ns // 3)
    drawn = draw(case, view, [lane.lane_id]).cells[lane.lane_id]
    [(busy_ns,)] = case.execute(
        "SELECT sum(least(end_ns, $end) - greatest(start_ns, $start)) FROM device_op "
        "WHERE start_ns < $end AND end_ns > $start",
        {"start": view.start_ns, "end": view.end_ns},
    ).fetchall()
    assert sum(cell.share for cell in drawn) * view.cell_ns == pytest.approx(float(busy_ns), rel=0.02)
    assert all(0 <= cell.cell < view.cells for cell in drawn)


def test_every_item_that_is_two_cells_wide_is_drawn_by_name(case: duckdb.DuckDBPyConnection) -> None:
    lane = stream_of(case)
    view = whole(case, 100)
    view = view.zoomed(30, view.start_ns + view.length_ns // 8)
    [(count,)] = case.execute(
        "SELECT count(*) FROM device_op "
        "WHERE start_ns < $end AND end_ns >= $start AND (end_ns - start_ns) * 100 >= 2 * $length",
        {"start": view.start_ns, "end": view.end_ns, "length": view.length_ns},
    ).fetchall()
    items = draw(case, view, [lane.lane_id]).items
    assert len(items) == count > 0
    assert all(item.name or item.work is not Work.COMPUTE for item in items)


@pytest.mark.parametrize("length_ns", [2**30 + 1, 2**31 - 1, 2**31 + 1, 2**45])
def test_views_of_any_length_are_drawn(case: duckdb.DuckDBPyConnection, length_ns: int) -> None:
    lane = stream_of(case)
    view = View(whole(case, 1).start_ns, length_ns, 100)
    drawn = draw(case, view, [lane.lane_id])
    assert drawn.cells[lane.lane_id][0].cell == 0
    near = draw(case, view.zoomed(40, view.start_ns), [lane.lane_id])
    assert near.cells[lane.lane_id]


def test_an_item_is_found_by_place_by_neighbour_and_by_name(case: duckdb.DuckDBPyConnection) -> None:
    lane = stream_of(case)
    first = item_after(case, lane.lane_id, whole(case, 1).start_ns - 1)
    assert first is not None
    second = item_after(case, lane.lane_id, first.start_ns)
    assert second is not None
    assert item_before(case, lane.lane_id, second.start_ns) == first
    assert item_at(case, lane.lane_id, second.start_ns, second.start_ns + 1) == second
    named = named_after(case, "NVJET", 0)
    assert named is not None
    assert "nvjet" in named.name
    longest = longest_named(case, named.name)
    assert longest is not None
    assert longest.end_ns - longest.start_ns >= named.end_ns - named.start_ns
    assert named_after(case, "no such kernel", 0) is None


def test_a_copy_tells_its_memory_and_its_call(case: duckdb.DuckDBPyConnection) -> None:
    lane = stream_of(case)
    view = whole(case, 50)
    items = draw(case, view.zoomed(30, view.start_ns + view.length_ns // 8), [lane.lane_id]).items
    copy = next(item for item in items if item.work is Work.COPY)
    facts = facts_of(case, copy)
    assert "htod (pageable to device)" in facts.facts
    assert facts.launch is not None
    assert facts.launch.start_ns < copy.start_ns


def test_silence_is_told_from_work(case: duckdb.DuckDBPyConnection) -> None:
    lane = stream_of(case)
    [(start_ns, end_ns)] = case.execute(
        "SELECT start_ns, end_ns FROM device_gap ORDER BY end_ns - start_ns DESC LIMIT 1"
    ).fetchall()
    middle = (start_ns + end_ns) // 2
    assert silence_at(case, lane.lane_id, middle, end_ns - start_ns) == (start_ns, end_ns)
    assert silence_at(case, lane.lane_id, middle, 1) == (None, None)
    view = View(start_ns, end_ns - start_ns, 10)
    shown = picture(case, view, [lane.lane_id], Cursor(lane.lane_id, middle))
    assert shown.selected is None
    assert shown.silence_ns == (start_ns, end_ns)


def test_a_range_is_found_by_its_name(case: duckdb.DuckDBPyConnection) -> None:
    place = range_place(case, "decode_step")
    assert place is not None
    assert place[1] > place[0]
    assert range_place(case, "no such range") is None


def test_what_was_held_when_the_recording_began_is_in_every_cell(case: duckdb.DuckDBPyConnection) -> None:
    (track,) = tracks(case)
    values = track_cells(case, whole(case, 20))[track.track_id]
    assert len(values) == 20
    assert values[0] is not None
    assert max(value or 0.0 for value in values) <= track.top


def test_samples_without_a_recording_make_a_timeline_of_their_own(tmp_path: Path) -> None:
    lines = ["timestamp, name, index, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W]"]
    lines += [
        f"2025/11/20 10:00:0{n}.000, NVIDIA H200, 0, {n * 10} %, {n} MiB, 143771 MiB, {n}.00 W" for n in range(10)
    ]
    (tmp_path / "smi.csv").write_text("\n".join(lines) + "\n", "utf-8")
    connection = open_for_viewing(saved_case(tmp_path / "smi.csv", tmp_path))
    prepare(connection)
    found = {track.label: track for track in tracks(connection)}
    assert found["busy"].top == pytest.approx(0.9)
    assert found["memory"].top == 9 * 2**20
    values = track_cells(connection, whole(connection, 3))[found["power"].track_id]
    assert [round(value or 0.0) for value in values] == [2, 5, 8]
    assert lanes(connection) == ()
    connection.close()


def test_two_cursors_see_the_same_lanes(case: duckdb.DuckDBPyConnection) -> None:
    assert lanes(viewing_cursor(case)) == lanes(case)


def test_kernels_add_up_by_name_and_by_family(case: duckdb.DuckDBPyConnection) -> None:
    names, families = kernels_by_name(case), kernels_by_family(case)
    assert sum(group.total_ns for group in names) == sum(group.total_ns for group in families)
    assert sum(group.share for group in names) == pytest.approx(1.0)
    window = kernels_by_name(case, (names[0].total_ns, names[0].total_ns))
    assert window == ()


def test_steps_have_their_phase_and_outliers(case: duckdb.DuckDBPyConnection) -> None:
    found = steps(case, 1000)
    assert [step.start_ns for step in found] == sorted(step.start_ns for step in found)
    assert {step.phase for step in found} == {"decode", "prefill"}
    assert sum(phase.count for phase in phases(case)) == len(found)
    assert len(steps(case, 3)) == 3
    assert len(step_columns(case, 4)) == 4


def test_copies_are_told_by_their_memory(case: duckdb.DuckDBPyConnection) -> None:
    largest = copy_groups(case)[0]
    assert (largest.direction, largest.src_kind) == ("htod", "pageable")
    assert largest.rate_bytes_per_s == pytest.approx(largest.size_bytes * 1e9 / largest.total_ns)
    assert device_memories(case)[0].name == "NVIDIA H200"


def test_a_view_keeps_the_time_under_the_cursor_and_stays_inside() -> None:
    view = View(1_000_000, 1_000_000, 100)
    zoomed = view.zoomed(4, 1_250_000)
    assert zoomed.cell_of(1_250_000) == view.cell_of(1_250_000)
    assert zoomed.length_ns == 250_000
    assert view.zoomed(10**9, 1_500_000).length_ns == SHORTEST_NS
    assert view.panned(5.0).inside(1_000_000, 3_000_000) == View(2_000_000, 1_000_000, 100)
    assert view.zoomed(0.001, 0).inside(1_000_000, 3_000_000) == View(1_000_000, 2_000_000, 100)


def test_a_case_opened_for_viewing_cannot_be_written(tmp_path: Path) -> None:
    path = saved_case(trace_of(sample("engine-no-cuda-graphs")), tmp_path)
    connection = open_for_viewing(path)
    with pytest.raises(duckdb.Error):
        connection.execute("DROP TABLE kernel")
    connection.close()
