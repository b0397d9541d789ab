from __future__ import annotations

from engine.scheduling.balancer import Balancer, BalancerConfig
from engine.scheduling.request import Request

NO_LIMIT = 1_000_000


def balancer(max_outstanding: int = NO_LIMIT, output_weight: int = 1, num_replicas: int = 2) -> Balancer:
    return Balancer(num_replicas, BalancerConfig(4, 100, max_outstanding, output_weight))


def request(request_id: int, num_prompt: int, max_new_tokens: int = 1, first_token: int | None = None) -> Request:
    start = 1000 * request_id if first_token is None else first_token
    return Request(request_id, tuple(range(start, start + num_prompt)), max_new_tokens)


def test_gives_a_request_to_the_replica_with_the_fewest_outstanding_tokens() -> None:
    replicas = balancer()
    assert [replicas.assign(request(i, tokens)) for i, tokens in enumerate([100, 10, 10, 10])] == [0, 1, 1, 1]


def test_generated_tokens_are_outstanding_too_and_weigh_more_than_prompt_tokens() -> None:
    replicas = balancer(output_weight=4)
    assert replicas.assign(request(0, 10, max_new_tokens=50)) == 0
    assert replicas.assign(request(1, 100)) == 1
    assert replicas.assign(request(2, 10)) == 1


def test_work_that_was_done_is_not_outstanding_any_more() -> None:
    replicas = balancer()
    replicas.assign(request(0, 100, max_new_tokens=10))
    replicas.assign(request(1, 50, max_new_tokens=10))
    replicas.advance(0, 1)
    assert replicas.replicas[0].num_outstanding == 9
    replicas.advance(0, 4)
    replicas.finish(0)
    assert [replica.num_outstanding for replica in replicas.replicas] == [0, 60]


def test_nothing_stays_outstanding_after_an_abort() -> None:
    replicas = balancer()
    replicas.assign(request(0, 100, max_new_tokens=10))
    replicas.withdraw(0)
    assert replicas.replicas[0].num_outstanding == 0


def test_requests_with_a_common_prefix_stay_together() -> None:
    replicas = balancer()
    first = replicas.assign(request(0, 41, first_token=0))
    replicas.assign(request(1, 50))
    assert replicas.assign(request(2, 41, first_token=0)) == first


def test_a_popular_prefix_spreads_when_its_home_is_further_behind_than_it_saves() -> None:
    replicas = balancer()
    homes = [replicas.assign(request(i, 41, max_new_tokens=30, first_token=0)) for i in range(4)]
    assert set(homes) == {0, 1}


def test_refuses_a_request_while_every_replica_is_loaded_to_the_limit() -> None:
    replicas = balancer(max_outstanding=100)
    assert replicas.assign(request(0, 80)) == 0
    assert replicas.assign(request(1, 80)) == 1
    assert replicas.assign(request(2, 80)) is None
    replicas.finish(0)
    assert replicas.assign(request(2, 80)) == 0


def test_an_idle_replica_takes_a_request_larger_than_the_limit() -> None:
    assert balancer(max_outstanding=10).assign(request(0, 80)) == 0


def test_learns_how_long_answers_are() -> None:
    replicas = balancer(num_replicas=1)
    for request_id in range(20):
        replicas.assign(request(request_id, 5, max_new_tokens=1000))
        replicas.advance(request_id, 7)
        replicas.finish(request_id)
    replicas.assign(request(99, 5, max_new_tokens=1000))
    assert replicas.replicas[0].num_outstanding == 12
