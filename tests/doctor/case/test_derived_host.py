"""What the launching thread did: outermost calls, silences, pauses, and intervals in which code was loaded."""

from __future__ import annotations

import duckdb
import pytest

from tests.support.case_rows import ADD, GEMM, Rows


def add_launches(rows: Rows, at: float, count: int = 20) -> float:
    """Launches every 10 us, 8 us of silence between them; gives back when the next would be."""
    for _ in range(count):
        rows.launched(GEMM, at, at + 3, at + 9)
        at += 10
    return at


def pauses(case: duckdb.DuckDBPyConnection) -> list[tuple[float, str | None, float]]:
    """Length, name and idle time of each pause, us."""
    rows = case.execute("SELECT silence_ns, range_name, idle_ns FROM pause ORDER BY start_ns").fetchall()
    return [(silence / 1000, name, idle / 1000) for silence, name, idle in rows]


def loads(case: duckdb.DuckDBPyConnection) -> list[tuple[float, float, str]]:
    """Start and end of each loading interval in us, and what shows it."""
    rows = case.execute("SELECT start_ns, end_ns, seen_as FROM code_load ORDER BY start_ns").fetchall()
    return [(start_ns / 1000, end_ns / 1000, seen_as) for start_ns, end_ns, seen_as in rows]


def test_a_driver_call_inside_a_runtime_call_belongs_to_it() -> None:
    rows = Rows()
    rows.call("cudaLaunchKernel_v7000", 10, 20)
    inner = rows.call("cuLaunchKernel", 12, 18)
    rows.call("cudaStreamSynchronize", 30, 40)
    rows.kernel(GEMM, 21, 29, inner)
    case = rows.derived()
    calls = case.execute("SELECT base_name, call_class, silence_ns FROM host_call ORDER BY host_call_id").fetchall()
    assert calls == [("cudaLaunchKernel", "launch", None), ("cudaStreamSynchronize", "sync", 10_000)]
    assert case.execute("SELECT * FROM launch").fetchall() == [(0, 0)]


def test_the_thread_with_most_launches_is_the_main_one() -> None:
    rows = Rows()
    for place in range(3):
        rows.kernel(GEMM, 10 + 10 * place, 15 + 10 * place, rows.call("cudaLaunchKernel", 10 * place, 10 * place + 2))
    rows.kernel(ADD, 50, 55, rows.call("cudaLaunchKernel", 40, 42, tid=9))
    rows.call("cudaEventQuery", 1, 2, tid=5)
    found = rows.derived().execute("SELECT tid, op_count, is_main FROM launching_thread ORDER BY tid").fetchall()
    assert found == [(1, 3, True), (9, 1, False)]


def test_an_interval_ends_with_the_call_that_launches() -> None:
    rows = Rows()
    rows.launched(GEMM, 0, 3, 5)
    rows.call("cudaGetDevice", 10, 11)
    rows.launched(GEMM, 20, 23, 25)
    rows.call("cudaStreamSynchronize", 30, 34)
    rows.launched(GEMM, 40, 43, 400)
    found = (
        rows.derived()
        .execute(
            "SELECT interval_id, silence_ns, longest_silence_ns, waiting_ns FROM launch_interval ORDER BY interval_id"
        )
        .fetchall()
    )
    assert found == [(0, 0, 0, 0), (1, 17_000, 9_000, 0), (2, 14_000, 8_000, 4_000)]


def test_a_pause_is_an_unusual_silence_and_has_the_name_of_the_shortest_range_around_it() -> None:
    rows = Rows()
    at = add_launches(rows, 0)  # the last launch ends at 192, its kernel at 199
    rows.annotation("serve", 0, 5_000)
    rows.annotation("schedule", at - 5, at + 1_995)
    add_launches(rows, at + 2_000)
    case = rows.derived()
    assert pauses(case) == [(2_008, "schedule", 2_001)]
    [(usual_ns, pause_ns)] = case.execute("SELECT usual_silence_ns, pause_ns FROM launch_pace").fetchall()
    assert (usual_ns, pause_ns) == (8_000, 500_000)


@pytest.mark.parametrize(("silence", "count"), [(500, 0), (501, 1)])
def test_a_silence_of_half_a_millisecond_is_no_pause_yet(silence: float, count: int) -> None:
    rows = Rows()
    at = add_launches(rows, 0)
    add_launches(rows, at - 8 + silence)
    assert len(pauses(rows.derived())) == count


def test_a_pause_behind_a_full_queue_has_no_idle_time() -> None:
    rows = Rows()
    at = add_launches(rows, 0)
    rows.launched(ADD, at, at + 3, at + 2_500)
    add_launches(rows, at + 2_000)
    [(_, _, idle)] = pauses(rows.derived())
    assert idle == 0


def test_a_range_that_covers_half_of_a_pause_does_not_name_it() -> None:
    rows = Rows()
    at = add_launches(rows, 0)
    rows.annotation("schedule", at, at + 1_000)
    add_launches(rows, at + 2_000)
    assert pauses(rows.derived()) == [(2_008, None, 2_001)]


@pytest.mark.parametrize(("launches", "found"), [(20, []), (10, [(1_098, None, 1_091)])])
def test_a_pause_begins_when_the_other_thread_has_done_its_launches(
    launches: int, found: list[tuple[float, str | None, float]]
) -> None:
    rows = Rows()
    at = add_launches(rows, 0)
    for place in range(launches):
        call = rows.call("cudaLaunchKernel", at + 100 * place, at + 100 * place + 2, tid=9)
        rows.kernel(ADD, at + 100 * place + 4, at + 100 * place + 9, call)
    add_launches(rows, at + 2_000)
    assert pauses(rows.derived()) == found


def test_module_calls_and_the_silence_around_them_are_one_load() -> None:
    rows = Rows()
    at = add_launches(rows, 0)  # the last launch returns at 192
    rows.call("cuLibraryLoadData", at + 500, at + 600)
    add_launches(rows, at + 2_000)
    case = rows.derived()
    assert loads(case) == [(192, 2_202, "module calls")]
    assert pauses(case) == []


def test_a_short_module_call_is_no_load() -> None:
    rows = Rows()
    at = add_launches(rows, 0)
    rows.call("cuLibraryLoadData", at + 2, at + 600)
    add_launches(rows, at + 620)
    assert loads(rows.derived()) == []


def test_a_module_call_among_long_waits_is_no_load() -> None:
    rows = Rows()
    at = add_launches(rows, 0)
    rows.call("cuModuleGetFunction", at + 2, at + 1_200)
    rows.call("cudaDeviceSynchronize", at + 1_201, at + 4_000)
    add_launches(rows, at + 4_010)
    assert loads(rows.derived()) == []


@pytest.mark.parametrize(
    ("name", "found"), [("aten::mm", [(192, 2_202, "silence under aten::mm")]), ("DataLoader", [])]
)
def test_without_module_calls_a_silence_under_one_operator_is_a_load(
    name: str, found: list[tuple[float, float, str]]
) -> None:
    rows = Rows()
    at = add_launches(rows, 0)
    rows.operator(name, at, at + 2_010)
    add_launches(rows, at + 2_000)
    case = rows.derived()
    assert loads(case) == found
    assert len(pauses(case)) == (0 if found else 1)


def test_a_window_of_whole_steps_is_told_by_their_launches_where_their_times_differ() -> None:
    """Three steps of twenty launches, the second with a wait in it: of three pauses two are in the window."""
    rows = Rows()
    at = add_launches(rows, 0) + 5_000
    at = add_launches(rows, at, 10)
    rows.call("cudaDeviceSynchronize", at, at + 900)
    at = add_launches(rows, at + 900, 10) + 5_000
    add_launches(rows, at)
    assert rows.derived().execute("SELECT * FROM seen_share").fetchall() == [("pause", pytest.approx(2 / 3))]


def test_a_window_that_begins_within_a_step_holds_all_pauses_that_it_shows() -> None:
    rows = Rows()
    at = add_launches(rows, add_launches(rows, 0, 5) + 5_000) + 5_000
    add_launches(rows, at, 5)
    assert rows.derived().execute("SELECT * FROM seen_share").fetchall() == [("pause", 1.0)]
