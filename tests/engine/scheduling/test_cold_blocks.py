from __future__ import annotations

from engine.scheduling.request import Request
from tests.support.scheduler_world import World, make_config


def prompt_of(request_id: int) -> tuple[int, ...]:
    return tuple(range(100 * request_id, 100 * request_id + 9))


def world_of(num_blocks: int = 6, num_host_blocks: int = 16, max_cold_copies: int = 4) -> World:
    return World(make_config(num_blocks=num_blocks, num_host_blocks=num_host_blocks, max_cold_copies=max_cold_copies))


def serve(world: World, *prompt_numbers: int) -> None:
    """One request after the other, each with the prompt of its number; cold blocks travel with the next one."""
    for number in prompt_numbers:
        world.add(Request(len(world.requests), prompt_of(number), 2))
        world.run_to_end(after_commit=World.check)


def test_a_prefix_that_was_given_away_comes_back_from_the_host_instead_of_being_computed() -> None:
    world = world_of()
    serve(world, 1, 2, 3, 4, 1)
    assert world.scheduler.counters.host_hit_tokens == 8
    assert [item.start for plan in world.plans for item in plan.scheduled if item.request_id == 4] == [8, 9]
    world.check_answers()


def test_a_prefix_that_was_given_away_is_computed_again_without_cold_copies() -> None:
    world = world_of(max_cold_copies=0)
    serve(world, 1, 2, 3, 4, 1)
    assert world.scheduler.counters.prefix_hit_tokens == 0
    assert not any(plan.swap_out for plan in world.plans)


def test_a_block_that_is_still_on_the_device_is_not_copied_back() -> None:
    world = world_of(num_blocks=16)
    serve(world, 1, 2, 1)
    assert world.scheduler.counters.cold_copies > 0
    assert world.scheduler.counters.host_hit_tokens == 0
    assert not any(plan.swap_in for plan in world.plans)


def test_each_block_is_copied_once() -> None:
    world = world_of(num_blocks=16)
    serve(world, 1, 2, 1, 2, 1)
    copied = [device_block for plan in world.plans for device_block, _ in plan.swap_out]
    assert len(copied) == len(set(copied)) == 4


def test_a_step_copies_no_more_than_its_share() -> None:
    world = world_of(num_blocks=16, max_cold_copies=1)
    serve(world, 1, 2, 3)
    assert max(len(plan.swap_out) for plan in world.plans) == 1


def test_copies_of_a_failed_step_are_not_found() -> None:
    world = world_of()
    serve(world, 1)
    world.add(Request(1, prompt_of(2), 2))
    plan = world.launch()
    assert plan is not None
    assert plan.swap_out
    world.fail()
    world.check()
    assert world.scheduler.tables.host.num_free == world.scheduler.tables.host.num_blocks
    world.run_to_end()
    serve(world, 3, 4, 1)
    world.check_answers()


def test_swapped_requests_take_the_host_blocks_of_the_oldest_cold_ones() -> None:
    world = world_of(num_host_blocks=2)
    serve(world, 1, 2, 3, 4)
    host = world.scheduler.tables.host
    assert (host.num_used, host.num_free) == (0, 2)
    assert len(host.allocate(2)) == 2


def test_forgotten_prefixes_are_not_found_on_the_host_either() -> None:
    world = world_of()
    serve(world, 1, 2, 3)
    world.scheduler.forget_prefixes()
    serve(world, 1)
    assert world.scheduler.counters.host_hit_tokens == 0
