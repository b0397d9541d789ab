"""Attention of many new tokens per request over a paged cache: prompts, and chunks of prompts behind cached tokens.

A tile holds some consecutive tokens of one request with all query heads of one KV head. The grid has a tile for every
`tokens / tile` plus one per request: enough however the tokens are divided, so it depends on shapes only.
"""

# ruff: noqa: PLR0913, PLR0917 - device functions take pointers and sizes one by one

from __future__ import annotations

from dataclasses import dataclass
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
from engine.kernels.paged_decode import MAX_QUERIES
from engine.kernels.paging import requests_block, slot_offsets
from engine.kernels.softmax_block import attend_block, fresh_state

if TYPE_CHECKING:
    from torch import Tensor

    from engine.kernels.paging import NewTokens, Pages, Paging, Scores

_LOG2_E = 1.4426950408889634
_MAX_GROUP = 32  # rows of the smallest tile


@dataclass(frozen=True, slots=True)
class PrefillTile:
    """Shape of the work of one program.

    Attributes:
        rows: queries times heads of a group.
        keys: keys per step.
        num_warps: warps of 32 threads.
        num_stages: depth of the load pipeline.
    """

    rows: int
    keys: int
    num_warps: int
    num_stages: int


TILE = PrefillTile(128, 64, 8, 5)
"""For 16-bit queries. A program fills the registers of a multiprocessor either way, so deep buffers cost nothing."""

_LARGE_HEAD_TILE = PrefillTile(64, 32, 4, 3)
_FP32_TILE = PrefillTile(32, 32, 8, 2)


@jit
def _request_of_tile(
    tile: tl.tensor, cu_q_ptr: tl.tensor, num_requests: tl.tensor, TILE_TOKENS: tl.constexpr, BLOCK_B: tl.constexpr
) -> tl.tensor:
    """The request that owns a tile: request b starts with tile `cu_q[b] // TILE_TOKENS + b`."""
    index = tl.arange(0, BLOCK_B)
    starts = tl.load(cu_q_ptr + index, mask=index < num_requests, other=0)
    begun = (starts // TILE_TOKENS + index <= tile) & (index < num_requests)
    return tl.sum(begun.to(tl.int32), axis=0) - 1


@jit_once_for("table_ptr", "seq_lens_ptr", "cu_q_ptr", "num_requests", "table_stride")
def _paged_attention_prefill_kernel(
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
    request = _request_of_tile(tile, cu_q_ptr, num_requests, TILE_TOKENS, BLOCK_B)
    first_token = tl.load(cu_q_ptr + request)
    q_len = tl.load(cu_q_ptr + request + 1) - first_token
    first_query = (tile - (first_token // TILE_TOKENS + request)) * TILE_TOKENS
    if (first_query >= q_len) | (q_len <= DECODE_LIMIT):
        leave_idle(tl.program_id(0) + tl.program_id(1), OVERLAP)
        return
    wait_for_previous_kernel(OVERLAP)
    start_next_kernel(OVERLAP)

    kv_len = tl.load(seq_lens_ptr + request)
    past = kv_len - q_len
    row = tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    query = first_query + row // GROUP
    inside = (row < TILE_TOKENS * GROUP) & (query < q_len)
    head = kv_head * GROUP + row % GROUP
    query_token = (first_token + query).to(tl.int64)
    position = past + query
    mask = inside[:, None] & (d < HEAD_DIM)[None, :]
    q = tl.load(q_ptr + (query_token * q_stride + head * HEAD_DIM)[:, None] + d[None, :], mask=mask, other=0.0)

    strides = (block_stride, slot_stride)
    table_row_ptr = table_ptr + request.to(tl.int64) * table_stride
    k_ptr = k_cache_ptr + kv_head * HEAD_DIM
    v_ptr = v_cache_ptr + kv_head * HEAD_DIM
    begin = 0
    end = tl.minimum(past + first_query + TILE_TOKENS, kv_len)
    # Padding, a request of length 0, has no past: it sees nothing, and its rows are 0.
    seen_by_all = tl.maximum(past + first_query + 1, 0) // BLOCK_N * BLOCK_N
    if WINDOW > 0:
        begin = tl.maximum(past + first_query - WINDOW + 1, 0) // BLOCK_N * BLOCK_N
        seen_by_all = begin
    maximum, total, acc = fresh_state(BLOCK_M, BLOCK_D)
    for first in range(begin, seen_by_all, BLOCK_N):
        offset = slot_offsets(table_row_ptr, first, kv_len, strides, PAGE, BLOCK_N)
        key = first + tl.arange(0, BLOCK_N)
        state = (maximum, total, acc)
        maximum, total, acc = attend_block(
            q, state, k_ptr, v_ptr, offset, key, kv_len, position, score_scale, HEAD_DIM, WINDOW, False
        )
    for first in range(seen_by_all, end, BLOCK_N):
        offset = slot_offsets(table_row_ptr, first, kv_len, strides, PAGE, BLOCK_N)
        key = first + tl.arange(0, BLOCK_N)
        state = (maximum, total, acc)
        maximum, total, acc = attend_block(
            q, state, k_ptr, v_ptr, offset, key, kv_len, position, score_scale, HEAD_DIM, WINDOW, True
        )
    out = acc * (v_scale / tl.where(total == 0.0, 1.0, total))[:, None]
    target = (query_token * (KV_HEADS * GROUP) + head) * HEAD_DIM
    tl.store(out_ptr + target[:, None] + d[None, :], out.to(out_ptr.dtype.element_ty), mask=mask)


def paged_prefill(new: NewTokens, pages: Pages, paging: Paging, scores: Scores, out_THD: Tensor) -> None:
    """Attend for requests with more than `paged_decode.MAX_QUERIES` new tokens; others are left to `paged_decode`.

    Args:
        new: rotated queries; their keys and values are in the pages already (`engine.kernels.kv_write`).
        pages: cache of the layer.
        paging: the batch. The grid depends on T and B only.
        scores: of the layer.
        out_THD: contiguous, dtype of q; rows of the requests are written. Of padding (length 0) they are 0.

    Raises:
        ValueError: more query heads share a KV head than a tile has rows, or a layout does not fit.

    Cost: 4 * D operations per visible pair of tokens and head; keys and values of a request read once per tile; 1
    launch. Source: FlashAttention-2, Dao 2023.
    """
    new.check(pages)
    num_tokens, num_heads, head_dim = new.q_THD.shape
    num_kv_heads = pages.k_BSND.shape[2]
    group = num_heads // num_kv_heads
    if group > _MAX_GROUP:
        raise ValueError(f"{group} query heads share a KV head; at most {_MAX_GROUP} fit a tile")
    if num_tokens == 0:
        return
    block_d = max(16, triton.next_power_of_2(head_dim))
    tile = _choose_tile(out_THD.dtype, block_d)
    num_requests = paging.seq_lens_B.shape[0]
    _paged_attention_prefill_kernel[(num_kv_heads, num_tokens // (tile.rows // group) + num_requests)](
        new.q_THD,
        out_THD,
        pages.k_BSND,
        pages.v_BSND,
        paging.block_table_BM,
        paging.seq_lens_B,
        paging.cu_q_B1,
        scores.scale * pages.k_scale * _LOG2_E,
        pages.v_scale,
        num_requests,
        new.q_THD.stride(0),
        pages.k_BSND.stride(0),
        pages.k_BSND.stride(1),
        paging.block_table_BM.stride(0),
        KV_HEADS=num_kv_heads,
        GROUP=group,
        HEAD_DIM=head_dim,
        BLOCK_D=block_d,
        PAGE=pages.k_BSND.shape[1],
        WINDOW=scores.window or 0,
        DECODE_LIMIT=MAX_QUERIES,
        TILE_TOKENS=tile.rows // group,
        BLOCK_B=requests_block(num_requests),
        BLOCK_M=tile.rows,
        BLOCK_N=tile.keys,
        OVERLAP=OVERLAPS,
        **launch_options(tile.num_warps, tile.num_stages),
    )


def _choose_tile(dtype: torch.dtype, block_d: int) -> PrefillTile:
    """What fits shared memory and registers."""
    if dtype == torch.float32:
        return _FP32_TILE
    return TILE if block_d <= 128 else _LARGE_HEAD_TILE
