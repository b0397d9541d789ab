"""The steady window: from the first launch to the end of the last work, less what stands apart."""

from __future__ import annotations

import duckdb
import pytest

from doctor.case.derive import WindowChoice
from doctor.errors import UsageError
from tests.support.case_rows import ADD, GEMM, Rows


def window(case: duckdb.DuckDBPyConnection) -> tuple[float, float, str]:
    [(start_ns, end_ns, chosen_by)] = case.execute("SELECT * FROM steady_window").fetchall()
    return start_ns / 1000, end_ns / 1000, chosen_by


def busy_run(start: float = 100) -> Rows:
    """Ten kernels of 50 us every 100 us, each launched 10 us before it runs."""
    rows = Rows()
    for place in range(10):
        at = start + 100 * place
        rows.launched(GEMM, at, at + 10, at + 60)
    return rows


def test_it_goes_from_the_first_launch_to_the_end_of_the_last_kernel() -> None:
    assert window(busy_run().derived()) == (100, 1060, "first launch to last device work")


def test_work_without_a_launch_starts_it_too() -> None:
    rows = Rows()
    rows.kernel(GEMM, 110, 160)
    rows.kernel(GEMM, 200, 260)
    assert window(rows.derived())[:2] == (110, 260)


def test_calls_behind_the_last_kernel_do_not_stretch_it() -> None:
    rows = busy_run()
    rows.call("cudaFree", 1500, 9000)
    assert window(rows.derived())[:2] == (100, 1060)


@pytest.mark.parametrize(("side", "at"), [("before", 0), ("after", 20_000)])
def test_a_stray_event_is_cut_off(side: str, at: float) -> None:
    rows = busy_run(10_000)
    rows.launched(ADD, at, at + 5, at + 6)
    case = rows.derived()
    assert window(case)[:2] == (10_000, 10_960)
    assert "stray event cut" in window(case)[2]
    [(start_ns, end_ns, found)] = case.execute("SELECT start_ns, end_ns, side FROM stray_gap").fetchall()
    assert (start_ns / 1000, end_ns / 1000) == ((6, 10_010) if side == "before" else (10_960, 20_005))
    assert found == side


def test_a_gap_with_work_on_both_sides_is_a_pause_of_the_run() -> None:
    rows = busy_run(100)
    for place in range(10):
        rows.launched(GEMM, 20_000 + 100 * place, 20_010 + 100 * place, 20_060 + 100 * place)
    case = rows.derived()
    assert window(case)[:2] == (100, 20_960)
    assert case.execute("SELECT * FROM stray_gap").fetchall() == []


def test_what_runs_before_the_first_product_is_loading() -> None:
    rows = busy_run(2_000)
    for place in range(10):
        rows.copy("htod", 1_000 + 90 * place, 1_080 + 90 * place)
    assert window(rows.derived()) == (2_000, 2_960, "first launch to last device work, load phase cut")


def test_a_window_that_was_asked_for_is_taken_as_it_is() -> None:
    case = busy_run().derived(WindowChoice(span_ns=(150_000, 555_000)))
    assert window(case) == (150, 555, "--window")


def test_a_range_that_was_asked_for_goes_from_its_first_start_to_its_last_end() -> None:
    rows = busy_run()
    rows.annotation("decode", 290, 380)
    rows.annotation("decode", 490, 580)
    rows.annotation("other", 0, 5_000)
    assert window(rows.derived(WindowChoice(range_name="decode"))) == (290, 580, "--range decode")


@pytest.mark.parametrize("choice", [WindowChoice(span_ns=(5, 5)), WindowChoice(range_name="decode")])
def test_what_cannot_be_looked_at_is_refused(choice: WindowChoice) -> None:
    with pytest.raises(UsageError):
        busy_run().derived(choice)


def test_no_device_work_has_no_window() -> None:
    rows = Rows()
    rows.call("cudaGetDevice", 1, 2)
    assert rows.derived().execute("SELECT * FROM steady_window").fetchall() == []
