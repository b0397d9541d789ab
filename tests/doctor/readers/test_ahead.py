from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from doctor.errors import EvidenceError
from doctor.readers.ahead import read_ahead


def names_of_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_everything_comes_in_its_order() -> None:
    assert list(read_ahead(iter(range(1000)))) == list(range(1000))
    assert list(read_ahead(iter(()))) == []


def test_an_error_comes_after_what_was_made_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise EvidenceError("it is cut")

    seen: list[int] = []
    with pytest.raises(EvidenceError, match="it is cut"):
        seen.extend(read_ahead(items()))
    assert seen == [1]


def test_no_more_is_made_ahead_than_asked_for() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    for number in read_ahead(items(), depth=3):
        assert len(made) <= number + 1 + 3 + 2


def test_a_consumer_that_stops_early_leaves_no_thread() -> None:
    ahead = read_ahead(iter(range(1_000_000)))
    assert next(ahead) == 0
    assert "doctor-reads-ahead" in names_of_threads()
    ahead.close()  # it is a generator
    assert "doctor-reads-ahead" not in names_of_threads()


def test_the_items_are_made_in_another_thread() -> None:
    def items() -> Iterator[int]:
        yield threading.get_ident()

    assert list(read_ahead(items())) != [threading.get_ident()]
