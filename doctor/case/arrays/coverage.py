"""How much of a stretch of time intervals cover."""

from __future__ import annotations

import numpy as np

from doctor.case.arrays.columns import Int


def covered_between(start: Int, end: Int, edges: Int) -> Int:
    """Length of the union of intervals between each edge and the next; what two of them share counts once.

    Args:
        start: of each interval, ns, ascending.
        end: of each interval, ns.
        edges: ns, ascending, at least two.
    """
    reached = np.maximum.accumulate(np.clip(end, edges[0], edges[-1]))
    before = np.append(edges[:1], reached[:-1])[: len(reached)]
    new = np.minimum(np.maximum(start, before), reached)  # where what an interval adds to those before it begins
    done = np.append(0, np.cumsum(reached - new))
    behind = np.searchsorted(reached, edges, side="right")
    part = np.maximum(edges - np.append(new, edges[-1])[behind], 0)
    return np.asarray(np.diff(done[behind] + part), dtype=np.int64)
