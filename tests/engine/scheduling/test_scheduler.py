from __future__ import annotations

import pytest

from engine.errors import RequestRejectedError, StepError
from engine.scheduling.admission import PresentlyFree
from engine.scheduling.plan import RequestOutput, StepResult
from engine.scheduling.request import FinishReason, Request
from engine.scheduling.scheduler_config import Preemption
from tests.support.scheduler_world import World, full_answer, make_config, next_token


def prompt_of(length: int, first: int = 1) -> tuple[int, ...]:
    return tuple(range(first, first + length))


class TestChunks:
    def test_a_long_prompt_is_fed_in_chunks_of_the_step_budget_and_samples_only_at_its_end(self) -> None:
        world = World(make_config(max_step_tokens=4))
        world.add(Request(0, prompt_of(10), 2))
        items = []
        while (plan := world.step()) is not None:
            items.append(plan.scheduled[0])
        assert [(item.start, item.num_tokens, item.samples) for item in items] == [
            (0, 4, False),
            (4, 4, False),
            (8, 2, True),
            (10, 1, True),
        ]
        world.check_answers()

    def test_decodes_are_fed_before_the_chunk_of_a_prompt(self) -> None:
        world = World(make_config(max_step_tokens=4))
        world.add(Request(0, prompt_of(2), 8))
        world.step()
        world.add(Request(1, prompt_of(10), 2))
        plan = world.step()
        assert plan is not None
        assert [(item.request_id, item.num_tokens) for item in plan.scheduled] == [(0, 1), (1, 3)]

    def test_blocks_cover_the_fed_tokens_and_no_more(self) -> None:
        world = World(make_config(max_step_tokens=5))
        world.add(Request(0, prompt_of(10), 2))
        plan = world.step()
        assert plan is not None
        assert len(plan.scheduled[0].block_ids) == 2


class TestLimits:
    def test_a_prompt_larger_than_the_pool_is_rejected_at_once(self) -> None:
        world = World(make_config(max_len=1000))
        with pytest.raises(RequestRejectedError, match="a prompt of 64 tokens leaves no room to answer in 64"):
            world.add(Request(0, prompt_of(64), 1))
        assert world.scheduler.num_unfinished == 0

    def test_a_prompt_as_long_as_the_context_is_rejected_at_once(self) -> None:
        with pytest.raises(RequestRejectedError, match="leaves no room to answer in 20"):
            World(make_config(max_len=20)).add(Request(0, prompt_of(20), 1))

    def test_an_id_in_use_is_rejected(self) -> None:
        world = World(make_config())
        world.add(Request(0, prompt_of(3), 1))
        with pytest.raises(RequestRejectedError, match="request id 0 is in use"):
            world.scheduler.add(Request(0, prompt_of(3), 1))

    @pytest.mark.parametrize(("prompt", "max_new_tokens"), [((), 1), ((1, 2), 0)])
    def test_an_empty_question_or_answer_is_rejected(self, prompt: tuple[int, ...], max_new_tokens: int) -> None:
        with pytest.raises(RequestRejectedError):
            Request(0, prompt, max_new_tokens)

    def test_an_answer_that_outgrows_the_pool_is_cut_with_the_reason_length(self) -> None:
        world = World(make_config(num_blocks=3, max_len=1000))
        world.add(Request(0, prompt_of(5), 100))
        world.run_to_end()
        assert len(world.answers[0].token_ids) == 12 - 5
        assert world.answers[0].finish_reason is FinishReason.LENGTH

    def test_a_stop_token_ends_an_answer_and_is_part_of_it(self) -> None:
        answer = full_answer(Request(0, prompt_of(3), 10))
        world = World(make_config())
        world.add(Request(0, prompt_of(3), 10, stop_token_ids=frozenset({answer[4]})))
        world.run_to_end()
        assert world.answers[0].token_ids == answer[: answer.index(answer[4]) + 1]
        assert world.answers[0].finish_reason is FinishReason.STOP


class TestPrefixes:
    def test_a_prefix_hit_skips_its_tokens_and_shares_its_blocks(self) -> None:
        world = World(make_config())
        world.add(Request(0, prompt_of(10), 1))
        first = world.step()
        world.add(Request(1, prompt_of(10), 1))
        second = world.step()
        assert first is not None
        assert second is not None
        assert (second.scheduled[0].start, second.scheduled[0].num_tokens) == (8, 2)
        assert second.scheduled[0].block_ids[:2] == first.scheduled[0].block_ids[:2]
        assert world.scheduler.counters.prefix_hit_tokens == 8

    def test_a_prefix_cannot_be_hit_before_the_step_that_writes_it_is_committed(self) -> None:
        world = World(make_config())
        world.add(Request(0, prompt_of(10), 1))
        world.launch()
        world.add(Request(1, prompt_of(10), 1))
        plan = world.launch()
        assert plan is not None
        assert plan.scheduled[0].start == 0

    def test_the_answer_is_part_of_the_prefix_of_the_next_question(self) -> None:
        world = World(make_config())
        world.add(Request(0, prompt_of(6), 8))
        world.run_to_end()
        world.add(Request(1, (*prompt_of(6), *world.answers[0].token_ids, 3), 1))
        plan = world.step()
        assert plan is not None
        assert plan.scheduled[0].start == 12

    def test_no_block_is_shared_without_prefix_caching(self) -> None:
        world = World(make_config(prefix_caching=False))
        for request_id in range(2):
            world.add(Request(request_id, prompt_of(10), 1))
            world.step()
        assert world.scheduler.counters.prefix_hit_tokens == 0


class TestOverlap:
    def test_the_next_step_is_planned_with_the_token_that_is_still_being_sampled(self) -> None:
        world = World(make_config())
        world.add(Request(0, prompt_of(3), 4))
        world.launch()
        plan = world.launch()
        assert plan is not None
        item = plan.scheduled[0]
        assert (item.start, item.num_tokens, item.token_ids, item.takes_last_token) == (3, 1, (), True)

    def test_no_step_is_planned_for_a_token_beyond_the_length_limit(self) -> None:
        world = World(make_config())
        world.add(Request(0, prompt_of(3), 1))
        world.launch()
        assert world.launch() is None

    def test_a_request_that_stops_in_step_n_keeps_its_blocks_until_step_n_plus_1_is_committed(self) -> None:
        answer = full_answer(Request(0, prompt_of(3), 4))
        world = World(make_config())
        world.add(Request(0, prompt_of(3), 4, stop_token_ids=frozenset(answer[:1])))
        world.launch()
        world.launch()
        assert [output.finish_reason for output in world.land()] == [FinishReason.STOP]
        assert world.scheduler.tables.device.num_used == 1
        assert world.land() == []
        assert world.scheduler.tables.device.num_used == 0
        assert world.answers[0].token_ids == answer[:1]

    def test_an_aborted_request_keeps_its_blocks_until_its_step_is_committed(self) -> None:
        world = World(make_config())
        world.add(Request(0, prompt_of(3), 4))
        world.launch()
        assert world.scheduler.abort(0) == RequestOutput(0, (), FinishReason.ABORT)
        assert world.scheduler.tables.device.num_used == 1
        assert world.land() == []
        assert world.scheduler.tables.device.num_used == 0

    def test_a_victim_that_a_step_in_flight_reads_sits_one_step_out_before_it_is_preempted(self) -> None:
        world = World(make_config(num_blocks=4, prefix_caching=False), admission=PresentlyFree())
        for request_id in range(2):
            world.add(Request(request_id, prompt_of(7), 6))
        world.launch()
        world.launch()
        third = world.launch()  # needs a third block for request 0
        assert third is None
        assert world.requests[1].num_preemptions == 0
        world.land()
        world.land()
        world.launch()
        assert world.requests[1].num_preemptions == 1
        world.run_to_end(num_ahead=1, after_commit=World.check)
        world.check_answers()

    def test_steps_are_committed_in_order(self) -> None:
        world = World(make_config())
        world.add(Request(0, prompt_of(3), 4))
        world.launch()
        second = world.launch()
        assert second is not None
        with pytest.raises(ValueError, match="step 1 is not the oldest step in flight"):
            world.scheduler.commit(second, StepResult())


class TestEndings:
    def test_aborting_twice_or_an_unknown_request_says_nothing(self) -> None:
        world = World(make_config())
        world.add(Request(0, prompt_of(3), 4))
        world.finish(0)
        assert world.scheduler.abort(0) is None
        assert world.scheduler.abort(99) is None

    def test_a_waiting_request_can_be_aborted(self) -> None:
        world = World(make_config(max_running=1))
        for request_id in range(2):
            world.add(Request(request_id, prompt_of(3), 4))
        world.step()
        world.finish(1)
        world.run_to_end()
        assert world.answers[1].token_ids == []
        assert world.scheduler.num_unfinished == 0


class TestSpeculation:
    def test_accepted_drafts_are_kept_and_rejected_ones_leave_nothing_behind(self) -> None:
        world = World(make_config(max_draft_tokens=6))
        request = world.add(Request(0, prompt_of(3), 12))
        world.step()
        right = full_answer(Request(1, tuple(request.token_ids), 2))
        wrong = [next_token([*request.token_ids, *right]) + 1] * 4
        world.scheduler.propose(0, right + wrong)
        plan = world.launch()
        assert plan is not None
        assert (plan.scheduled[0].num_tokens, len(plan.scheduled[0].block_ids)) == (7, 3)
        assert len(world.land()[0].token_ids) == 3
        assert (request.num_known, request.num_computed, len(request.block_ids)) == (7, 6, 2)
        assert (world.scheduler.counters.drafted_tokens, world.scheduler.counters.accepted_tokens) == (6, 2)
        after = world.step()
        assert after is not None
        assert after.scheduled[0].draft_token_ids == ()
        world.run_to_end()
        world.check_answers()

    def test_drafts_beyond_the_length_limit_are_not_fed(self) -> None:
        world = World(make_config(max_draft_tokens=6))
        request = world.add(Request(0, prompt_of(3), 3))
        world.step()
        world.scheduler.propose(0, [1] * 6)
        plan = world.step()
        assert plan is not None
        assert len(plan.scheduled[0].draft_token_ids) == 1
        assert request.num_generated <= 3

    def test_no_step_is_planned_ahead_of_one_that_verifies(self) -> None:
        world = World(make_config(max_draft_tokens=2))
        world.add(Request(0, prompt_of(3), 4))
        world.launch()
        assert world.launch() is None

    def test_drafts_give_way_where_blocks_are_short(self) -> None:
        world = World(make_config(num_blocks=2, max_draft_tokens=4))
        world.add(Request(0, prompt_of(3), 5))
        world.step()
        world.step()
        world.scheduler.propose(0, [1] * 4)
        world.run_to_end()
        assert world.scheduler.counters.preemptions == 0
        world.check_answers()


class TestPreemption:
    @pytest.mark.parametrize(("preemption", "num_swaps"), [(Preemption.RECOMPUTE, 0), (Preemption.SWAP, 1)])
    def test_the_last_to_come_makes_room_and_its_answer_does_not_change(
        self, preemption: Preemption, num_swaps: int
    ) -> None:
        config = make_config(num_blocks=5, num_host_blocks=5, preemption=preemption, prefix_caching=False)
        world = World(config, admission=PresentlyFree())
        for request_id in range(2):
            world.add(Request(request_id, prompt_of(6), 8))
        world.run_to_end(after_commit=World.check)
        assert [request.num_preemptions for request in world.requests.values()] == [0, 1]
        assert world.scheduler.counters.swaps_out == num_swaps
        assert sum(len(plan.swap_out) for plan in world.plans) == sum(len(plan.swap_in) for plan in world.plans)
        world.check_answers()

    def test_a_swapped_request_computes_nothing_twice(self) -> None:
        config = make_config(num_blocks=5, num_host_blocks=5, preemption=Preemption.SWAP, prefix_caching=False)
        world = World(config, admission=PresentlyFree())
        for request_id in range(2):
            world.add(Request(request_id, prompt_of(6), 8))
        world.run_to_end()
        assert world.scheduler.counters.scheduled_tokens == 2 * (6 + 8 - 1)

    def test_recomputes_where_the_host_has_no_room(self) -> None:
        config = make_config(num_blocks=5, num_host_blocks=1, preemption=Preemption.SWAP, prefix_caching=False)
        world = World(config, admission=PresentlyFree())
        for request_id in range(2):
            world.add(Request(request_id, prompt_of(6), 8))
        world.run_to_end()
        assert (world.scheduler.counters.preemptions, world.scheduler.counters.swaps_out) == (1, 0)
        world.check_answers()


class TestContiguousSlots:
    def test_one_block_as_long_as_the_longest_request_is_a_reserved_slot(self) -> None:
        config = make_config(num_blocks=2, block_size=32, max_len=32, prefix_caching=False)
        world = World(config, admission=PresentlyFree())
        for request_id in range(3):
            world.add(Request(request_id, prompt_of(3), 20))
        plan = world.step()
        assert plan is not None
        assert [len(item.block_ids) for item in plan.scheduled] == [1, 1]
        world.run_to_end()
        assert world.scheduler.counters.preemptions == 0
        world.check_answers()


class TestFailedSteps:
    def world_of(self, num_requests: int) -> World:
        world = World(make_config(num_blocks=64, max_step_tokens=64))
        for request_id in range(num_requests):
            world.add(Request(request_id, prompt_of(3 + request_id), 4))
        return world

    def test_the_requests_of_a_failed_step_run_again_in_halves(self) -> None:
        world = self.world_of(5)
        world.launch()
        world.fail()
        retries = [world.step() for _ in range(3)]
        groups = [tuple(item.request_id for item in plan.scheduled) for plan in retries if plan is not None]
        assert groups == [(0, 1, 2), (3, 4), (0, 1, 2, 3, 4)]
        world.run_to_end()
        world.check_answers()

    def test_one_bad_request_is_given_up_and_takes_nobody_with_it(self) -> None:
        world = self.world_of(8)
        num_failures = 0
        while world.scheduler.num_unfinished:
            plan = world.launch()
            assert plan is not None
            if any(item.request_id == 5 for item in plan.scheduled):
                num_failures += 1
                world.fail()
            else:
                world.land()
            world.check()
        assert world.answers[5].finish_reason is FinishReason.ERROR
        assert all(world.answers[i].finish_reason is FinishReason.LENGTH for i in range(8) if i != 5)
        world.check_answers()
        assert num_failures == 6  # with 7, 3 and 1 others, then 3 times alone
        assert world.scheduler.tables.device.num_used == 0

    def test_the_last_output_says_what_failed(self) -> None:
        world = World(make_config(max_failures=1))
        world.add(Request(0, prompt_of(3), 4))
        world.launch()
        (output,) = world.fail()
        assert (output.finish_reason, output.error) == (FinishReason.ERROR, "injected failure")

    def test_a_request_that_fails_alone_is_tried_with_smaller_chunks(self) -> None:
        world = World(make_config())
        world.add(Request(0, prompt_of(16), 1))
        sizes = []
        for _ in range(2):
            plan = world.launch()
            assert plan is not None
            sizes.append(plan.num_tokens)
            world.fail()
        plan = world.step()
        assert plan is not None
        assert [*sizes, plan.num_tokens] == [16, 8, 4]
        world.run_to_end()
        world.check_answers()

    def test_a_failure_undoes_the_steps_planned_after_it_too(self) -> None:
        world = self.world_of(2)
        world.launch()
        world.launch()
        world.fail()
        assert [request.num_computed for request in world.requests.values()] == [0, 0]
        assert world.scheduler.num_in_flight == 0
        world.run_to_end(num_ahead=1)
        world.check_answers()

    def test_nothing_is_planned_after_a_failure_while_an_earlier_step_is_in_flight(self) -> None:
        world = self.world_of(2)
        world.launch()
        world.launch()
        world.fail(index=1)
        assert world.launch() is None
        world.land()
        plan = world.launch()
        assert plan is not None
        assert not any(item.takes_last_token for item in plan.scheduled)

    def test_a_failed_swap_falls_back_to_computing_again(self) -> None:
        config = make_config(num_blocks=5, num_host_blocks=5, preemption=Preemption.SWAP, prefix_caching=False)
        world = World(config, admission=PresentlyFree())
        for request_id in range(2):
            world.add(Request(request_id, prompt_of(6), 8))
        while not world.requests[1].host_block_ids:
            plan = world.launch()
            assert plan is not None
            if not plan.swap_out:
                world.land()
        world.fail()
        world.check()
        assert world.scheduler.tables.host.num_used == 0
        world.run_to_end(after_commit=World.check)
        world.check_answers()

    def test_a_plan_can_be_rolled_back_only_once(self) -> None:
        world = self.world_of(1)
        plan = world.launch()
        assert plan is not None
        world.fail()
        with pytest.raises(ValueError, match="step 0 is not in flight"):
            world.scheduler.rollback(plan, StepError("again"))


def test_the_audit_finds_a_leaked_block() -> None:
    world = World(make_config())
    world.add(Request(0, prompt_of(3), 4))
    world.step()
    world.scheduler.check_invariants()
    world.scheduler.tables.device.allocate(1)
    with pytest.raises(RuntimeError, match="1 owners, in 0 tables"):
        world.scheduler.check_invariants()


def test_forgotten_prefixes_are_computed_again() -> None:
    world = World(make_config())
    for request_id in range(2):
        world.add(Request(request_id, prompt_of(10), 1))
        world.run_to_end()
        world.scheduler.forget_prefixes()
    assert world.scheduler.counters.prefix_hit_tokens == 0
