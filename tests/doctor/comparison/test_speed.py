from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from doctor.comparison.alignment import Alignment, StepGroup, StepKind, align
from doctor.comparison.outcome import Comparison, LeftOut, Speed
from doctor.comparison.speed import speeds as speeds_of

Lengths = Mapping[str, Sequence[float]]


def aligned(before: Lengths, after: Lengths) -> Alignment:
    """Steps by the name of their kind; `usual` and `decode` hold as much work as most."""
    sides = [{_kind(name): StepGroup(tuple(lengths)) for name, lengths in side.items()} for side in (before, after)]
    return align(*sides)


def _kind(name: str) -> StepKind:
    return StepKind(name, is_usual=name in {"usual", "decode"})


def speeds(before: Lengths, after: Lengths) -> tuple[Speed, ...]:
    return speeds_of(aligned(before, after).pairs)


def noisy(mean: float, count: int, seed: int) -> list[float]:
    return list(np.random.default_rng(seed).normal(mean, 0.1 * mean, count))


def test_the_interval_holds_the_true_speed_up_about_as_often_as_it_says() -> None:
    trials = 200
    held = 0
    for seed in range(trials):
        (speed,) = speeds({"decode": noisy(2.0, 60, seed)}, {"decode": noisy(1.6, 50, seed + trials)})
        assert speed.low is not None
        assert speed.high is not None
        held += speed.low <= 1.25 <= speed.high
    assert 0.88 <= held / trials <= 0.99


def test_what_grows_in_both_alike_cancels_where_steps_are_paired() -> None:
    growing = list(np.linspace(1.0, 3.0, 40))
    (paired,) = speeds({"decode": growing}, {"decode": [length / 1.2 for length in growing]})
    assert paired.is_paired
    assert paired.low == pytest.approx(1.2)
    assert paired.high == pytest.approx(1.2)
    (apart,) = speeds({"decode": growing}, {"decode": [length / 1.2 for length in growing[:-1]]})
    assert not apart.is_paired
    assert apart.low is not None
    assert apart.low < 1.1


def test_one_pair_of_runs_gives_one_answer() -> None:
    runs = {"decode": noisy(1.0, 20, 1)}, {"decode": noisy(1.0, 30, 2)}
    assert speeds(*runs) == speeds(*runs)


def test_few_steps_have_no_interval() -> None:
    (speed,) = speeds({"prefill": [2.0, 2.0]}, {"prefill": [1.0, 1.0]})
    assert (speed.speedup, speed.low, speed.high) == (2.0, None, None)


@pytest.mark.parametrize(("after", "is_told"), [(1.03, False), (0.9, False), (1.3, True), (0.7, True)])
def test_of_two_steps_a_small_change_is_told_from_chance_by_nothing(after: float, is_told: bool) -> None:
    (speed,) = speeds({"usual": [1.0, 1.0]}, {"usual": [after, after]})
    assert speed.is_beyond_chance == is_told


def test_kinds_of_step_are_compared_with_their_like() -> None:
    before = {"prefill": [5.0], "decode": [1.0, 1.0, 1.0, 1.0, 1.0, 1.0], "usual": [9.0]}
    after = {"decode": [0.5] * 6, "prefill": [4.0], "other": [1.0]}
    assert [(speed.subject, speed.speedup) for speed in speeds(before, after)] == [("decode", 2.0), ("prefill", 1.25)]


def test_runs_that_name_their_steps_differently_are_compared_by_those_of_usual_work() -> None:
    (speed,) = speeds({"usual": [2.0, 2.0, 2.0]}, {"prefill": [1.5], "decode": [0.5, 0.5, 0.5]})
    assert (speed.subject, speed.before_count, speed.after_count) == ("usual", 3, 3)
    assert speed.speedup == pytest.approx(4.0)
    assert speeds({"usual": [2.0]}, {}) == ()


def test_runs_without_a_usual_step_are_compared_by_all_of_them() -> None:
    (speed,) = speeds({"usual": [2.0, 2.0]}, {"prefill": [1.0, 0.5]})
    assert speed.subject == "all"
    assert speed.speedup == pytest.approx(2.0 / 0.75)


def test_a_prefill_in_one_run_only_is_left_out_and_named() -> None:
    alignment = aligned({"decode": [1.0] * 6}, {"prefill": [9.0], "decode": [1.0] * 6, "unusual": [2.0, 3.0]})
    assert [speed.speedup for speed in speeds_of(alignment.pairs)] == [1.0]
    assert set(alignment.left_out) == {LeftOut("after", "prefill", 1, 9.0), LeftOut("after", "unusual", 2, 5.0)}


def test_the_kind_with_most_time_on_both_sides_together_comes_first() -> None:
    before = {"prefill": [2.0], "decode": [0.1] * 6}
    assert [speed.subject for speed in speeds(before, {"prefill": [2.5], "decode": [1.0] * 6})] == ["decode", "prefill"]


def test_a_kind_of_few_steps_in_common_does_not_stand_for_the_runs() -> None:
    (speed,) = speeds({"prefill": [5.0], "usual": [1.0] * 6}, {"prefill": [5.0], "decode": [0.5] * 6})
    assert (speed.subject, speed.speedup) == ("usual", 2.0)


def regressions(before: dict[str, list[float]], after: dict[str, list[float]], share: float) -> list[str]:
    comparison = Comparison((), (), (), (), (), speeds(before, after))
    return [speed.subject for speed in comparison.regressions(share)]


def test_a_regression_is_slower_than_the_bar_and_beyond_chance() -> None:
    before = {"decode": noisy(1.0, 60, 1)}
    assert regressions(before, {"decode": noisy(1.2, 60, 2)}, 0.05) == ["decode"]
    assert regressions(before, {"decode": noisy(1.2, 60, 2)}, 0.5) == []
    wild = {"decode": [0.2, 3.0, 0.4, 0.1, 2.9, 0.5]}
    assert regressions({"decode": [1.0] * 6}, wild, 0.05) == []


def test_a_kind_without_interval_counts_only_where_no_kind_has_one() -> None:
    steady = {"decode": [1.0] * 10}
    assert regressions({**steady, "prefill": [1.0]}, {**steady, "prefill": [2.0]}, 0.05) == []
    assert regressions({"prefill": [1.0]}, {"prefill": [2.0]}, 0.05) == ["prefill"]
