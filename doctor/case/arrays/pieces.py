"""Steps that are cut into forward passes: the rarest matrix product repeats, and so does the work between.

In a stack of layers without a head the rarest product comes once a layer: what attends once is a layer, no pass.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from doctor.case.arrays.columns import IN_CACHE, Code, Int, Real, gather, medians, slices
from doctor.case.arrays.markers import OpSequence
from doctor.case.arrays.operations import DeviceOps
from doctor.case.arrays.steps import NO_STEP

PRODUCTS = ("gemm", "graph")
LEAST_PIECES = 2
LEAST_DISTANCE = 20
LEAST_ALIKE_SHARE = 0.9
LEAST_ATTENTIONS = 2
"""In a pass of a model that attends: one for each of its layers."""


def cut_steps(ops: DeviceOps, sequence: OpSequence, step: Code) -> tuple[pa.Table, pa.Table]:
    """Rows of `piece_step` and `piece_op`; `step` is that of each operation of the sequence."""
    inside = np.flatnonzero(step != NO_STEP).astype(np.int32)
    step_inside = gather(step, inside)
    if (step_inside[1:] < step_inside[:-1]).any():  # steps of one process follow each other
        inside = gather(inside, np.argsort(step_inside, kind="stable"))
    del step_inside
    first = np.flatnonzero(np.diff(gather(step, inside), prepend=np.int32(NO_STEP)))
    size = np.diff(np.append(first, len(inside)))
    of = np.repeat(np.arange(len(first), dtype=np.int32), size)
    signature = gather(sequence.signature, inside)
    family = gather(ops.family[sequence.span()], inside)
    is_product = ops.is_of(*PRODUCTS)[family]
    piece_count, distance = _distances(of, signature, np.flatnonzero(is_product), len(first))
    alike = _alike_shares(of, signature, first, distance)
    attention_count = np.bincount(of[ops.is_of("attention")[family]], minlength=len(first))
    is_of_layers = (attention_count > 0) & (attention_count < LEAST_ATTENTIONS * piece_count)
    cut = np.flatnonzero((alike >= LEAST_ALIKE_SHARE) & ~is_of_layers)
    is_cut = np.zeros(len(first), dtype=np.bool_)
    is_cut[cut] = True
    row = np.flatnonzero(is_cut[of])
    row = row[np.argsort(inside[row], kind="stable")]
    piece = np.minimum((row - first[of[row]]) // np.maximum(distance[of[row]], 1), piece_count[of[row]] - 1)
    step_id = step[inside[first]].astype(np.int64)
    return (
        pa.table(
            {
                "step_id": step_id[cut],
                "piece_count": piece_count[cut],
                "distance": distance[cut],
                "same_share": alike[cut],
            }
        ),
        pa.table(
            {
                "device_op_id": sequence.first + inside[row].astype(np.int64),
                "step_id": step_id[of[row]],
                "piece": piece,
                "piece_count": piece_count[of[row]],
            }
        ),
    )


def _distances(of: Code, signature: Code, product: Int, step_count: int) -> tuple[Int, Int]:
    """How often the rarest matrix product of each step comes, and its usual distance; 0 where a step is not cut."""
    piece_count, distance = np.zeros(step_count, dtype=np.int64), np.zeros(step_count, dtype=np.int64)
    group = (of[product].astype(np.int64) << 32) | signature[product]
    order = np.argsort(group, kind="stable")
    group, row = group[order], product[order]
    first = np.flatnonzero(np.diff(group, prepend=-1))
    count = np.diff(np.append(first, len(group)))
    # of the rarest the one that comes last: by count, then from the back
    best = np.lexsort((-row[first], count, of[row[first]]))
    of_best = of[row[first[best]]]
    best = best[np.flatnonzero(np.diff(of_best, prepend=-1))]
    best = best[count[best] >= LEAST_PIECES]
    at = np.repeat(first[best], count[best]) + _ranks(count[best])
    gap = np.diff(row[at], prepend=0)
    is_gap = _ranks(count[best]) > 0
    owner = np.repeat(np.arange(len(best)), count[best])
    usual = medians(owner[is_gap], gap[is_gap], len(best))
    is_long = usual > LEAST_DISTANCE
    step = of[row[first[best]]][is_long]
    piece_count[step] = count[best][is_long]
    distance[step] = np.rint(usual[is_long]).astype(np.int64)
    return piece_count, distance


def _ranks(count: Int) -> Int:
    """0, 1, 2, ... for each of the counts, one behind the other."""
    return np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)


def _alike_shares(of: Code, signature: Code, first: Int, distance: Int) -> Real:
    """Share of operations that are like the one a distance before, NaN where nothing can be compared."""
    compared, alike, is_told = np.zeros(len(first), dtype=np.int64), np.zeros(len(first)), distance > 0
    for part in slices(len(of), IN_CACHE):
        row = part.start + np.flatnonzero(is_told[of[part]])
        row = row[row - first[of[row]] >= distance[of[row]]]
        if len(row):
            same = signature[row] == signature[row - distance[of[row]]]
            least = int(of[row[0]])  # steps ascend
            here = slice(least, int(of[row[-1]]) + 1)
            compared[here] += np.bincount(of[row] - least)
            alike[here] += np.bincount(of[row] - least, same)
    return np.where(compared > 0, alike / np.maximum(compared, 1), np.nan)
