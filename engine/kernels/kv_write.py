"""Storing new keys and values in the pages of a cache, with or without the rotation that precedes it."""

# ruff: noqa: PLR0913, PLR0917 - device functions take pointers and sizes one by one

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine.kernels.jit import (
    OVERLAPS,
    jit_once_for,
    launch_options,
    start_next_kernel,
    tl,
    triton,
    wait_for_previous_kernel,
)
from engine.kernels.paging import to_stored
from engine.kernels.rotary import check_angles, load_rotated, rotate_reference

if TYPE_CHECKING:
    from torch import Tensor

    from engine.kernels.paging import Pages


@jit_once_for("slot_ptr")
def _kv_write_kernel(
    q_ptr: tl.tensor,
    k_ptr: tl.tensor,
    v_ptr: tl.tensor,
    cos_ptr: tl.tensor,
    sin_ptr: tl.tensor,
    slot_ptr: tl.tensor,
    q_out_ptr: tl.tensor,
    k_cache_ptr: tl.tensor,
    v_cache_ptr: tl.tensor,
    k_scale: float,
    v_scale: float,
    q_stride: int,
    k_stride: int,
    v_stride: int,
    block_stride: int,
    slot_stride: int,
    Q_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_D: tl.constexpr,
    ROTATE: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    token = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    lane = tl.arange(0, BLOCK_H)
    d = tl.arange(0, BLOCK_D)
    inside_d = (d < HEAD_DIM)[None, :]
    wait_for_previous_kernel(OVERLAP)
    start_next_kernel(OVERLAP)
    kv_parts = (KV_HEADS + BLOCK_H - 1) // BLOCK_H
    if part < kv_parts:
        slot = tl.load(slot_ptr + token)
        head = part * BLOCK_H + lane
        inside = head < tl.where(slot >= 0, KV_HEADS, 0)
        mask = inside[:, None] & inside_d
        k = load_rotated(
            k_ptr,
            token * k_stride + head * HEAD_DIM,
            cos_ptr,
            sin_ptr,
            token + lane * 0,
            inside,
            HEAD_DIM,
            BLOCK_D,
            ROTATE,
        )
        v = tl.load(v_ptr + (token * v_stride + head * HEAD_DIM)[:, None] + d[None, :], mask=mask, other=0.0)
        target = (slot // PAGE) * block_stride + (slot % PAGE) * slot_stride + head * HEAD_DIM
        STORED: tl.constexpr = k_cache_ptr.dtype.element_ty
        tl.store(k_cache_ptr + target[:, None] + d[None, :], to_stored(k, k_scale, STORED), mask=mask)
        tl.store(v_cache_ptr + target[:, None] + d[None, :], to_stored(v, v_scale, STORED), mask=mask)
    elif ROTATE:
        head = (part - kv_parts) * BLOCK_H + lane
        inside = head < Q_HEADS
        q = load_rotated(
            q_ptr,
            token * q_stride + head * HEAD_DIM,
            cos_ptr,
            sin_ptr,
            token + lane * 0,
            inside,
            HEAD_DIM,
            BLOCK_D,
            True,
        )
        target = (token * Q_HEADS + head) * HEAD_DIM
        tl.store(q_out_ptr + target[:, None] + d[None, :], q, mask=inside[:, None] & inside_d)


def write_kv(k_TND: Tensor, v_TND: Tensor, pages: Pages, slot_T: Tensor) -> None:
    """Store the keys and values of T tokens in their slots, in place.

    Args:
        k_TND: keys, already rotated; N and D contiguous.
        v_TND: values; N and D contiguous.
        pages: cache of the layer, written; FP8 pages hold x / scale, clamped.
        slot_T: int64, `block * S + offset`; negative is padding and skipped (a device tensor has no NULL).

    Raises:
        ValueError: a layout does not fit. Checked on the host: no device value is read.

    Cost: 2 * T * N * D elements read and written, 1 launch, no synchronisation. Source: PagedAttention, Kwon et al.
    2023.
    """
    _check(k_TND, v_TND, pages, slot_T)
    _launch((k_TND, None), (k_TND, v_TND), (k_TND, k_TND), pages, slot_T)


def rotate_and_write_kv(
    q_THD: Tensor, k_TND: Tensor, v_TND: Tensor, angles: tuple[Tensor, Tensor], pages: Pages, slot_T: Tensor
) -> Tensor:
    """Rotate queries and keys, and store keys and values of T tokens in their slots.

    Args:
        q_THD: queries, not rotated; H and D contiguous.
        k_TND: keys, not rotated; N and D contiguous.
        v_TND: values; N and D contiguous.
        angles: cos_TD and sin_TD as `engine.kernels.rotary.rotate` takes them.
        pages: cache of the layer, written.
        slot_T: as in `write_kv`.

    Returns:
        Rotated queries, contiguous.

    Raises:
        ValueError: a layout does not fit.

    Cost: every element once in and once out, 1 launch instead of 2, and the keys are not read again.
    """
    _check(k_TND, v_TND, pages, slot_T)
    check_angles(q_THD.shape[-1], *angles)
    q_out_THD = torch.empty(q_THD.shape, dtype=q_THD.dtype, device=q_THD.device)
    _launch((q_THD, q_out_THD), (k_TND, v_TND), angles, pages, slot_T)
    return q_out_THD


def write_kv_reference(k_TND: Tensor, v_TND: Tensor, pages: Pages, slot_T: Tensor) -> None:
    """`write_kv` in PyTorch; reads the slots on the host."""
    page = pages.k_BSND.shape[1]
    kept = slot_T >= 0
    slot = slot_T[kept]
    for cache, new, scale in ((pages.k_BSND, k_TND, pages.k_scale), (pages.v_BSND, v_TND, pages.v_scale)):
        values = new[kept]
        if cache.dtype == torch.float8_e4m3fn:
            values = (values.float() / scale).clamp(-448.0, 448.0)
        cache[slot // page, slot % page] = values.to(cache.dtype)


def rotate_and_write_kv_reference(
    q_THD: Tensor, k_TND: Tensor, v_TND: Tensor, angles: tuple[Tensor, Tensor], pages: Pages, slot_T: Tensor
) -> Tensor:
    """`rotate_and_write_kv` in PyTorch."""
    write_kv_reference(rotate_reference(k_TND, *angles), v_TND, pages, slot_T)
    return rotate_reference(q_THD, *angles)


def _check(k_TND: Tensor, v_TND: Tensor, pages: Pages, slot_T: Tensor) -> None:
    head_dim = k_TND.shape[2]
    if k_TND.shape != v_TND.shape or k_TND.shape[1:] != pages.k_BSND.shape[2:]:
        raise ValueError(f"keys {tuple(k_TND.shape)} do not fit pages {tuple(pages.k_BSND.shape)}")
    if k_TND.stride()[1:] != (head_dim, 1) or v_TND.stride()[1:] != (head_dim, 1):
        raise ValueError("the heads of a token must be contiguous")
    if slot_T.dtype != torch.int64:
        raise ValueError(f"slots are int64, not {slot_T.dtype}")


def _launch(
    queries: tuple[Tensor, Tensor | None],
    new: tuple[Tensor, Tensor],
    angles: tuple[Tensor, Tensor],
    pages: Pages,
    slot_T: Tensor,
) -> None:
    q_THD, q_out_THD = queries
    k_TND, v_TND = new
    num_tokens, num_kv_heads, head_dim = k_TND.shape
    if num_tokens == 0:
        return
    block_h = min(8, triton.next_power_of_2(num_kv_heads))
    parts = triton.cdiv(num_kv_heads, block_h)
    if q_out_THD is not None:
        parts += triton.cdiv(q_THD.shape[1], block_h)
    _kv_write_kernel[(num_tokens, parts)](
        q_THD,
        k_TND,
        v_TND,
        *angles,
        slot_T,
        q_out_THD if q_out_THD is not None else q_THD,
        pages.k_BSND,
        pages.v_BSND,
        pages.k_scale,
        pages.v_scale,
        q_THD.stride(0),
        k_TND.stride(0),
        v_TND.stride(0),
        pages.k_BSND.stride(0),
        pages.k_BSND.stride(1),
        Q_HEADS=q_THD.shape[1],
        KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        PAGE=pages.k_BSND.shape[1],
        BLOCK_H=block_h,
        BLOCK_D=triton.next_power_of_2(head_dim),
        ROTATE=q_out_THD is not None,
        OVERLAP=OVERLAPS,
        **launch_options(num_warps=4),
    )
