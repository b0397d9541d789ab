from __future__ import annotations

import pytest

from engine.scheduling.admission import PresentlyFree, ProjectedPeak
from engine.scheduling.arrivals import Arrival
from engine.scheduling.balancer import Balancer, BalancerConfig
from engine.scheduling.batching import BatchingPolicy, ContinuousBatch, DynamicWindow, SingleRequest, StaticBatch
from engine.scheduling.plan import ScheduledRequest, StepPlan
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.scheduler_config import Preemption, SchedulerConfig
from engine.scheduling.simulation import CostModel, SimulationResult, simulate
from engine.scheduling.waiting_queue import ArrivalQueue

CONFIG = SchedulerConfig(num_blocks=64, block_size=16, max_len=512, max_running=16, max_step_tokens=128)
COST = CostModel(
    base_ns=1_000_000, prefill_token_ns=10_000, decode_row_ns=1_000, kv_token_ns=10, swapped_block_ns=100_000
)


def arrivals_of(count: int, gap_us: int = 0, prefix_tokens: int = 0) -> list[Arrival]:
    return [
        Arrival(i * gap_us, 40 + i % 7, 5 + i % 11, 64, prefix_id=1 + i % 2, prefix_tokens=prefix_tokens)
        for i in range(count)
    ]


def serve(arrivals: list[Arrival], batching: BatchingPolicy | None = None) -> SimulationResult:
    def make_scheduler() -> Scheduler:
        return Scheduler(CONFIG, batching or ContinuousBatch(CONFIG.max_step_tokens), ProjectedPeak(), ArrivalQueue())

    return simulate(arrivals, make_scheduler, COST)


def test_a_step_costs_what_the_formula_says() -> None:
    prefill = ScheduledRequest(0, 0, 100, (), (), (), samples=True)
    decode = ScheduledRequest(1, 49, 1, (), (), (), samples=True)
    plan = StepPlan(0, (prefill, decode), swap_out=((0, 0),))
    assert COST.step_ns(plan) == 1_000_000 + 100 * 10_000 + 1_000 + (100 + 50) * 10 + 100_000


def test_one_request_alone_takes_the_sum_of_its_steps() -> None:
    result = serve([Arrival(7, prompt_tokens=100, output_tokens=3, max_new_tokens=10)])
    prefill_ns = 1_000_000 + 100 * 10_000 + 100 * 10
    decodes_ns = sum(1_000_000 + 1_000 + kv_tokens * 10 for kv_tokens in (101, 102))
    assert result.served[0].first_token_us == 7 + prefill_ns // 1000
    assert result.served[0].finished_us == (7_000 + prefill_ns + decodes_ns) // 1000


@pytest.mark.parametrize(
    "batching", [SingleRequest(), StaticBatch(4), DynamicWindow(4, 0.05), ContinuousBatch(max_step_tokens=128)]
)
def test_every_request_gets_every_token_under_every_batching_mode(batching: BatchingPolicy) -> None:
    arrivals = arrivals_of(30, gap_us=2_000)
    result = serve(arrivals, batching)
    assert sum(tokens for _, tokens in result.progress) == sum(arrival.output_tokens for arrival in arrivals)
    for served in result.served:
        assert served.first_token_us is not None
        assert served.finished_us is not None
        assert served.arrival.at_us < served.first_token_us <= served.finished_us


def test_the_batching_modes_rank_as_the_article_has_them() -> None:
    arrivals = arrivals_of(60)
    ends = [
        serve(arrivals, batching).progress[-1][0]
        for batching in (SingleRequest(), StaticBatch(16), ContinuousBatch(max_step_tokens=128))
    ]
    assert ends == sorted(ends, reverse=True)


def test_shared_prefixes_save_prompt_tokens() -> None:
    apart = serve(arrivals_of(30, gap_us=100_000))
    shared = serve(arrivals_of(30, gap_us=100_000, prefix_tokens=32))
    assert shared.prefix_hit_tokens > 0
    assert shared.scheduled_tokens == apart.scheduled_tokens - shared.prefix_hit_tokens + apart.prefix_hit_tokens


@pytest.mark.parametrize("preemption", list(Preemption))
def test_a_crowded_pool_preempts_and_still_serves_everybody(preemption: Preemption) -> None:
    config = SchedulerConfig(
        num_blocks=12, block_size=8, max_len=96, max_running=16, max_step_tokens=64, num_host_blocks=40,
        preemption=preemption,
    )  # fmt: skip
    arrivals = [Arrival(0, 20, 40, 60) for _ in range(20)]
    result = simulate(
        arrivals, lambda: Scheduler(config, ContinuousBatch(64), PresentlyFree(), ArrivalQueue()), COST, num_replicas=1
    )
    assert result.preemptions > 0
    assert sum(tokens for _, tokens in result.progress) == 800


def test_replicas_share_the_work_and_the_balancer_evens_it_out() -> None:
    # Every second request is large: taking turns sends all of them to the same replica.
    arrivals = [Arrival(i, 200 if i % 2 else 20, 60 if i % 2 else 5, 60 if i % 2 else 5) for i in range(40)]

    def make_scheduler() -> Scheduler:
        return Scheduler(CONFIG, ContinuousBatch(CONFIG.max_step_tokens), ProjectedPeak(), ArrivalQueue())

    in_turn = simulate(arrivals, make_scheduler, COST, num_replicas=2)
    balancer = Balancer(2, BalancerConfig(CONFIG.block_size, CONFIG.num_blocks, max_outstanding=1_000_000))
    balanced = simulate(arrivals, make_scheduler, COST, num_replicas=2, balancer=balancer)
    assert balanced.progress[-1][0] < in_turn.progress[-1][0]
    assert [replica.num_outstanding for replica in balancer.replicas] == [0, 0]


def test_an_overloaded_balancer_holds_requests_back_and_loses_none() -> None:
    balancer = Balancer(2, BalancerConfig(CONFIG.block_size, CONFIG.num_blocks, max_outstanding=200))

    def make_scheduler() -> Scheduler:
        return Scheduler(CONFIG, ContinuousBatch(CONFIG.max_step_tokens), ProjectedPeak(), ArrivalQueue())

    result = simulate(arrivals_of(30), make_scheduler, COST, num_replicas=2, balancer=balancer)
    assert all(served.finished_us is not None for served in result.served)
    assert max(result.peak_blocks) < CONFIG.num_blocks // 4


def test_a_simulation_is_repeatable() -> None:
    assert serve(arrivals_of(30, gap_us=500)) == serve(arrivals_of(30, gap_us=500))
