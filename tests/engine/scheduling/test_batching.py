"""The four batching modes, seen from the steps that the one scheduler plans under each."""

from __future__ import annotations

from engine.scheduling.batching import BatchingPolicy, ContinuousBatch, DynamicWindow, SingleRequest, StaticBatch
from engine.scheduling.plan import StepPlan
from engine.scheduling.request import Request
from tests.support.scheduler_world import World, make_config


def world_of(batching: BatchingPolicy, max_new_tokens: list[int]) -> World:
    world = World(make_config(num_blocks=64), batching)
    for request_id, length in enumerate(max_new_tokens):
        world.add(Request(request_id, (5, 6, 7), length))
    return world


def batches(world: World) -> list[tuple[int, ...]]:
    """The requests of each step until nothing is left."""
    world.run_to_end()
    return [request_ids(plan) for plan in world.plans]


def request_ids(plan: StepPlan | None) -> tuple[int, ...]:
    return () if plan is None else tuple(sorted(item.request_id for item in plan.scheduled))


def test_single_runs_one_request_after_the_other() -> None:
    assert batches(world_of(SingleRequest(), [2, 1, 2])) == [(0,), (0,), (1,), (2,), (2,)]


def test_static_keeps_the_next_batch_waiting_for_the_longest_of_this_one() -> None:
    assert batches(world_of(StaticBatch(size=2), [1, 3, 1, 1])) == [(0, 1), (1,), (1,), (2, 3)]


def test_static_forms_a_batch_from_fewer_requests_than_its_size() -> None:
    assert batches(world_of(StaticBatch(size=8), [1, 1])) == [(0, 1)]


def test_static_lets_a_batch_start_together_whose_prompts_exceed_the_step() -> None:
    world = World(make_config(num_blocks=64, max_step_tokens=4), StaticBatch(size=3))
    for request_id in range(3):
        world.add(Request(request_id, (5, 6, 7), 2))
    world.step()
    assert [request.request_id for request in world.scheduler.running] == [0, 1, 2]


def test_continuous_fills_the_place_of_a_finished_request_at_the_next_step() -> None:
    world = World(make_config(max_running=2), ContinuousBatch(max_step_tokens=32))
    for request_id, length in enumerate([1, 3, 1, 1]):
        world.add(Request(request_id, (5, 6, 7), length))
    assert batches(world) == [(0, 1), (1, 2), (1, 3)]


def test_continuous_lets_nobody_in_whose_tokens_would_not_fit_the_step() -> None:
    world = World(make_config(max_step_tokens=4), ContinuousBatch(max_step_tokens=4))
    for request_id in range(3):
        world.add(Request(request_id, (5, 6, 7), 4))
    world.step()
    assert len(world.scheduler.running) == 2


def test_dynamic_waits_for_a_full_batch() -> None:
    world = world_of(DynamicWindow(size=3, window_s=10.0), [1, 1])
    assert world.step() is None
    world.add(Request(2, (5, 6, 7), 1))
    assert request_ids(world.step()) == (0, 1, 2)


def test_dynamic_starts_an_incomplete_batch_when_its_window_is_over() -> None:
    world = world_of(DynamicWindow(size=3, window_s=10.0), [1, 1])
    world.now_s = 9.9
    assert world.step() is None
    world.now_s = 10.0
    assert request_ids(world.step()) == (0, 1)


def test_dynamic_admits_nobody_to_a_running_batch() -> None:
    world = world_of(DynamicWindow(size=2, window_s=1.0), [3, 3])
    world.step()
    world.add(Request(2, (5, 6, 7), 1))
    world.now_s = 5.0
    assert request_ids(world.step()) == (0, 1)
