"""How long a step takes where the host runs ahead of the device: as long as the device, by any recorder."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from doctor import api
from doctor.case.derive import WindowChoice, derive
from doctor.case.step_queries import phases, step_kernels
from tests.support.case_rows import ADD, GEMM, Rows
from tests.support.samples import sample
from tests.support.traces import shared_trace

KERNELS = 20
LAUNCH_US = 4.0
KERNEL_US = 50.0
STEP_US = KERNELS * KERNEL_US


def launched_ahead(
    steps: int,
    *,
    name: str = "",
    at: float = 1_000.0,
    free_at: float = 0.0,
    pause_us: float = 0.0,
    is_wait_inside: bool = True,
) -> Rows:
    """Steps that take the host a twelfth of the device's time; each begins with a copy, and the last one waits.

    The device is free at `free_at`; `pause_us` is what the host does before each step; the range of the last one may
    end before the wait.
    """
    rows = Rows()
    free_at = max(free_at, at + 3)
    for step in range(steps):
        at += pause_us
        begun = at
        free_at = max(free_at, at + 3)
        rows.copy("htod", free_at, free_at + 1, rows.call("cudaMemcpyAsync", at, at + 2))
        for place in range(KERNELS):
            at += LAUNCH_US
            free_at = max(free_at, at + 3)
            rows.launched(GEMM if place else ADD, at, free_at, free_at + KERNEL_US)
            free_at += KERNEL_US
        at += LAUNCH_US
        launched = at
        if step == steps - 1:
            rows.call("cudaDeviceSynchronize", at, free_at + 5)
            at = free_at + 5
        if name:
            rows.annotation(name, begun, at if is_wait_inside else launched)
    return rows


def lengths_us(case: duckdb.DuckDBPyConnection) -> list[float]:
    rows = case.execute("SELECT end_ns - start_ns FROM usual_step ORDER BY step_id").fetchall()
    return [length_ns / 1000 for (length_ns,) in rows]


@pytest.mark.parametrize("name", ["decode_step", ""])
def test_steps_that_are_launched_ahead_take_the_time_of_the_device(name: str) -> None:
    found = lengths_us(launched_ahead(6, name=name).derived())
    assert found == pytest.approx([STEP_US] * 6, rel=0.02)


def test_ranges_that_are_over_long_before_their_work_are_steps_all_the_same() -> None:
    case = launched_ahead(12, name="decode_step", is_wait_inside=False).derived()
    assert case.execute("SELECT DISTINCT chosen_by FROM step").fetchall() == [("nvtx:decode_step",)]
    assert lengths_us(case) == pytest.approx([STEP_US] * 12, rel=0.02)


def test_steps_in_a_row_add_up_to_the_time_of_all() -> None:
    rows = launched_ahead(6, name="decode_step")
    case = rows.derived()
    [(first_ns,)] = case.execute("SELECT min(start_ns) FROM device_op").fetchall()
    [(last_ns, total_ns)] = case.execute("SELECT max(end_ns), sum(end_ns - start_ns) FROM step").fetchall()
    assert total_ns == last_ns - first_ns


def test_a_step_keeps_the_calls_and_the_work_that_it_launched_however_late_that_runs() -> None:
    case = launched_ahead(6, name="decode_step").derived()
    launches = case.execute("SELECT count(*) FROM thread_call WHERE is_launching GROUP BY step_id").fetchall()
    assert launches == [(KERNELS + 1,)] * 6
    assert {one.count for one in step_kernels(case)} == {6, 6 * (KERNELS - 1)}


def test_a_pause_of_the_host_is_part_of_the_step_that_it_holds_up_alone() -> None:
    # 100 us are hidden behind the device's 1,000, and 2,000 are not
    hidden = lengths_us(launched_ahead(6, pause_us=100.0).derived())
    assert hidden == pytest.approx([STEP_US] * 6, rel=0.1)
    exposed = lengths_us(launched_ahead(6, pause_us=2_000.0).derived())
    assert exposed[:5] == pytest.approx([2_000 + LAUNCH_US * (KERNELS + 1)] * 5, rel=0.02)


def test_what_the_host_does_before_the_very_first_launch_counts_only_where_the_device_never_hides_it() -> None:
    for kernels_hide_it, first_us in ((True, STEP_US), (False, 3_000.0)):
        rows = Rows()
        at, free_at = 1_000.0, 0.0
        for _ in range(5):
            begun = at
            at += 700.0 if kernels_hide_it else 2_000.0
            for _ in range(KERNELS):
                free_at = max(free_at, at + 3)
                rows.launched(GEMM, at, free_at, free_at + KERNEL_US)
                at, free_at = at + LAUNCH_US, free_at + KERNEL_US
            if not kernels_hide_it:
                rows.call("cudaDeviceSynchronize", at, free_at + 3)
                at = free_at + 3
            rows.annotation("decode_step", begun, at)
        assert lengths_us(rows.derived())[0] == pytest.approx(first_us, rel=0.02)


def test_work_from_before_the_recording_is_in_no_step() -> None:
    found = lengths_us(launched_ahead(6, name="decode_step", free_at=20_000.0).derived())
    assert found == pytest.approx([STEP_US] * 6, rel=0.02)


def test_a_window_in_the_middle_has_steps_of_their_whole_length() -> None:
    rows = launched_ahead(12, name="decode_step")
    case = rows.derived(WindowChoice(span_ns=(3_000_000, 9_000_000)))
    found = lengths_us(case)
    assert found
    assert found == pytest.approx([STEP_US] * len(found), rel=0.02)


def test_a_prefill_before_the_steps_ends_with_its_work_and_delays_them_no_further() -> None:
    rows = launched_ahead(6, name="decode_step", at=2_000.0, free_at=31_500.0)
    for place in range(30):
        rows.launched("prefill_gemm", 1_000 + 10 * place, 1_500 + 1_000 * place, 2_500 + 1_000 * place)
    rows.annotation("prefill", 995, 1_310)
    case = rows.derived()
    found = {phase.phase: phase for phase in phases(case)}
    assert found["prefill"].mean_ns == pytest.approx(30_500_000, rel=0.01)
    assert found["decode"].mean_ns == pytest.approx(STEP_US * 1000, rel=0.02)


def mean_seconds(path: Path) -> float:
    with closing(api.load(path)) as case:
        derive(case)
        [(seconds,)] = case.execute("SELECT avg(end_ns - start_ns) / 1e9 FROM usual_step").fetchall()
        return float(seconds)


@pytest.mark.parametrize(
    ("name", "measured_s"),
    [("compiled-bert", 0.0499), ("engine-fp32-prompts", 0.0893)],
)
def test_two_recorders_of_one_job_agree_on_its_step_and_so_does_the_clock(name: str, measured_s: float) -> None:
    reported, traced = (mean_seconds(sample(name) / file) for file in ("sick.nsys-rep", "sick.pt.trace.json.gz"))
    assert reported == pytest.approx(measured_s, rel=0.03)
    assert traced == pytest.approx(measured_s, rel=0.08)


def test_a_rank_that_waits_for_a_slower_one_takes_as_long_as_that() -> None:
    assert mean_seconds(shared_trace("h200x2/straggler-sick.nsys-rep")) == pytest.approx(0.042, rel=0.06)
