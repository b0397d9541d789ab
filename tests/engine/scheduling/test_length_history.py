from __future__ import annotations

from engine.scheduling.length_history import LengthHistory
from engine.scheduling.request import Request


def request_with(limit: int, num_generated: int) -> Request:
    request = Request(0, (1,), limit)
    request.token_ids += [1] * num_generated
    return request


def test_expects_the_limit_until_enough_answers_have_ended() -> None:
    lengths = LengthHistory(min_answers=2)
    lengths.add(limit=100, length=10)
    assert lengths.num_left(request_with(100, 0)) == 100
    lengths.add(limit=100, length=10)
    assert lengths.num_left(request_with(100, 0)) == 10


def test_expects_the_percentile_of_the_answers_that_are_longer_than_what_is_there() -> None:
    lengths = LengthHistory(percentile=50, min_answers=1)
    for length in (10, 20, 30, 40, 50):
        lengths.add(limit=100, length=length)
    assert lengths.num_left(request_with(100, 0)) == 30
    assert lengths.num_left(request_with(100, 30)) == 10


def test_expects_the_limit_beyond_the_longest_answer_seen() -> None:
    lengths = LengthHistory(min_answers=1)
    lengths.add(limit=100, length=10)
    assert lengths.num_left(request_with(100, 10)) == 90


def test_keeps_answers_to_different_limits_apart() -> None:
    lengths = LengthHistory(min_answers=1)
    lengths.add(limit=100, length=10)
    assert lengths.num_left(request_with(50, 0)) == 50


def test_forgets_answers_older_than_its_window() -> None:
    lengths = LengthHistory(window=2, min_answers=1)
    for length in (90, 5, 5):
        lengths.add(limit=100, length=length)
    assert lengths.num_left(request_with(100, 0)) == 5
