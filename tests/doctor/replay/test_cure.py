"""What each act does to a run of two kernels with a sync between them (microseconds):

launch 0-5, kernel 6-106; sync 10-110, which waits for it; silence until 150; launch 150-155, kernel 156-176
"""

from __future__ import annotations

import pytest

from doctor.case.replay_queries import read_recording
from doctor.errors import CatalogueError
from doctor.replay.building import build_run
from doctor.replay.cure import Places, apply, moves_work, select
from doctor.replay.schedule import plan, replay
from doctor.rule import Act, Cure, CureStep, Target
from tests.support.replay_cases import Call, Kernel, case_of

LAUNCH, SYNC, SECOND_LAUNCH = 0, 1, 2
FIRST_KERNEL = 0
TWO_KERNELS = case_of(
    [
        Call("cudaLaunchKernel", 0, 5),
        Call("cudaDeviceSynchronize", 10, 110),
        Call("cudaLaunchKernel", 150, 155),
        Call("cudaGetDevice", 160, 165),
    ],
    [Kernel(6, 106, 1), Kernel(156, 176, 3)],
)


def length_us(*steps: CureStep) -> float:
    run = build_run(read_recording(TWO_KERNELS, 0, 200_000))
    changes = select(TWO_KERNELS, Cure(steps), Places.of(run))
    cured = apply(run, changes)
    return replay(cured, plan(cured) if moves_work(changes) else plan(run)).makespan_ns / 1000


def step(target: Target, act: Act, row: int, value: float | None = None) -> CureStep:
    return CureStep(target, act, "SELECT $row", {"row": row}, value)


def test_without_a_cure_the_run_is_as_long_as_recorded() -> None:
    assert length_us() == pytest.approx(176)


@pytest.mark.parametrize(
    ("cure", "expected"),
    [
        pytest.param(step(Target.SILENCE, Act.REMOVE, SECOND_LAUNCH), 136, id="removed silence"),
        pytest.param(step(Target.SILENCE, Act.SCALE, SECOND_LAUNCH, 0.5), 156, id="halved silence"),
        pytest.param(step(Target.SILENCE, Act.SET_DURATION_NS, SECOND_LAUNCH, 10_000), 146, id="silence of 10 us"),
        pytest.param(step(Target.SILENCE, Act.SET_DURATION_NS, SECOND_LAUNCH, 90_000), 176, id="silence never longer"),
        pytest.param(step(Target.HOST_CALL, Act.NO_WAIT, SYNC), 106 + 0.34 + 20, id="sync that does not wait"),
        pytest.param(step(Target.HOST_CALL, Act.REMOVE, SYNC), 106 + 0.34 + 20, id="removed sync"),
        pytest.param(step(Target.HOST_CALL, Act.SCALE, SYNC, 0.0), 172, id="sync still waits without time of its own"),
        pytest.param(step(Target.HOST_CALL, Act.SET_DURATION_NS, SYNC, 80_000), 156, id="sync of 80 us"),
        pytest.param(step(Target.HOST_CALL, Act.SET_DURATION_NS, SECOND_LAUNCH, 1_000), 172, id="launch of 1 us"),
        pytest.param(step(Target.HOST_CALL, Act.SCALE, LAUNCH, 2.0), 181, id="launch of twice the time"),
        pytest.param(step(Target.DEVICE_OP, Act.REMOVE, FIRST_KERNEL), 80, id="removed kernel, nothing to wait for"),
        pytest.param(step(Target.DEVICE_OP, Act.SCALE, FIRST_KERNEL, 0.5), 126, id="halved kernel"),
        pytest.param(step(Target.DEVICE_OP, Act.SET_DURATION_NS, FIRST_KERNEL, 10_000), 86, id="kernel of 10 us"),
        pytest.param(step(Target.DEVICE_OP, Act.MOVE_TO_SIDE_STREAM, FIRST_KERNEL), 106, id="kernel on a side stream"),
    ],
)
def test_an_act_changes_the_length_of_the_run_by_what_it_takes_away(cure: CureStep, expected: float) -> None:
    assert length_us(cure) == pytest.approx(expected)


def test_steps_of_one_cure_work_together() -> None:
    both = (step(Target.DEVICE_OP, Act.MOVE_TO_SIDE_STREAM, FIRST_KERNEL), step(Target.SILENCE, Act.REMOVE, 2))
    assert length_us(*both) == pytest.approx(106)
    shorter = step(Target.DEVICE_OP, Act.SET_DURATION_NS, FIRST_KERNEL, 1_000)
    assert length_us(*both, shorter) == pytest.approx(14 + 6 + 20)


def test_a_value_of_a_row_wins_over_the_value_of_the_step() -> None:
    cure = CureStep(Target.SILENCE, Act.SET_DURATION_NS, "SELECT 2, 10000", value=20_000)
    assert length_us(cure) == pytest.approx(146)


def test_a_row_without_value_takes_the_value_of_the_step() -> None:
    cure = CureStep(Target.SILENCE, Act.SET_DURATION_NS, "SELECT 2, NULL::DOUBLE", value=20_000)
    assert length_us(cure) == pytest.approx(156)


def test_rows_outside_the_window_and_rows_without_id_change_nothing() -> None:
    cure = CureStep(Target.SILENCE, Act.REMOVE, "SELECT unnest([99, NULL, 12345678])")
    assert length_us(cure) == pytest.approx(176)


def test_values_that_the_select_does_not_name_are_not_bound() -> None:
    cure = CureStep(Target.SILENCE, Act.REMOVE, "SELECT $row", {"row": SECOND_LAUNCH, "rows": 3, "other": 1})
    assert length_us(cure) == pytest.approx(136)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(CureStep(Target.SILENCE, Act.NO_WAIT, "SELECT 1"), id="a silence waits for nothing"),
        pytest.param(CureStep(Target.DEVICE_OP, Act.NO_WAIT, "SELECT 1"), id="an operation is not waited with"),
        pytest.param(CureStep(Target.HOST_CALL, Act.MOVE_TO_SIDE_STREAM, "SELECT 1"), id="a call has no stream"),
        pytest.param(CureStep(Target.SILENCE, Act.SCALE, "SELECT 1"), id="no factor"),
        pytest.param(CureStep(Target.SILENCE, Act.SCALE, "SELECT 1, -1"), id="negative factor"),
        pytest.param(CureStep(Target.SILENCE, Act.REMOVE, "SELECT id FROM no_such_table"), id="no such table"),
        pytest.param(CureStep(Target.SILENCE, Act.REMOVE, "SELECT 'one'"), id="text for an id"),
    ],
)
def test_a_cure_that_cannot_be_is_refused_in_one_line(wrong: CureStep) -> None:
    with pytest.raises(CatalogueError) as refused:
        length_us(wrong)
    assert "\n" not in refused.value.message
