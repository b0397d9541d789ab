"""Engine steps: by annotation, by work that comes back, and the pieces a step is cut into."""

from __future__ import annotations

import re

import duckdb
import pytest

from tests.support.case_rows import ADD, GEMM, HEAD, Rows

STEP_US = 2_000.0


def add_layers(rows: Rows, at: float, layers: int = 8) -> float:
    """Layers of a product and an addition, 20 us a kernel; gives back where they end."""
    for _ in range(layers):
        for name in (GEMM, ADD):
            rows.launched(name, at, at + 3, at + 13)
            at += 20
    return at


def add_pass(rows: Rows, at: float, layers: int = 8) -> float:
    """A forward pass: layers, then the language-model head."""
    at = add_layers(rows, at, layers)
    rows.launched(HEAD, at, at + 3, at + 13)
    return at + 20


def decode(steps: int, *, passes: int = 1, name: str = "", layers: int = 8) -> Rows:
    """Steps of `STEP_US`: the position goes up, the forward passes run, and a wait; annotated where named."""
    rows = Rows()
    for step in range(steps):
        start = at = 1_000 + STEP_US * step
        rows.copy("htod", at + 3, at + 4, rows.call("cudaMemcpyAsync", at, at + 2))
        at += 20
        for _ in range(passes):
            at = add_pass(rows, at, layers)
        rows.call("cudaStreamSynchronize", at, at + 5)
        if name:
            rows.annotation(name.replace("#", str(step)), start - 10, start + 1_900)
    return rows


def steps(case: duckdb.DuckDBPyConnection) -> list[tuple[float, float]]:
    rows = case.execute("SELECT start_ns, end_ns FROM step ORDER BY step_id").fetchall()
    return [(start_ns / 1000, end_ns / 1000) for start_ns, end_ns in rows]


def told_by(case: duckdb.DuckDBPyConnection) -> set[str]:
    return {told for (told,) in case.execute("SELECT chosen_by FROM step").fetchall()}


def served(steps: int, *, results_per_step: int = 1) -> Rows:
    """Steps whose batch, and so every size, is another each time; each third holds twice the layers."""
    rows = Rows()
    for step in range(steps):
        at = 1_000 + STEP_US * step
        size = 64 + step
        rows.copy("htod", at + 3, at + 4, rows.call("cudaMemcpyAsync", at, at + 2), size_bytes=size)
        at += 20
        for _ in range(16 if step % 3 == 2 else 8):
            for name in (GEMM, ADD):
                rows.launched(name, at, at + 3, at + 13, grid_x=size)
                at += 20
        rows.launched(HEAD, at, at + 3, at + 13, grid_x=size)
        for _ in range(results_per_step):
            at += 20
            rows.copy("dtoh", at + 3, at + 4, rows.call("cudaMemcpyAsync", at, at + 2), size_bytes=size)
        rows.call("cudaStreamSynchronize", at + 3, at + 6)
    return rows


def with_warm_up(rows: Rows) -> Rows:
    """Three passes of one size at the end, which recur to the last byte."""
    for place in range(3):
        add_pass(rows, 60_000 + 400.0 * place)
    return rows


def test_steps_of_many_sizes_are_round_trips_to_the_device() -> None:
    found = steps(with_warm_up(served(24)).derived())
    assert [start for start, _ in found[:24]] == [1_000 + STEP_US * step for step in range(24)]


def test_results_that_come_down_one_by_one_make_no_round_trips() -> None:
    # six copies down for one up: which of them ends a step cannot be told
    found = steps(with_warm_up(served(24, results_per_step=6)).derived())
    assert len(found) < 24


@pytest.mark.parametrize(("name", "told"), [("decode_step", "nvtx:decode_step"), ("step #", "nvtx:step #")])
def test_ranges_whose_name_says_step_are_steps(name: str, told: str) -> None:
    case = decode(4, name=name).derived()
    assert told_by(case) == {told}
    assert steps(case) == [(990 + STEP_US * step, 2_900 + STEP_US * step) for step in range(4)]


@pytest.mark.parametrize("name", ["attention", ""])
def test_without_such_ranges_the_exchange_with_the_host_marks_a_step(name: str) -> None:
    case = decode(5, name=name).derived()
    assert told_by(case) == {"repeating work"}
    # each from the call of its copy to that of the next, the last to the end of the window
    found = steps(case)
    assert found[:4] == [(1_000 + STEP_US * step, 3_000 + STEP_US * step) for step in range(4)]
    assert found[4][0] == 9_000


def trained(steps: int, name: str = "") -> Rows:
    """Steps of `STEP_US` that end with the optimizer, which PyTorch annotates."""
    rows = Rows()
    for step in range(steps):
        start = 1_000 + STEP_US * step
        at = add_pass(rows, start)
        optimized = at + 1_000
        add_layers(rows, optimized, 4)
        rows.annotation("Optimizer.step#AdamW.step", optimized - 10, optimized + 200)
        if name:
            rows.annotation(name.replace("#", str(step)), start - 10, optimized + 210)
    return rows


def test_an_optimizer_ends_its_step_and_is_none_itself() -> None:
    case = trained(6).derived()
    assert told_by(case) == {"nvtx:Optimizer.step#AdamW.step"}
    assert all(end_us - start_us == pytest.approx(STEP_US) for start_us, end_us in steps(case)[1:])
    assert len(steps(case)) in {5, 6}


def test_optimizers_of_one_kind_that_follow_each_other_end_one_step() -> None:
    rows = trained(6)
    for step in range(6):
        optimized = 1_000 + STEP_US * step + 340 + 1_000 + 240
        rows.annotation("Optimizer.step#AdamW.step", optimized, optimized + 20)
    found = steps(rows.derived())
    assert len(found) in {5, 6}
    assert all(end_us - start_us == pytest.approx(STEP_US) for start_us, end_us in found[1:])


def test_optimizers_with_a_pass_before_each_end_a_step_each() -> None:
    """Two networks that train against each other: a pass of one, then a pass of the other."""
    rows = Rows()
    for step in range(12):
        start = 1_000 + STEP_US * step / 2
        at = add_pass(rows, start)
        rows.annotation("Optimizer.step#Adam.step", at + 100, at + 300)
    found = steps(rows.derived())
    assert len(found) >= 11
    assert all(end_us - start_us == pytest.approx(STEP_US / 2) for start_us, end_us in found[1:])


def test_a_marked_step_goes_before_the_optimizer_in_it() -> None:
    assert told_by(trained(6, "ProfilerStep##").derived()) == {"nvtx:ProfilerStep#"}


def test_two_ranges_are_too_few_to_be_steps() -> None:
    rows = decode(5)
    for at in (990, 4_990):
        rows.annotation("decode_step", at, at + 3_800)
    assert told_by(rows.derived()) == {"repeating work"}


@pytest.mark.parametrize("mark", ["ProfilerStep#6", "execute_context_1(888)_generation_0(0)"])
def test_a_mark_of_one_step_keeps_its_layers_from_being_steps(mark: str) -> None:
    rows = Rows()
    end = add_layers(rows, 1_000, layers=24)
    rows.annotation(mark, 500, end)
    case = rows.derived()
    assert len(steps(case)) == 1
    assert told_by(case) == {"nvtx:" + re.sub(r"\d+", "#", mark)}


def test_a_mark_holds_what_was_launched_in_it_however_late_it_runs() -> None:
    rows = Rows()
    for layer in range(24):
        for place, name in enumerate((GEMM, ADD)):
            called = 1_000 + 20.0 * layer + 10 * place
            rows.launched(name, called, 1_010 + 600 * layer + 300 * place, 1_300 + 600 * layer + 300 * place)
    rows.annotation("execute_8_context_8(16)", 900, 1_500)  # a tenth of the window
    assert len(steps(rows.derived())) == 1


def test_steps_inside_one_mark_stay_steps_where_they_exchange_data_with_the_host() -> None:
    rows = decode(5)
    rows.annotation("ProfilerStep#3", 500, 12_000)
    case = rows.derived()
    assert told_by(case) == {"repeating work"}
    assert len(steps(case)) == 5


def test_layers_that_no_mark_holds_are_told_to_be_maybe_layers() -> None:
    rows = Rows()
    add_layers(rows, 1_000, layers=24)
    assert told_by(rows.derived()) == {"repeating work, maybe layers"}


def test_a_wait_in_each_makes_the_same_work_steps() -> None:
    rows, at = Rows(), 1_000.0
    for _ in range(24):
        at = add_layers(rows, at, layers=1)
        rows.call("cudaStreamSynchronize", at, at + 5)
        at += 20
    assert told_by(rows.derived()) == {"repeating work"}


FLASH = "void pytorch_flash::flash_fwd_kernel"


def add_waiting_layers(rows: Rows, count: int, *, num_attention: int = 1, size_bytes: int = 1) -> None:
    """Products and attention, and a value that the host asks for behind each layer."""
    at = 1_000.0
    for _ in range(count):
        for name in (GEMM, FLASH, GEMM, GEMM, ADD, GEMM) * num_attention:
            rows.launched(name, at, at + 3, at + 13)
            at += 20
        rows.copy("dtoh", at + 3, at + 4, rows.call("cudaMemcpyAsync", at, at + 2), size_bytes=size_bytes)
        rows.call("cudaStreamSynchronize", at + 3, at + 6)
        at += 20


def test_layers_that_ask_for_a_value_each_are_told_to_be_maybe_layers() -> None:
    rows = Rows()
    add_waiting_layers(rows, 24)
    assert told_by(rows.derived()) == {"repeating work, maybe layers of one attention each"}


@pytest.mark.parametrize(
    ("num_attention", "size_bytes"), [(4, 1), (1, 4_096)], ids=["many layers", "a batch of results"]
)
def test_what_holds_many_layers_or_gives_its_results_is_a_step(num_attention: int, size_bytes: int) -> None:
    rows = Rows()
    add_waiting_layers(rows, 24, num_attention=num_attention, size_bytes=size_bytes)
    assert told_by(rows.derived()) == {"repeating work"}


def test_the_first_step_schedules_before_it_launches() -> None:
    rows = Rows()
    for step in range(4):
        rows.annotation("step", 1_000 + 6_000 * step, 6_990 + 6_000 * step)
        add_layers(rows, 2_400 + 6_000 * step, layers=100)
    assert [start for start, _ in steps(rows.derived())] == [1_000 + 6_000 * step for step in range(4)]


def test_overlapping_ranges_are_no_steps() -> None:
    rows = decode(5)
    for step in range(5):
        rows.annotation("step of a request", 990 + STEP_US * step, 4_000 + STEP_US * step)
    assert told_by(rows.derived()) == {"repeating work"}


def test_work_that_happens_twice_has_no_steps() -> None:
    rows = Rows()
    for at in (0, 500):
        rows.launched(GEMM, at, at + 3, at + 13)
        rows.launched(ADD, at + 20, at + 23, at + 33)
    assert steps(rows.derived()) == []


def test_a_step_of_another_size_is_unusual() -> None:
    rows = Rows()
    at = 1_000.0
    for layers in (20, 8, 8, 8, 8):
        start = at
        rows.copy("htod", at + 3, at + 4, rows.call("cudaMemcpyAsync", at, at + 2))
        at = add_pass(rows, at + 20, layers)
        rows.annotation("forward", start - 5, at)
        at += 10
    case = rows.derived()
    assert case.execute("SELECT step_id, op_count FROM usual_step ORDER BY step_id").fetchall() == [
        (1, 18), (2, 18), (3, 18), (4, 18),
    ]  # fmt: skip
    kinds = case.execute(
        "SELECT step_id, any_value(step_kind), count(*) FROM thread_call GROUP BY step_id ORDER BY step_id"
    ).fetchall()
    assert kinds == [(0, "unusual", 42), (1, "usual", 18), (2, "usual", 18), (3, "usual", 18), (4, "usual", 18)]


def test_a_step_of_two_equal_passes_is_two_pieces() -> None:
    # twelve layers: a pass of 25 kernels
    case = decode(4, passes=2, layers=12, name="decode_step").derived()
    found = case.execute("SELECT piece_count, distance, same_share FROM piece_step").fetchall()
    assert [row[:2] for row in found] == [(2, 25)] * 4
    assert min(row[2] for row in found) >= 0.9
    sizes = case.execute(
        "SELECT piece, count(*) FROM piece_op WHERE step_id = 1 GROUP BY piece ORDER BY piece"
    ).fetchall()
    assert sizes == [(0, 25), (1, 26)]  # cut at equal distances from the first operation, here the copy


def test_layers_that_repeat_are_no_pieces() -> None:
    assert decode(4, layers=24, name="decode_step").derived().execute("SELECT * FROM piece_step").fetchall() == []


@pytest.mark.parametrize(("opened_us", "work", "count"), [(0, GEMM, 4), (900, GEMM, 3), (0, "prefill_gemm", 3)])
def test_a_step_that_was_open_when_the_recording_began_is_one_where_it_is_as_long_and_the_same(
    opened_us: float, work: str, count: int
) -> None:
    rows = Rows()
    at = 1_000 + opened_us
    while at < 2_900:  # the first step's range began before the recording did
        rows.launched(work, at, at + 3, at + 13)
        at += 100
    for step in range(1, 4):
        start = at = 1_000 + STEP_US * step
        for _ in range(19):
            rows.launched(GEMM, at, at + 3, at + 13)
            at += 100
        rows.annotation("step", start - 10, start + 1_950)
    assert len(steps(rows.derived())) == count
