"""Attention of a few new tokens per request over a paged cache: decode and speculative verification.

The keys of a request are cut into splits that run in parallel (Flash-Decoding). How long a split is depends on the
length of its request alone, so the result of a request does not depend on what else is in the batch. The program that
finishes last merges the splits of its tile by their log-sum-exp, in fixed order: one launch, and no dependence on who
was last.

The kernel also stores the new keys and values, rotated if asked to. Every split writes the new tokens of its own range
before it reads that range, so no program waits for another one.
"""

# ruff: noqa: PLR0913, PLR0917 - device functions take pointers and sizes one by one

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from engine.kernels.jit import (
    OVERLAPS,
    jit,
    jit_once_for,
    launch_options,
    leave_idle,
    start_next_kernel,
    tl,
    triton,
    wait_for_previous_kernel,
)
from engine.kernels.paging import requests_block, slot_offsets, to_stored
from engine.kernels.rotary import check_angles, load_rotated
from engine.kernels.softmax_block import attend_block, fresh_state
from engine.kernels.split_merge import is_last_to_arrive, merge_splits

if TYPE_CHECKING:
    from torch import Tensor

    from engine.kernels.paging import NewTokens, Pages, Paging, Scores
    from engine.kernels.split_merge import DecodeCounters

MAX_QUERIES = 16
"""Most new tokens of a request that this kernel takes; longer ones are prefill."""

MIN_SPLIT = 128
"""Fewest keys per split: below, merging costs more than the shorter split saves."""

MAX_SPLITS = 16
"""Most splits of a request; a power of two. All of them are merged in one load per row."""

BLOCK_N = 64
"""Keys per step of a program, for heads of up to 256 bytes; less for larger ones, which would not fit."""

NUM_WARPS = 4
"""Warps of 32 threads of a program."""

NUM_STAGES = 5
"""Depth of the load pipeline. The look-up of a block takes stages of its own: with 5, two steps have keys in flight."""

_MIN_DOT_ROWS = 16
_MERGE_ROWS = 4
_LOG2_E = 1.4426950408889634


@jit
def split_length(kv_len: tl.tensor, MIN_SPLIT: tl.constexpr, MAX_SPLITS: tl.constexpr) -> tl.tensor:
    """Keys per split: the least multiple of MIN_SPLIT that needs at most MAX_SPLITS splits."""
    per_split = (kv_len + MAX_SPLITS - 1) // MAX_SPLITS
    return tl.maximum((per_split + MIN_SPLIT - 1) // MIN_SPLIT, 1) * MIN_SPLIT


@jit
def _store_new_tokens(
    kv: tl.tensor,
    angles: tl.tensor,
    caches: tl.tensor,
    scales: tl.tensor,
    strides: tl.tensor,
    slot_ptr: tl.tensor,
    row: tl.tensor,
    inside: tl.tensor,
    kv_head: tl.tensor,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PAGE: tl.constexpr,
    ROTATE: tl.constexpr,
) -> None:
    k_ptr, v_ptr, k_stride, v_stride = kv
    k_cache_ptr, v_cache_ptr = caches
    d = tl.arange(0, BLOCK_D)
    slot = tl.load(slot_ptr + row, mask=inside, other=-1)
    inside = inside & (slot >= 0)
    mask = inside[:, None] & (d < HEAD_DIM)[None, :]
    k_offset = row * k_stride + kv_head * HEAD_DIM
    k = load_rotated(k_ptr, k_offset, angles[0], angles[1], row, inside, HEAD_DIM, BLOCK_D, ROTATE)
    v = tl.load(v_ptr + (row * v_stride + kv_head * HEAD_DIM)[:, None] + d[None, :], mask=mask, other=0.0)
    target = (slot // PAGE) * strides[0] + (slot % PAGE) * strides[1] + kv_head * HEAD_DIM
    STORED: tl.constexpr = k_cache_ptr.dtype.element_ty
    tl.store(k_cache_ptr + target[:, None] + d[None, :], to_stored(k, scales[0], STORED), mask=mask)
    tl.store(v_cache_ptr + target[:, None] + d[None, :], to_stored(v, scales[1], STORED), mask=mask)


@jit
def _tokens_before(
    request: tl.tensor, cu_q_ptr: tl.tensor, TOKEN_LIMIT: tl.constexpr, BLOCK_B: tl.constexpr
) -> tl.tensor:
    """New tokens of the requests before `request` that this kernel serves."""
    index = tl.arange(0, BLOCK_B)
    is_before = index < request
    begin = tl.load(cu_q_ptr + index, mask=is_before, other=0)
    q_len = tl.load(cu_q_ptr + index + 1, mask=is_before, other=0) - begin
    return tl.sum(tl.where(q_len <= TOKEN_LIMIT, q_len, 0), axis=0)


@jit_once_for("slot_ptr", "table_ptr", "seq_lens_ptr", "cu_q_ptr", "table_stride", "split_stride")
def _paged_attention_decode_kernel(
    q_ptr: tl.tensor,
    k_ptr: tl.tensor,
    v_ptr: tl.tensor,
    cos_ptr: tl.tensor,
    sin_ptr: tl.tensor,
    out_ptr: tl.tensor,
    k_cache_ptr: tl.tensor,
    v_cache_ptr: tl.tensor,
    slot_ptr: tl.tensor,
    table_ptr: tl.tensor,
    seq_lens_ptr: tl.tensor,
    cu_q_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    arrivals_ptr: tl.tensor,
    score_scale: float,
    k_scale: float,
    v_scale: float,
    q_stride: int,
    k_stride: int,
    v_stride: int,
    block_stride: int,
    slot_stride: int,
    table_stride: int,
    split_stride: int,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PAGE: tl.constexpr,
    WINDOW: tl.constexpr,
    NEW_TOKENS: tl.constexpr,
    TOKEN_LIMIT: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MIN_SPLIT: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    MERGE_ROWS: tl.constexpr,
    PACKS_SCRATCH: tl.constexpr,
    BLOCK_B: tl.constexpr,
    STORES: tl.constexpr,
    ROTATE: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    request, tile, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    kv_head = tile % KV_HEADS
    first_query = (tile // KV_HEADS) * TILE_TOKENS
    kv_len = tl.load(seq_lens_ptr + request)
    first_token = tl.load(cu_q_ptr + request)
    q_len = tl.load(cu_q_ptr + request + 1) - first_token
    length = split_length(kv_len, MIN_SPLIT, MAX_SPLITS)
    num_splits = tl.maximum((kv_len + length - 1) // length, 1)
    # Lengths are not written by the kernel before, so idle programs need not wait for it.
    if (split >= num_splits) | (first_query >= q_len) | (q_len > TOKEN_LIMIT):
        leave_idle(request + tile + split, OVERLAP)
        return
    scratch_token = first_token
    if PACKS_SCRATCH:
        scratch_token = _tokens_before(request, cu_q_ptr, TOKEN_LIMIT, BLOCK_B)
    wait_for_previous_kernel(OVERLAP)
    start_next_kernel(OVERLAP)

    past = kv_len - q_len
    begin = split * length
    end = tl.minimum(begin + length, kv_len)
    strides = (block_stride, slot_stride)
    if STORES and end > past:
        token = tl.arange(0, NEW_TOKENS)
        _store_new_tokens(
            (k_ptr, v_ptr, k_stride, v_stride),
            (cos_ptr, sin_ptr),
            (k_cache_ptr, v_cache_ptr),
            (k_scale, v_scale),
            strides,
            slot_ptr,
            (first_token + token).to(tl.int64),
            (token < q_len) & (past + token >= begin) & (past + token < end),
            kv_head,
            HEAD_DIM,
            BLOCK_D,
            PAGE,
            ROTATE,
        )
        tl.debug_barrier()

    row, d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    query = first_query + row // GROUP
    inside = (row < TILE_TOKENS * GROUP) & (query < q_len)
    query_token = (first_token + query).to(tl.int64)
    head = kv_head * GROUP + row % GROUP
    q_offset = query_token * q_stride + head * HEAD_DIM
    q = load_rotated(q_ptr, q_offset, cos_ptr, sin_ptr, query_token, inside, HEAD_DIM, BLOCK_D, ROTATE)

    if WINDOW > 0:
        oldest = tl.maximum(past + first_query - WINDOW + 1, 0)
        begin = tl.maximum(begin, oldest // BLOCK_N * BLOCK_N)
    table_row_ptr = table_ptr + request.to(tl.int64) * table_stride
    maximum, total, acc = fresh_state(BLOCK_M, BLOCK_D)
    for first in range(begin, end, BLOCK_N):
        offset = slot_offsets(table_row_ptr, first, end, strides, PAGE, BLOCK_N) + kv_head * HEAD_DIM
        key = first + tl.arange(0, BLOCK_N)
        state = (maximum, total, acc)
        maximum, total, acc = attend_block(
            q, state, k_cache_ptr, v_cache_ptr, offset, key, end, past + query, score_scale, HEAD_DIM, WINDOW, True
        )
    total = tl.where(total == 0.0, 1.0, total)
    acc = acc * (v_scale / total)[:, None]

    out_row = query_token * (KV_HEADS * GROUP) + head
    mask = inside[:, None] & (d < HEAD_DIM)[None, :]
    if num_splits == 1:
        tl.store(out_ptr + (out_row * HEAD_DIM)[:, None] + d[None, :], acc.to(out_ptr.dtype.element_ty), mask=mask)
        return
    part = ((scratch_token + query).to(tl.int64) * (KV_HEADS * GROUP) + head) * split_stride + split
    lse = maximum + tl.log2(total)
    counter_ptr = arrivals_ptr + request * tl.num_programs(1) + tile
    if is_last_to_arrive(acc, lse, partial_ptr, lse_ptr, counter_ptr, part, mask, num_splits, HEAD_DIM):
        merge_splits(
            out_ptr,
            partial_ptr,
            lse_ptr,
            first_token + first_query,
            scratch_token + first_query,
            kv_head * GROUP,
            tl.minimum(q_len - first_query, TILE_TOKENS) * GROUP,
            num_splits,
            split_stride,
            KV_HEADS * GROUP,
            GROUP,
            HEAD_DIM,
            BLOCK_D,
            MAX_SPLITS,
            MERGE_ROWS,
        )


def paged_decode(
    new: NewTokens, pages: Pages, paging: Paging, scores: Scores, counters: DecodeCounters, out_THD: Tensor
) -> None:
    """Store the new keys and values of requests with at most `MAX_QUERIES` new tokens, and attend.

    Requests with more new tokens are left to `paged_prefill`: neither stored nor attended, their rows of `out_THD`
    stay as they are.

    Args:
        new: queries, keys and values; stored at `paging.slot_mapping_T` if given, rotated first if angles are given.
        pages: cache of the layer.
        paging: the batch. Grid and memory depend on its shapes, `max_q` and `max_k`, never on device values, so that
            the launch can be captured.
        scores: of the layer.
        counters: of this stream.
        out_THD: contiguous, dtype of q; rows of the requests are written. Of padding (length 0) they are 0.

    Raises:
        ValueError: a layout does not fit. Checked on the host: no device value is read.

    Cost: the keys and values of each request read once per 16 rows of a KV head's group, 1 launch, no synchronisation;
    scratch of min(T, 16 B) * H * 16 * (D + 1) floats. Source: Flash-Decoding, Dao et al. 2023; PagedAttention, Kwon et
    al. 2023.
    """
    new.check(pages)
    num_tokens, num_heads, head_dim = new.q_THD.shape
    if new.angles is not None:
        check_angles(head_dim, *new.angles)
    if num_tokens == 0:
        return
    num_kv_heads = pages.k_BSND.shape[2]
    group = num_heads // num_kv_heads
    block_d = max(16, triton.next_power_of_2(head_dim))
    block_n = max(16, min(BLOCK_N, BLOCK_N * 256 // (block_d * new.q_THD.element_size())))
    block_m = max(_MIN_DOT_ROWS, triton.next_power_of_2(group))
    max_q = min(paging.max_q, MAX_QUERIES)
    tiles = num_kv_heads * triton.cdiv(max_q, block_m // group)
    splits = min(MAX_SPLITS, triton.cdiv(max(paging.max_k, 1), MIN_SPLIT))
    num_requests = paging.seq_lens_B.shape[0]
    # Beside long prompts there are few tokens for this kernel: scratch for all of them would take gigabytes.
    scratch_tokens = min(num_tokens, num_requests * max_q)
    num_parts = scratch_tokens * num_heads * splits
    scratch = torch.empty(num_parts * (head_dim + 1), dtype=torch.float32, device=out_THD.device)
    k_TND, v_TND = new.kv if new.kv is not None else (new.q_THD, new.q_THD)
    cos, sin = new.angles if new.angles is not None else (new.q_THD, new.q_THD)
    _paged_attention_decode_kernel[(num_requests, tiles, splits)](
        new.q_THD,
        k_TND,
        v_TND,
        cos,
        sin,
        out_THD,
        pages.k_BSND,
        pages.v_BSND,
        paging.slot_mapping_T,
        paging.block_table_BM,
        paging.seq_lens_B,
        paging.cu_q_B1,
        scratch,
        scratch[num_parts * head_dim :],
        counters.at_least(num_requests * tiles),
        scores.scale * pages.k_scale * _LOG2_E,
        pages.k_scale,
        pages.v_scale,
        new.q_THD.stride(0),
        k_TND.stride(0),
        v_TND.stride(0),
        pages.k_BSND.stride(0),
        pages.k_BSND.stride(1),
        paging.block_table_BM.stride(0),
        splits,
        KV_HEADS=num_kv_heads,
        GROUP=group,
        HEAD_DIM=head_dim,
        BLOCK_D=block_d,
        PAGE=pages.k_BSND.shape[1],
        WINDOW=scores.window or 0,
        NEW_TOKENS=triton.next_power_of_2(max_q),
        TOKEN_LIMIT=MAX_QUERIES,
        TILE_TOKENS=block_m // group,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        MIN_SPLIT=MIN_SPLIT,
        MAX_SPLITS=MAX_SPLITS,
        MERGE_ROWS=_MERGE_ROWS,
        PACKS_SCRATCH=scratch_tokens < num_tokens,
        BLOCK_B=requests_block(num_requests) if scratch_tokens < num_tokens else 1,
        STORES=new.kv is not None,
        ROTATE=new.angles is not None,
        OVERLAP=OVERLAPS,
        **launch_options(NUM_WARPS, 2 if out_THD.dtype == torch.float32 else NUM_STAGES),
    )


def paged_attention_reference(q_THD: Tensor, pages: Pages, paging: Paging, scores: Scores) -> Tensor:
    """Attention over pages that hold the new tokens already, in the precision of q; reads lengths on the host."""
    out_THD = torch.zeros_like(q_THD)
    starts = paging.cu_q_B1.tolist()
    page = pages.k_BSND.shape[1]
    for request, kv_len in enumerate(paging.seq_lens_B.tolist()):
        rows = slice(starts[request], starts[request + 1])
        num_queries = rows.stop - rows.start
        if kv_len == 0 or num_queries == 0:
            continue
        token = torch.arange(kv_len, device=q_THD.device)
        block = paging.block_table_BM[request, token // page].long()
        k = pages.k_BSND[block, token % page].to(q_THD.dtype) * pages.k_scale
        v = pages.v_BSND[block, token % page].to(q_THD.dtype) * pages.v_scale
        group = q_THD.shape[1] // k.shape[1]
        score = torch.einsum("qhd,khd->hqk", q_THD[rows], k.repeat_interleave(group, 1)) * scores.scale
        position = kv_len - num_queries + torch.arange(num_queries, device=q_THD.device)[:, None]
        unseen = (token > position) | (token <= position - (scores.window or math.inf))
        weight = score.masked_fill(unseen, -math.inf).softmax(-1)
        out_THD[rows] = torch.einsum("hqk,khd->qhd", weight, v.repeat_interleave(group, 1))
    return out_THD
