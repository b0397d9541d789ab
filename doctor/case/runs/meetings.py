"""Whether two ranks met: the collectives of one job end on all of its ranks at once, whatever their clocks say."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]

LEAST_MEETINGS = 8
"""Fewer agree by chance."""
MOST_SPREAD_NS = 50_000
"""Ends of one collective lie within a few microseconds on all ranks; clocks of two hosts drift by tens in a second."""
LEAST_SHARED = 0.5
"""Of the collectives of the shorter recording: one may begin or end some steps later than the other."""
MOST_COMPARED = 1024
"""Collectives from the end of a recording."""


def did_meet(one: Times, two: Times) -> bool | None:
    """Tell whether two recordings hold the same collectives of one job; None where too few are recorded to tell.

    Args:
        one: ends of a rank's collectives on its own clock, in ns, ascending.
        two: those of another rank.
    """
    shorter = min(len(one), len(two), MOST_COMPARED)
    if shorter < LEAST_MEETINGS:
        return None
    one, two = one[-MOST_COMPARED:], two[-MOST_COMPARED:]
    shared = max(LEAST_MEETINGS, int(LEAST_SHARED * shorter))
    shifts = range(shared - len(two), len(one) - shared + 1)
    return any(_agrees(one, two, shift) for shift in shifts)


def _agrees(one: Times, two: Times, shift: int) -> bool:
    """The k-th of `two` is the k + shift-th of `one`: then their clocks differ by the same time at each."""
    first, second = max(shift, 0), max(-shift, 0)
    count = min(len(one) - first, len(two) - second)
    low, high = np.quantile(one[first : first + count] - two[second : second + count], (0.1, 0.9))
    return bool(high - low <= MOST_SPREAD_NS)
