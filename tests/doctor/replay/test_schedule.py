from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.replay.building import build_run
from doctor.replay.cure import Change, apply, moves_work
from doctor.replay.run import Run
from doctor.replay.schedule import plan
from doctor.replay.schedule import replay as replay_pieces
from doctor.rule import Act, Target
from tests.doctor.replay.one_by_one import OneByOne
from tests.support.replay_programs import Thread, programs, record

ACTS = (
    (Target.HOST_CALL, Act.REMOVE),
    (Target.HOST_CALL, Act.NO_WAIT),
    (Target.HOST_CALL, Act.SCALE),
    (Target.HOST_CALL, Act.SET_DURATION_NS),
    (Target.SILENCE, Act.REMOVE),
    (Target.SILENCE, Act.SCALE),
    (Target.DEVICE_OP, Act.REMOVE),
    (Target.DEVICE_OP, Act.SCALE),
    (Target.DEVICE_OP, Act.SET_DURATION_NS),
    (Target.DEVICE_OP, Act.MOVE_TO_SIDE_STREAM),
)


@st.composite
def changes(draw: st.DrawFn, run: Run) -> Change:
    target, act = draw(st.sampled_from(ACTS))
    count = len(run.ops.op_id) if target is Target.DEVICE_OP else len(run.calls.call_id)
    at = np.unique(np.asarray(draw(st.lists(st.integers(0, max(count - 1, 0)), max_size=count)), dtype=np.int64))
    at = at[at < count]
    limit = 3.0 if act is Act.SCALE else 50_000.0
    amount = np.asarray([draw(st.floats(0.0, limit)) for _ in at])
    return Change(target, act, at, amount)


@settings(max_examples=150, deadline=None)
@given(programs())
def test_replay_of_an_untouched_program_ends_when_it_was_recorded_to_end(program: list[Thread]) -> None:
    run = build_run(record(program))
    schedule = replay_pieces(run, plan(run))
    assert schedule.makespan_ns == pytest.approx(run.recorded_ns, rel=1e-12)
    assert schedule.wait_end == pytest.approx(run.calls.end[run.waits.call], rel=1e-12)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_replay_with_random_changes_agrees_with_one_event_at_a_time(data: st.DataObject) -> None:
    run = build_run(record(data.draw(programs())))
    chosen = [data.draw(changes(run)) for _ in range(data.draw(st.integers(0, 4)))]
    changed = apply(run, chosen)
    cut = plan(changed) if moves_work(chosen) else plan(run)
    schedule, expected = replay_pieces(changed, cut), OneByOne(changed)
    assert schedule.makespan_ns == pytest.approx(expected.makespan_ns, rel=1e-12)
    assert schedule.wait_end == pytest.approx(expected.wait_end, rel=1e-12)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_replay_with_random_crossings_agrees_with_one_event_at_a_time(data: st.DataObject) -> None:
    run = build_run(record(data.draw(programs())))
    ops = run.ops
    source, distance = ops.source.copy(), ops.source_distance.copy()
    for op in range(len(source)):
        earlier = np.flatnonzero((ops.start < ops.start[op]) & (ops.stream != ops.stream[op]))
        if len(earlier) and data.draw(st.integers(0, 3)) == 0:
            source[op] = data.draw(st.sampled_from(earlier.tolist()))
            distance[op] = data.draw(st.integers(0, 30_000))  # whole, as recorded: lengths have 32 bits
    crossed = replace(run, ops=replace(ops, source=source, source_distance=distance))
    schedule, expected = replay_pieces(crossed, plan(crossed)), OneByOne(crossed)
    assert schedule.makespan_ns == pytest.approx(expected.makespan_ns, rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(programs(), st.floats(0.0, 1.0))
def test_less_host_time_never_makes_the_run_longer(program: list[Thread], factor: float) -> None:
    run = build_run(record(program))
    everywhere = np.arange(len(run.calls.call_id))
    faster = Change(Target.SILENCE, Act.SCALE, everywhere, np.full(len(everywhere), factor))
    cut = plan(run)
    assert replay_pieces(apply(run, [faster]), cut).makespan_ns <= replay_pieces(run, cut).makespan_ns * (1 + 1e-12)
