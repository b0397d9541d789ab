from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.scheduling.admission import (
    AdmissionRule,
    Forecast,
    FullLength,
    PresentlyFree,
    ProjectedPeak,
    projected_peak,
)
from engine.scheduling.length_history import LengthHistory
from engine.scheduling.request import FinishReason, Request
from tests.support.scheduler_world import STOP_TOKEN, World, full_answer, make_config


def num_admitted(admission: AdmissionRule, requests: list[Request]) -> int:
    """How many of the requests are let in at once into 16 blocks of 4 tokens."""
    world = World(make_config(prefix_caching=False), admission=admission)
    for request in requests:
        world.add(request)
    world.step()
    return len(world.scheduler.running)


def played_peak(forecasts: list[Forecast], block_size: int) -> int:
    """The most blocks held at once, by playing every step: all add a token, then those that are done leave."""
    held = [(forecast.num_used, forecast.num_left) for forecast in forecasts]
    peak = 0
    while held:
        held = [(used + 1, left - 1) for used, left in held]
        peak = max(peak, sum(-(-used // block_size) for used, _ in held))
        held = [(used, left) for used, left in held if left > 0]
    return peak


@given(
    st.lists(st.builds(Forecast, st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=8), st.integers(1, 16)
)
def test_the_projected_peak_is_what_playing_every_step_gives(forecasts: list[Forecast], block_size: int) -> None:
    assert projected_peak(forecasts, block_size) == played_peak(forecasts, block_size)


def test_presently_free_admits_as_many_prompts_as_there_are_blocks() -> None:
    requests = [Request(i, tuple(range(4)), 28) for i in range(8)]
    assert num_admitted(PresentlyFree(), requests) == 8


def test_full_length_admits_only_what_fits_if_everybody_reaches_the_limit() -> None:
    requests = [Request(i, tuple(range(4)), 28) for i in range(8)]
    assert num_admitted(FullLength(), requests) == 2


def test_projected_peak_counts_on_short_requests_leaving_before_long_ones_grow() -> None:
    requests = [Request(0, tuple(range(4)), 44), *(Request(i, tuple(range(4)), 4) for i in range(1, 5))]
    assert num_admitted(FullLength(), requests) == 3
    assert num_admitted(ProjectedPeak(), requests) == 5


def test_projected_peak_keeps_its_reserve_free() -> None:
    requests = [Request(i, tuple(range(4)), 12) for i in range(8)]
    assert num_admitted(ProjectedPeak(reserve_blocks=8), requests) < num_admitted(ProjectedPeak(), requests)


def test_projected_peak_never_preempts_when_answers_have_their_forecast_length() -> None:
    world = World(make_config(num_blocks=20, prefix_caching=False), admission=ProjectedPeak())
    for request_id in range(12):
        world.add(Request(request_id, tuple(range(1 + request_id)), 20 - request_id))
    world.run_to_end()
    assert world.scheduler.counters.preemptions == 0


def test_a_forecast_from_past_answers_admits_more_than_limits_do() -> None:
    lengths = LengthHistory(min_answers=3)
    for _ in range(3):
        lengths.add(limit=28, length=4)
    requests = [Request(i, tuple(range(4)), 28) for i in range(8)]
    assert num_admitted(ProjectedPeak(), requests) == 2
    assert num_admitted(ProjectedPeak(lengths=lengths), requests) > 4


def test_a_shared_prefix_is_charged_once() -> None:
    prompt = tuple(range(24))
    world = World(make_config(), admission=ProjectedPeak())
    world.add(Request(0, prompt, 4))
    world.step()
    for request_id in range(1, 4):
        world.add(Request(request_id, prompt, 4))
    world.step()
    assert len(world.scheduler.running) == 4


def test_the_rule_learns_from_answers_that_ended_by_themselves_and_not_from_aborted_ones() -> None:
    lengths = LengthHistory(min_answers=1)
    world = World(make_config(), admission=ProjectedPeak(lengths=lengths))
    world.add(Request(0, (1, 2), 40))
    world.step()
    world.finish(0)
    assert lengths.num_left(Request(1, (1, 2), 40)) == 40
    answer = full_answer(world.add(Request(1, (1, 2), 40, stop_token_ids=frozenset({STOP_TOKEN}))))
    world.run_to_end()
    assert len(answer) < 40
    assert lengths.num_left(Request(2, (1, 2), 40)) == len(answer)


def test_the_rule_learns_from_an_answer_that_a_stop_string_ended() -> None:
    lengths = LengthHistory(min_answers=1)
    world = World(make_config(), admission=ProjectedPeak(lengths=lengths))
    world.add(Request(0, (1, 2), 40))
    for _ in range(3):
        world.step()
    world.finish(0, FinishReason.STOP)
    assert lengths.num_left(Request(1, (1, 2), 40)) == 3
