"""The inner step of every attention kernel here: one block of keys, with a softmax that is rescaled as it goes."""

# ruff: noqa: PLR0913, PLR0917 - device functions take pointers and sizes one by one

from __future__ import annotations

from engine.kernels.jit import dot, jit, tl


@jit
def attend_block(
    q: tl.tensor,
    state: tl.tensor,
    k_ptr: tl.tensor,
    v_ptr: tl.tensor,
    offset: tl.tensor,
    key: tl.tensor,
    end: tl.tensor,
    position: tl.tensor,
    score_scale: tl.tensor,
    HEAD_DIM: tl.constexpr,
    WINDOW: tl.constexpr,
    MASKED: tl.constexpr,
) -> tl.tensor:
    """Fold a block of keys into the state of a tile of queries.

    Args:
        q: (rows, D) queries.
        state: maximum, sum and weighted values of what was folded before, in base 2.
        k_ptr: start of the keys of this KV head.
        v_ptr: start of the values.
        offset: element offset of each key of the block.
        key: position of each key.
        end: first position that does not exist.
        position: position of each query.
        score_scale: factor on q.k, log2(e) included.
        HEAD_DIM: D without padding.
        WINDOW: last tokens that a query sees; 0 is all.
        MASKED: whether some key may be hidden from some query.

    Returns:
        The new state. Source: Milakov and Gimelshein 2018; FlashAttention-2, Dao 2023.
    """
    maximum, total, acc = state
    d = tl.arange(0, q.shape[1])
    address = offset[:, None] + d[None, :]
    inside_d = (d < HEAD_DIM)[None, :]
    if MASKED:
        # Although the scores are masked again: slots past the end may hold NaN, and 0 * NaN is NaN.
        inside = (key < end)[:, None] & inside_d
        k = tl.load(k_ptr + address, mask=inside, other=0.0)
        v = tl.load(v_ptr + address, mask=inside, other=0.0)
    elif q.shape[1] == HEAD_DIM:
        k = tl.load(k_ptr + address)
        v = tl.load(v_ptr + address)
    else:
        k = tl.load(k_ptr + address, mask=inside_d, other=0.0)
        v = tl.load(v_ptr + address, mask=inside_d, other=0.0)
    score = dot(q, tl.trans(k.to(q.dtype)), tl.zeros((q.shape[0], key.shape[0]), tl.float32))
    if MASKED:
        seen = (key[None, :] <= position[:, None]) & (key < end)[None, :]
        if WINDOW > 0:
            seen = seen & (key[None, :] > position[:, None] - WINDOW)
        score = tl.where(seen, score, float("-inf"))
    new_maximum = tl.maximum(maximum, tl.max(score, axis=1) * score_scale)
    # A row that has seen no key yet has no maximum: infinity minus infinity is NaN.
    base = tl.where(new_maximum == float("-inf"), 0.0, new_maximum) if MASKED else new_maximum
    weight = tl.exp2(score * score_scale - base[:, None])
    decay = tl.exp2(maximum - base)
    total = total * decay + tl.sum(weight, axis=1)
    acc = dot(weight.to(q.dtype), v.to(q.dtype), acc * decay[:, None])
    return new_maximum, total, acc


@jit
def fresh_state(ROWS: tl.constexpr, BLOCK_D: tl.constexpr) -> tl.tensor:
    """State of a tile that has seen no key."""
    maximum = tl.full((ROWS,), float("-inf"), tl.float32)
    return maximum, tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS, BLOCK_D), tl.float32)
