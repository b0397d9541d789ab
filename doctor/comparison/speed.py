"""How much faster one run is than another, and how sure that is, from the lengths of their steps or repeats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from doctor.comparison.alignment import ENOUGH, Pair
from doctor.comparison.outcome import CONFIDENCE, Speed

_RESAMPLES = 2000
_SEED = 20_260_101
"""Fixed, so that one pair of runs gives one answer."""
_MOST_OF_HOST = 0.8
"""That a recorder takes of the host's time: with Python stacks a busy encoder was launched 5.3 times slower."""

Lengths = npt.NDArray[np.float64]


def speeds(pairs: Sequence[Pair], *, is_one_recorder: bool = True) -> tuple[Speed, ...]:
    """How much faster each kind of step became, in the order of the pairs.

    Two recorders slow the host by different amounts, and the device by none. There an interval reaches from steps of
    before that are as short as they may have been without their recorder to steps of after that are.
    """
    return tuple(_speed(pair, is_one_recorder=is_one_recorder) for pair in pairs)


def _speed(pair: Pair, *, is_one_recorder: bool) -> Speed:
    before, after = np.asarray(pair.before.seconds), np.asarray(pair.after.seconds)
    is_paired = len(before) == len(after)
    low, high = _interval(before, after, is_paired=is_paired)
    if not is_one_recorder and low is not None and high is not None:
        low, high = _without_recorders(pair, low, high)
    means = float(before.mean()), float(after.mean())
    return Speed(pair.subject, len(before), len(after), *means, means[0] / means[1], low, high, is_paired)


def _without_recorders(pair: Pair, low: float, high: float) -> tuple[float | None, float | None]:
    shares = pair.before.device_share, pair.after.device_share
    if not all(shares):
        return None, None
    before, after = (1.0 - _MOST_OF_HOST * (1.0 - share) for share in shares)
    return low * before, high / after


def _interval(before: Lengths, after: Lengths, *, is_paired: bool) -> tuple[float | None, float | None]:
    """Percentiles of the ratio of means over resamples.

    Steps near each other are alike, so that blocks are drawn and not single steps: circular block bootstrap, Politis
    and Romano 1992, blocks of the cube root of the number of steps. Where both runs have as many steps, the same places
    are drawn in both: what changes from step to step in both alike, such as a growing context, then cancels.
    """
    if min(len(before), len(after)) < ENOUGH:
        return None, None
    random = np.random.default_rng(_SEED)
    places = _resampled(len(before), random)
    means_before = before[places].mean(axis=1)
    means_after = after[places if is_paired else _resampled(len(after), random)].mean(axis=1)
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(means_before / means_after, (tail, 1.0 - tail))
    return float(low), float(high)


def _resampled(count: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Places of each resample, `[resamples, count]`."""
    length = max(1, round(count ** (1.0 / 3.0)))
    starts = random.integers(0, count, size=(_RESAMPLES, -(-count // length)))
    return ((starts[:, :, None] + np.arange(length)) % count).reshape(_RESAMPLES, -1)[:, :count]
