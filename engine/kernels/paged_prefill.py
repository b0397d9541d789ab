"""Attention of many new tokens per request over a paged cache: prompts, and chunks of prompts behind cached tokens.

A tile holds some consecutive tokens of one request with all query heads of one KV head. The grid has a tile for every
`tokens / tile` plus one per request: enough however the tokens are divided, so it depends on shapes only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine.kernels.jit import (
    OVERLAPS,
    dot,
    jit,
    launch_options,
    start_next_kernel,
    tl,
    triton,
    wait_for_previous_kernel,
)
from engine.kernels.paged_decode import MAX_QUERIES
from engine.kernels.paging import slot_offsets

if TYPE_CHECKING:
    from torch import Tensor

    from engine.kernels.paging import Pages, Paging

_LOG2_E = 1.4426950408889634
_MAX_GROUP = 64


@jit
def _attend_block(  # noqa: PLR0913 - kernels take pointers and sizes one by one
    q: tl.tensor,
    state: tl.tensor,
    k_cache_ptr: tl.tensor,
    v_cache_ptr: tl.tensor,
    table_row_ptr: tl.tensor,
    first: tl.tensor,
    kv_len: tl.tensor,
    position: tl.tensor,
    kv_head: tl.tensor,
    score_scale: tl.tensor,
    block_stride: tl.tensor,
    slot_stride: tl.tensor,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PAGE: tl.constexpr,
    WINDOW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MASKED: tl.constexpr,
) -> tl.tensor:
    maximum, total, acc = state
    d = tl.arange(0, BLOCK_D)
    key = first + tl.arange(0, BLOCK_N)
    offset = slot_offsets(table_row_ptr, first, kv_len, block_stride, slot_stride, PAGE, BLOCK_N)
    address = (offset + kv_head * HEAD_DIM)[:, None] + d[None, :]
    if MASKED:
        inside = (key < kv_len)[:, None] & (d < HEAD_DIM)[None, :]
        k = tl.load(k_cache_ptr + address, mask=inside, other=0.0)
        v = tl.load(v_cache_ptr + address, mask=inside, other=0.0)
    elif HEAD_DIM == BLOCK_D:
        k = tl.load(k_cache_ptr + address)
        v = tl.load(v_cache_ptr + address)
    else:
        k = tl.load(k_cache_ptr + address, mask=(d < HEAD_DIM)[None, :], other=0.0)
        v = tl.load(v_cache_ptr + address, mask=(d < HEAD_DIM)[None, :], other=0.0)
    score = dot(q, tl.trans(k.to(q.dtype)), tl.zeros((BLOCK_M, BLOCK_N), tl.float32))
    if MASKED:
        seen = (key[None, :] <= position[:, None]) & (key < kv_len)[None, :]
        if WINDOW > 0:
            seen = seen & (key[None, :] > position[:, None] - WINDOW)
        score = tl.where(seen, score, float("-inf"))
    new_maximum = tl.maximum(maximum, tl.max(score, axis=1) * score_scale)
    base = tl.where(new_maximum == float("-inf"), 0.0, new_maximum) if MASKED else new_maximum
    weight = tl.exp2(score * score_scale - base[:, None])
    decay = tl.exp2(maximum - base)
    total = total * decay + tl.sum(weight, axis=1)
    acc = dot(weight.to(q.dtype), v.to(q.dtype), acc * decay[:, None])
    return new_maximum, total, acc


@jit
def _prefill_kernel(  # noqa: PLR0913 - kernels take pointers and sizes one by one
    q_ptr: tl.tensor,
    out_ptr: tl.tensor,
    k_cache_ptr: tl.tensor,
    v_cache_ptr: tl.tensor,
    table_ptr: tl.tensor,
    seq_lens_ptr: tl.tensor,
    cu_q_ptr: tl.tensor,
    score_scale: float,
    v_scale: float,
    num_requests: int,
    q_stride: int,
    block_stride: int,
    slot_stride: int,
    table_stride: int,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PAGE: tl.constexpr,
    WINDOW: tl.constexpr,
    DECODE_LIMIT: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    # The last tile of a prompt sees the most keys: start with it, so that short ones fill the gaps at the end.
    tile = tl.num_programs(1) - 1 - tl.program_id(1)
    kv_head = tl.program_id(0)
    index = tl.arange(0, BLOCK_B)
    starts = tl.load(cu_q_ptr + index, mask=index < num_requests, other=0)
    first_tile = starts // TILE_TOKENS + index
    request = tl.sum(((first_tile <= tile) & (index < num_requests)).to(tl.int32), axis=0) - 1
    first_token = tl.load(cu_q_ptr + request)
    q_len = tl.load(cu_q_ptr + request + 1) - first_token
    first_query = (tile - (first_token // TILE_TOKENS + request)) * TILE_TOKENS
    if (first_query >= q_len) | (q_len <= DECODE_LIMIT):
        return
    wait_for_previous_kernel(OVERLAP)
    start_next_kernel(OVERLAP)

    kv_len = tl.load(seq_lens_ptr + request)
    past = kv_len - q_len
    row = tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    query = first_query + row // GROUP
    row_inside = (row < TILE_TOKENS * GROUP) & (query < q_len)
    head = kv_head * GROUP + row % GROUP
    query_token = (first_token + query).to(tl.int64)
    position = past + query
    mask = row_inside[:, None] & (d < HEAD_DIM)[None, :]
    q = tl.load(q_ptr + (query_token * q_stride + head * HEAD_DIM)[:, None] + d[None, :], mask=mask, other=0.0)

    table_row_ptr = table_ptr + request.to(tl.int64) * table_stride
    maximum = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    begin = 0
    end = tl.minimum(past + first_query + TILE_TOKENS, kv_len)
    seen_by_all = (past + first_query + 1) // BLOCK_N * BLOCK_N
    if WINDOW > 0:
        begin = tl.maximum(past + first_query - WINDOW + 1, 0) // BLOCK_N * BLOCK_N
        seen_by_all = begin
    for first in range(begin, seen_by_all, BLOCK_N):
        maximum, total, acc = _attend_block(
            q,
            (maximum, total, acc),
            k_cache_ptr,
            v_cache_ptr,
            table_row_ptr,
            first,
            kv_len,
            position,
            kv_head,
            score_scale,
            block_stride,
            slot_stride,
            HEAD_DIM,
            BLOCK_D,
            PAGE,
            WINDOW,
            BLOCK_M,
            BLOCK_N,
            False,
        )
    for first in range(seen_by_all, end, BLOCK_N):
        maximum, total, acc = _attend_block(
            q,
            (maximum, total, acc),
            k_cache_ptr,
            v_cache_ptr,
            table_row_ptr,
            first,
            kv_len,
            position,
            kv_head,
            score_scale,
            block_stride,
            slot_stride,
            HEAD_DIM,
            BLOCK_D,
            PAGE,
            WINDOW,
            BLOCK_M,
            BLOCK_N,
            True,
        )
    out = acc * (v_scale / tl.where(total == 0.0, 1.0, total))[:, None]
    target = (query_token * (KV_HEADS * GROUP) + head) * HEAD_DIM
    tl.store(out_ptr + target[:, None] + d[None, :], out.to(out_ptr.dtype.element_ty), mask=mask)


def paged_prefill(  # noqa: PLR0913 - queries, cache, batch and the settings of a layer
    q_THD: Tensor,
    pages: Pages,
    paging: Paging,
    scale: float,
    *,
    out_THD: Tensor,
    window: int | None = None,
) -> None:
    """Attend for requests with more than `paged_decode.MAX_QUERIES` new tokens; others are left to `paged_decode`.

    Args:
        q_THD: rotated queries; heads of a token contiguous.
        pages: cache of the layer, which holds the new tokens already (`engine.kernels.kv_write`).
        paging: the batch. The grid depends on T and B only.
        scale: factor on q.k.
        out_THD: contiguous, dtype of q; rows of the requests are written.
        window: number of last tokens that a query sees, itself included; None is all.

    Raises:
        ValueError: more query heads share a KV head than a tile has rows.

    Cost: 4 * D operations per visible pair of tokens and head; keys and values of a request read once per tile; 1 launch.
    Source: FlashAttention-2, Dao 2023.
    """
    num_tokens, num_heads, head_dim = q_THD.shape
    num_kv_heads = pages.k_BSND.shape[2]
    group = num_heads // num_kv_heads
    if group > _MAX_GROUP:
        raise ValueError(f"{group} query heads share a KV head; at most {_MAX_GROUP} fit a tile")
    if num_tokens == 0:
        return
    wide = q_THD.dtype == torch.float32
    block_m, block_n = (64, 32) if wide else (128, 64)
    tile_tokens = block_m // group
    num_requests = paging.seq_lens_B.shape[0]
    _prefill_kernel[(num_kv_heads, num_tokens // tile_tokens + num_requests)](
        q_THD,
        out_THD,
        pages.k_BSND,
        pages.v_BSND,
        paging.block_table_BM,
        paging.seq_lens_B,
        paging.cu_q_B1,
        scale * pages.k_scale * _LOG2_E,
        pages.v_scale,
        num_requests,
        q_THD.stride(0),
        pages.k_BSND.stride(0),
        pages.k_BSND.stride(1),
        paging.block_table_BM.stride(0),
        KV_HEADS=num_kv_heads,
        GROUP=group,
        HEAD_DIM=head_dim,
        BLOCK_D=max(16, triton.next_power_of_2(head_dim)),
        PAGE=pages.k_BSND.shape[1],
        WINDOW=window or 0,
        DECODE_LIMIT=MAX_QUERIES,
        TILE_TOKENS=tile_tokens,
        BLOCK_B=triton.next_power_of_2(num_requests),
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        OVERLAP=OVERLAPS,
        **launch_options(num_warps=4 if wide else 8, num_stages=2 if wide else 3),
    )
