"""Which threads of a process launch by turns, and how the host fares where they launch at once. Times are us."""

from __future__ import annotations

import duckdb
import pytest

from tests.support.case_rows import ADD, GEMM, Rows


def launchers(rows: Rows) -> dict[int, int]:
    """Launcher of each thread."""
    return dict(rows.derived().execute("SELECT tid, launcher_id FROM launcher").fetchall())


def launch(rows: Rows, tid: int, at: float, until: float, kernel: str = GEMM) -> None:
    rows.kernel(kernel, until + 1, until + 2, rows.call("cudaLaunchKernel", at, until, tid=tid), stream_id=tid)


def test_a_backward_pass_on_a_thread_of_its_own_launches_by_turns() -> None:
    rows = Rows()
    for step in range(3):
        for place in range(60):
            tid = 1 if place < 30 else 2
            launch(rows, tid, 1_000 * step + 10 * place, 1_000 * step + 10 * place + 5)
    assert launchers(rows) == {1: 0, 2: 0}


def test_threads_whose_calls_overlap_launch_at_the_same_time() -> None:
    rows = Rows()
    for place in range(30):
        launch(rows, 1, 10 * place, 10 * place + 5)
        launch(rows, 2, 10 * place + 3, 10 * place + 8)
        launch(rows, 2, 10 * place + 8, 10 * place + 9)
    assert launchers(rows) == {2: 0, 1: 1}  # 0 is the one that launches most


def test_threads_that_change_places_all_the_time_are_no_turns_though_their_calls_never_overlap() -> None:
    rows = Rows()
    for place in range(30):
        launch(rows, 1, 10 * place, 10 * place + 4)
        launch(rows, 2, 10 * place + 5, 10 * place + 9)
    assert sorted(launchers(rows).values()) == [0, 1]


def test_workers_that_follow_each_other_share_a_launcher() -> None:
    """Two threads for each of three requests, made anew each time."""
    rows = Rows()
    for request in range(3):
        for place in range(30):
            at = 1_000 * request + 10 * place
            launch(rows, 10 + request, at, at + 6)
            launch(rows, 20 + request, at + 3, at + 9)
    found = launchers(rows)
    assert [found[10], found[11], found[12]] == [found[10]] * 3
    assert [found[20], found[21], found[22]] == [1 - found[10]] * 3


def test_threads_of_two_processes_are_each_the_first_of_theirs() -> None:
    rows = Rows()
    for place in range(3):
        rows.kernel(GEMM, 10 * place + 6, 10 * place + 8, rows.call("cudaLaunchKernel", 10 * place, 10 * place + 5))
    assert launchers(rows) == {1: 0}


def test_many_threads_that_do_alike_are_a_crowd_though_none_does_a_tenth_of_all() -> None:
    rows = Rows()
    for place in range(10):
        for tid in range(1, 17):
            launch(rows, tid, 500 * place + 20 * tid, 500 * place + 20 * tid + 25)
    assert rows.derived().execute("SELECT thread_count FROM crowded_launch").fetchall() == [(16,)]


def test_a_thread_that_launches_next_to_nothing_is_in_nobodys_way() -> None:
    rows = Rows()
    for place in range(100):
        launch(rows, 1, 20 * place, 20 * place + 10)
        if place % 12 == 0:
            launch(rows, 2, 20 * place + 5, 20 * place + 12)
    assert rows.derived().execute("SELECT thread_count FROM crowded_launch").fetchall() == []


@pytest.fixture(scope="module")
def crowd() -> duckdb.DuckDBPyConnection:
    """A thread launches every 20 us; then a second one does too, and each needs 50 us."""
    rows = Rows()
    for place in range(100):
        launch(rows, 1, 20 * place + 15, 20 * place + 20, ADD if place % 2 else GEMM)
    for place in range(100):
        launch(rows, 1, 2_000 + 50 * place + 40, 2_000 + 50 * place + 50, ADD if place % 2 else GEMM)
        launch(rows, 2, 2_000 + 50 * place + 15, 2_000 + 50 * place + 42, ADD if place % 2 else GEMM)
    return rows.derived()


def test_what_one_takes_alone_is_told_by_the_same_kernels_launched_alone(crowd: duckdb.DuckDBPyConnection) -> None:
    found = crowd.execute("SELECT working_count, alone_share FROM crowd_pace ORDER BY working_count").fetchall()
    assert [count for count, _ in found] == [1, 2]
    assert found[0][1] == pytest.approx(1.0)
    assert found[1][1] == pytest.approx(0.4, rel=0.05)


def test_calls_made_while_nobody_else_is_at_work_keep_their_time(crowd: duckdb.DuckDBPyConnection) -> None:
    query = """
    SELECT avg(left_share) FROM crowded_call JOIN host_call USING (host_call_id)
    WHERE launcher_id = 0 AND start_ns < 1_900_000
    """
    assert crowd.execute(query).fetchall() == [(pytest.approx(1.0),)]


def test_without_launches_by_one_alone_the_host_is_taken_to_be_as_slow_as_crowds_are() -> None:
    rows = Rows()
    for place in range(100):
        for tid in (1, 2, 3, 4):
            launch(rows, tid, 100 * place + 20 * tid, 100 * place + 20 * tid + 25)
    case = rows.derived()
    assert case.execute("SELECT DISTINCT alone_share FROM crowd_pace").fetchall() == [(None,)]
    [(left_share,)] = case.execute("SELECT median(left_share) FROM crowded_call").fetchall()
    assert left_share == pytest.approx(2 / 4**1.3)


def test_large_kernels_take_as_long_for_the_rows_of_all_as_they_did_one_after_the_other() -> None:
    rows = Rows()
    for place in range(40):
        for tid in (1, 2):
            at = 100 * place + 10 * tid
            call = rows.call("cudaLaunchKernel", at, at + 25, tid=tid)
            rows.kernel(GEMM, at + 26, at + 46, call, stream_id=tid)
    found = rows.derived().execute("SELECT DISTINCT alone_share FROM crowded_op").fetchall()
    assert found == [(0.5,)]
