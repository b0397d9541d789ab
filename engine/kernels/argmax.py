"""The most likely token of each row of logits."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.jit import OVERLAPS, jit, launch_options, start_next_kernel, tl, triton, wait_for_previous_kernel

_MAX_BLOCK = 32768


@jit
def _argmax_kernel(
    logits_ptr: tl.tensor,
    out_ptr: tl.tensor,
    row_stride: int,
    VOCAB: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    wait_for_previous_kernel(OVERLAP)
    start_next_kernel(OVERLAP)
    best = tl.full((), float("-inf"), tl.float32)
    best_token = tl.full((), 0, tl.int32)
    for first in range(0, VOCAB, BLOCK):
        inside = first + column < VOCAB
        logits = tl.load(logits_ptr + row * row_stride + first + column, mask=inside, other=float("-inf"))
        top, index = tl.max(logits.to(tl.float32), axis=0, return_indices=True, return_indices_tie_break_left=True)
        best_token = tl.where(top > best, first + index, best_token)
        best = tl.maximum(best, top)
    tl.store(out_ptr + row, best_token.to(tl.int64))


def argmax_rows(logits_RV: Tensor) -> Tensor:
    """Index of the largest logit of each row, the first of equal ones.

    Args:
        logits_RV: V contiguous, any float dtype, no NaN.

    Returns:
        int64 (R,).

    Cost: the logits read once by one program per row, 1 launch, no synchronisation: for few rows, where PyTorch's
    general reduction takes several times as long.
    """
    num_rows, vocab = logits_RV.shape
    out_R = torch.empty(num_rows, dtype=torch.int64, device=logits_RV.device)
    if num_rows:
        block = min(_MAX_BLOCK, triton.next_power_of_2(vocab))
        _argmax_kernel[(num_rows,)](
            logits_RV,
            out_R,
            logits_RV.stride(0),
            VOCAB=vocab,
            BLOCK=block,
            OVERLAP=OVERLAPS,
            **launch_options(num_warps=max(1, min(32, block // 1024))),
        )
    return out_R


def argmax_rows_reference(logits_RV: Tensor) -> Tensor:
    """`argmax_rows` in PyTorch, the first of equal ones on every device."""
    is_top = logits_RV == logits_RV.amax(-1, keepdim=True)
    return is_top.to(torch.int8).argmax(-1)
