"""Choice of the next tokens of a batch, on the device and without waiting for it.

Dimensions: R rows of logits, V tokens of the vocabulary, K reported alternatives, S slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch

from engine.execution.random_numbers import Purpose, exponential, uniform

if TYPE_CHECKING:
    from torch import Tensor

    from engine.execution.staging import Staging
    from engine.sampling_params import SamplingParams

_TINY = 1e-10


@dataclass(frozen=True, slots=True)
class SamplingRows:
    """How to choose each row of a batch: numbers on the device, and what the host knows about all of them.

    Attributes:
        temperature_R: float32, 0 is greedy.
        top_p_R: float32 in (0, 1].
        min_p_R: float32 in [0, 1].
        repetition_R: float32, 1 is none.
        presence_R: float32, 0 is none.
        frequency_R: float32, 0 is none.
        top_k_R: int64, V where all are kept.
        seeds_R: int64.
        positions_R: int64, position of the token to choose.
        is_greedy: all rows take the most probable token.
        cuts_tail: some row has top-k or top-p, which need a sort.
        cuts_min_p: some row has min-p.
    """

    temperature_R: Tensor
    top_p_R: Tensor
    min_p_R: Tensor
    repetition_R: Tensor
    presence_R: Tensor
    frequency_R: Tensor
    top_k_R: Tensor
    seeds_R: Tensor
    positions_R: Tensor
    is_greedy: bool
    cuts_tail: bool
    cuts_min_p: bool


def pack_rows(
    params: Sequence[SamplingParams],
    seeds: Sequence[int],
    positions: Sequence[int],
    vocab_size: int,
    staging: Staging,
) -> SamplingRows:
    """Bring the sampling options of R rows to the device, in one copy where memory is pinned."""
    floats = np.array(
        [
            (p.temperature, p.top_p, p.min_p, p.repetition_penalty, p.presence_penalty, p.frequency_penalty)
            for p in params
        ],
        dtype=np.float32,
    ).reshape(len(params), 6)
    top_k = [min(p.top_k, vocab_size) or vocab_size for p in params]
    integers = np.array([top_k, seeds, positions], dtype=np.int64)
    floats_6R, integers_3R = staging.to_device((np.ascontiguousarray(floats.T), integers))
    temperature_R, top_p_R, min_p_R, repetition_R, presence_R, frequency_R = floats_6R.unbind(0)
    top_k_R, seeds_R, positions_R = integers_3R.unbind(0)
    return SamplingRows(
        temperature_R=temperature_R,
        top_p_R=top_p_R,
        min_p_R=min_p_R,
        repetition_R=repetition_R,
        presence_R=presence_R,
        frequency_R=frequency_R,
        top_k_R=top_k_R,
        seeds_R=seeds_R,
        positions_R=positions_R,
        is_greedy=all(p.is_greedy for p in params),
        cuts_tail=any(p.top_k > 0 or p.top_p < 1 for p in params),
        cuts_min_p=any(p.min_p > 0 for p in params),
    )


def greedy(logits_RV: Tensor) -> Tensor:
    """Most probable token of each row, int64; of equal ones the first."""
    if logits_RV.is_cuda and (kernel := _argmax_kernel()) is not None:
        return kernel(logits_RV)
    # On the CPU, argmax over bfloat16 takes four times as long as max (torch 2.13).
    return logits_RV.max(dim=-1).indices


@cache
def _argmax_kernel() -> Callable[[Tensor], Tensor] | None:
    """The Triton kernel: one launch, where torch takes several times as long. None without Triton."""
    try:
        from engine.kernels.argmax import argmax_rows  # noqa: PLC0415  Triton need not be installed
    except ImportError:
        return None
    return argmax_rows


def sample(logits_RV: Tensor, rows: SamplingRows) -> Tensor:
    """Draw one token for each row.

    Args:
        logits_RV: any float type; penalties already applied.
        rows: how to choose.

    Returns:
        tokens_R, int64.

    Cost: no synchronisation; a sort of R*V where a row has top-k or top-p.
    """
    if rows.is_greedy:
        return greedy(logits_RV)
    probs_RV = probabilities(logits_RV, rows)
    race_RV = exponential(rows.seeds_R, rows.positions_R, Purpose.SAMPLE, logits_RV.shape[-1])
    return (probs_RV / race_RV).argmax(dim=-1)


def probabilities(logits_RV: Tensor, rows: SamplingRows) -> Tensor:
    """Distribution from which each row is drawn: after temperature, top-k, top-p and min-p; float32 (R, V).

    A greedy row has all its probability on the most probable token.
    """
    logits_RV = logits_RV.float()
    is_greedy_R1 = rows.temperature_R[:, None] == 0
    scaled_RV = logits_RV / rows.temperature_R[:, None].clamp_min(_TINY)
    # Division by the clamp overflows to infinity: greedy rows are replaced below, but a NaN would survive the softmax.
    scaled_RV = torch.where(is_greedy_R1, logits_RV, scaled_RV)
    if rows.cuts_tail:
        scaled_RV = _cut_tail(scaled_RV, rows)
    probs_RV = scaled_RV.softmax(dim=-1)
    if rows.cuts_min_p:
        limit_R1 = probs_RV.amax(dim=-1, keepdim=True) * rows.min_p_R[:, None]
        probs_RV = probs_RV.masked_fill(probs_RV < limit_R1, 0.0)
        probs_RV = probs_RV / probs_RV.sum(dim=-1, keepdim=True)
    best_R1 = greedy(logits_RV)[:, None]
    one_hot_RV = torch.zeros_like(probs_RV).scatter_(1, best_R1, 1.0)
    return torch.where(is_greedy_R1, one_hot_RV, probs_RV)


def _cut_tail(logits_RV: Tensor, rows: SamplingRows) -> Tensor:
    """Set the logits outside top-k, and then outside top-p of what is left, to minus infinity."""
    sorted_RV, order_RV = logits_RV.sort(dim=-1, descending=True, stable=True)
    rank_V = torch.arange(logits_RV.shape[-1], device=logits_RV.device)
    sorted_RV = sorted_RV.masked_fill(rank_V >= rows.top_k_R[:, None], -torch.inf)
    probs_RV = sorted_RV.softmax(dim=-1)
    before_RV = probs_RV.cumsum(dim=-1) - probs_RV
    is_cut_RV = (before_RV >= rows.top_p_R[:, None]) & (rank_V > 0)
    sorted_RV = sorted_RV.masked_fill(is_cut_RV, -torch.inf)
    return torch.empty_like(sorted_RV).scatter_(1, order_RV, sorted_RV)


def verify(logits_RV: Tensor, rows: SamplingRows, drafts_R: Tensor, draft_probs_RV: Tensor) -> tuple[Tensor, Tensor]:
    """Accept drafts or draw anew, so that the tokens kept are distributed as if nothing had been drafted.

    Row r judges the draft that follows it: with p the distribution of the target and q that of the draft, the draft d
    is kept with probability min(1, p(d) / q(d)); otherwise the token comes from max(p - q, 0), normalised. The row
    behind the last draft has no draft: q is 0 there, and its token comes from p.

    Args:
        logits_RV: of the target model; penalties already applied.
        rows: how to choose, the same for the draft.
        drafts_R: int64, 0 in rows without a draft.
        draft_probs_RV: float32, q; one-hot for drafts that were not drawn (n-gram), 0 in rows without a draft.

    Returns:
        accepted_R: bool, false in rows without a draft.
        tokens_R: int64, the token to keep where the draft is not.

    Source: Leviathan, Kalman and Matias 2023, algorithm 1; Chen et al. 2023, theorem 1.
    """
    probs_RV = probabilities(logits_RV, rows)
    p_R = probs_RV.gather(1, drafts_R[:, None])[:, 0]
    q_R = draft_probs_RV.gather(1, drafts_R[:, None])[:, 0]
    chance_R = uniform(rows.seeds_R, rows.positions_R, Purpose.ACCEPT, 1)[:, 0]
    accepted_R = (chance_R * q_R < p_R) & (q_R > 0)
    left_RV = (probs_RV - draft_probs_RV).clamp_min(0.0)
    race_RV = exponential(rows.seeds_R, rows.positions_R, Purpose.SAMPLE, logits_RV.shape[-1])
    return accepted_R, (left_RV / race_RV).argmax(dim=-1)


def top_logprobs(logits_RV: Tensor, tokens_R: Tensor, num_top: int) -> tuple[Tensor, Tensor, Tensor]:
    """Log probabilities before temperature and cuts: of the chosen tokens (R), and the K best (R, K) with their ids."""
    logprobs_RV = logits_RV.float().log_softmax(dim=-1)
    chosen_R = logprobs_RV.gather(1, tokens_R[:, None])[:, 0]
    best_RK, ids_RK = logprobs_RV.topk(num_top, dim=-1)
    return chosen_R, best_RK, ids_RK
