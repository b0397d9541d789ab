"""Softmax between two matrix products that follow each other on a stream: attention with its scores in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from doctor.case.arrays.columns import Int, by_group, gather
from doctor.case.arrays.operations import COPIES, DeviceOps

NOT_ATTENTION = ("sampling", "moe", "select", "attention")
"""Between the products these say that the softmax belongs to something else."""


@dataclass(frozen=True)
class Sandwiches:
    """Rows of `softmax_between` and `between_products`."""

    softmax: pa.Table
    between: pa.Table


def sandwiches(ops: DeviceOps, stream: Int, work: Int) -> Sandwiches:
    """Find gaps between products that hold a softmax; distances are in kernels, copies between them are not counted.

    Args:
        ops: operations.
        stream: of each of the operations in question, a number of its stream, from 0.
        work: positions of the kernels, copies and memory sets in question, ascending.
    """
    order = by_group(stream.astype(np.int32), int(stream.max(initial=-1)) + 1)
    named = gather(work, order)
    family, stream = gather(ops.family, named), gather(stream, order)
    place = np.cumsum(~ops.is_of(*COPIES)[family], dtype=np.int32)
    is_product = ops.is_of("gemm")[family]
    product = np.flatnonzero(is_product)
    softmax = np.flatnonzero(ops.is_of("softmax")[family])
    gap = np.cumsum(is_product, dtype=np.int32) - 1  # the product before each kernel; a gap is named after it
    softmax = softmax[(gap[softmax] >= 0) & (gap[softmax] < len(product) - 1)]
    before, after = product[gap[softmax]], product[np.minimum(gap[softmax] + 1, max(len(product) - 1, 0))]
    other = np.flatnonzero(ops.is_of(*NOT_ATTENTION)[family] & (gap >= 0))
    others = np.bincount(gap[other], minlength=len(product))
    is_whole = (stream[before] == stream[softmax]) & (stream[after] == stream[softmax]) & (others[gap[softmax]] == 0)
    softmax, before, after = softmax[is_whole], before[is_whole], after[is_whole]
    gaps = np.unique(before)
    until = product[np.searchsorted(product, gaps) + 1] if len(gaps) else gaps
    inner = np.repeat(gaps, until - gaps - 1) + _ranks(until - gaps - 1) + 1
    return Sandwiches(
        pa.table(
            {
                "product_op_id": named[before],
                "before_count": (place[softmax] - place[before]).astype(np.int64),
                "after_count": (place[after] - place[softmax]).astype(np.int64),
                "softmax_op_id": named[softmax],
                "after_op_id": named[after],
            }
        ),
        pa.table({"device_op_id": named[inner], "product_op_id": np.repeat(named[gaps], until - gaps - 1)}),
    )


def _ranks(count: Int) -> Int:
    return np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
