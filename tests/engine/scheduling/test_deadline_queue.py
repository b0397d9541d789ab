from __future__ import annotations

from engine.scheduling.deadline_queue import DeadlineQueue
from engine.scheduling.request import Request
from engine.scheduling.waiting_queue import ArrivalQueue, WaitingQueue
from tests.support.scheduler_world import World, make_config


def request(request_id: int, deadline_s: float | None, arrival_s: float = 0.0) -> Request:
    return Request(request_id, (1, 2, 3), 4, arrival_s=arrival_s, deadline_s=deadline_s)


def order(queue: WaitingQueue) -> list[int]:
    """The order in which the queue gives its requests away."""
    given = []
    while queue:
        given.append(queue.peek())
        queue.remove(given[-1])
    return [request.request_id for request in given]


def queue_of(queue: WaitingQueue, *requests: Request) -> WaitingQueue:
    for item in requests:
        queue.add(item)
    return queue


def test_the_earliest_deadline_comes_first_and_no_deadline_last() -> None:
    requests = [request(0, None), request(1, 9.0), request(2, 3.0)]
    assert order(queue_of(DeadlineQueue(), *requests)) == [2, 1, 0]


def test_equal_deadlines_are_served_by_arrival() -> None:
    requests = [request(0, 5.0, arrival_s=2.0), request(1, 5.0, arrival_s=1.0)]
    assert order(queue_of(DeadlineQueue(), *requests)) == [1, 0]


def test_a_late_request_is_served_before_one_that_can_still_be_in_time() -> None:
    world = World(make_config(max_running=1), queue=DeadlineQueue())
    world.add(request(0, 9.0))
    world.add(request(1, 3.0))
    world.now_s = 4.0
    plan = world.step()
    assert plan is not None
    assert plan.scheduled[0].request_id == 1


def test_a_request_without_a_deadline_gives_way_only_for_as_long_as_its_patience() -> None:
    requests = [request(0, None), request(1, 9.0), request(2, 30.0, arrival_s=25.0)]
    assert order(queue_of(DeadlineQueue(patience_s=20.0), *requests)) == [1, 0, 2]


def test_first_come_first_served_ignores_deadlines() -> None:
    requests = [request(0, None, arrival_s=1.0), request(1, 9.0, arrival_s=2.0), request(2, 3.0, arrival_s=3.0)]
    assert order(queue_of(ArrivalQueue(), *requests)) == [0, 1, 2]


def test_an_urgent_request_overtakes_those_that_wait() -> None:
    world = World(make_config(max_running=1), queue=DeadlineQueue())
    for item in (request(0, 50.0), request(1, 40.0), request(2, 5.0)):
        world.add(item)
    world.run_to_end()
    first_seen = dict.fromkeys(item.request_id for plan in world.plans for item in plan.scheduled)
    assert list(first_seen) == [2, 1, 0]


def test_the_least_urgent_running_request_gives_up_its_blocks() -> None:
    world = World(make_config(num_blocks=4, max_len=16), queue=DeadlineQueue())
    for request_id, deadline_s in ((0, 9.0), (1, 5.0)):
        world.add(Request(request_id, tuple(range(4)), 11, deadline_s=deadline_s, expected_new_tokens=1))
    world.run_to_end()
    assert world.requests[0].num_preemptions > 0
    assert world.requests[1].num_preemptions == 0
    world.check_answers()
