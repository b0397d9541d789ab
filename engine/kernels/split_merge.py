"""Splits of one softmax, merged by the program that finishes last: who has arrived, and how results are weighed."""

# ruff: noqa: PLR0913, PLR0917 - device functions take pointers and sizes one by one

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.jit import jit, tl, triton


@jit
def is_last_to_arrive(
    acc: tl.tensor,
    lse: tl.tensor,
    partial_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    counter_ptr: tl.tensor,
    part: tl.tensor,
    mask: tl.tensor,
    num_splits: tl.tensor,
    HEAD_DIM: tl.constexpr,
) -> tl.tensor:
    """Leave the result of a split where the others see it; true for the program that finds all the others' there."""
    row_inside = tl.max(mask.to(tl.int32), axis=1) > 0
    tl.store(lse_ptr + part, lse, mask=row_inside)
    tl.store(partial_ptr + (part * HEAD_DIM)[:, None] + tl.arange(0, acc.shape[1])[None, :], acc, mask=mask)
    tl.debug_barrier()
    is_last = tl.atomic_add(counter_ptr, 1, sem="acq_rel") == num_splits - 1
    if is_last:
        tl.store(counter_ptr, 0)
    return is_last


@jit
def merge_splits(
    out_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    first_token: tl.tensor,
    first_scratch: tl.tensor,
    first_head: tl.tensor,
    num_rows: tl.tensor,
    num_splits: tl.tensor,
    split_stride: tl.tensor,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    MERGE_ROWS: tl.constexpr,
) -> None:
    """Weigh the splits of the rows of a tile by their log-sum-exp.

    All splits of a few rows come in one load: a loop over splits would wait for memory once per split.
    """
    d = tl.arange(0, BLOCK_D)
    split = tl.arange(0, MAX_SPLITS)
    for first_row in range(0, num_rows, MERGE_ROWS):
        row = first_row + tl.arange(0, MERGE_ROWS)
        inside = row < num_rows
        head = first_head + row % GROUP
        out_row = (first_token + row // GROUP).to(tl.int64) * HEADS + head
        scratch_row = (first_scratch + row // GROUP).to(tl.int64) * HEADS + head
        part = scratch_row[:, None] * split_stride + split[None, :]
        present = inside[:, None] & (split < num_splits)[None, :]
        # Past the first-level cache: other multiprocessors have written these lines since this kernel began.
        lse = tl.load(lse_ptr + part, mask=present, other=float("-inf"), cache_modifier=".cg")
        values = tl.load(
            partial_ptr + (part * HEAD_DIM)[:, :, None] + d[None, None, :],
            mask=present[:, :, None] & (d < HEAD_DIM)[None, None, :],
            other=0.0,
            cache_modifier=".cg",
        )
        maximum = tl.max(lse, axis=1)
        weight = tl.exp2(lse - tl.where(maximum == float("-inf"), 0.0, maximum)[:, None])
        total = tl.sum(weight, axis=1)
        weight = weight / tl.where(total == 0.0, 1.0, total)[:, None]
        merged = tl.sum(values * weight[:, :, None], axis=1)
        mask = inside[:, None] & (d < HEAD_DIM)[None, :]
        tl.store(out_ptr + (out_row * HEAD_DIM)[:, None] + d[None, :], merged.to(out_ptr.dtype.element_ty), mask=mask)


class DecodeCounters:
    """Which splits of a tile have arrived. Zero between launches: the last program of a tile resets its counter.

    One object serves any number of launches on one stream.
    """

    def __init__(self, device: torch.device, size: int = 16384) -> None:
        # All sizes there ever were: a CUDA graph goes on using the one that it was captured with.
        self._sizes = [torch.zeros(size, dtype=torch.int32, device=device)]

    def at_least(self, size: int) -> Tensor:
        """int32 tensor of at least `size` zeros."""
        largest = self._sizes[-1]
        if largest.numel() < size:
            largest = torch.zeros(triton.next_power_of_2(size), dtype=torch.int32, device=largest.device)
            self._sizes.append(largest)
        return largest
