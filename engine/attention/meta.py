"""What one forward pass has to know about its requests: lengths, block tables and cache slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class AttentionMeta:
    """Packed description of a batch of B requests with T new tokens between them.

    The new tokens of request b are rows `cu_q_B1[b]` to `cu_q_B1[b + 1]` of every token tensor. They are the last
    tokens of the `seq_lens_B[b]` that request b has once this pass is done, so its earlier tokens are in the cache.
    All tensors are on the device of the model. Token p of request b lives in slot
    `block_table_BM[b, p // S] * S + p % S` of a cache with S slots per block.

    Attributes:
        cu_q_B1: int32, B + 1 cumulative numbers of new tokens, from 0 to T.
        seq_lens_B: int32, tokens of each request including the new ones; 0 for a padded row.
        block_table_BM: int32, block numbers of each request, at least ceil(seq_len / S) valid ones in a row.
        slot_mapping_T: int64, slot that each new token is written to; negative is padding and is not written.
        max_q: upper bound of the new tokens of a request.
        max_k: upper bound of `seq_lens_B`.
    """

    cu_q_B1: Tensor
    seq_lens_B: Tensor
    block_table_BM: Tensor
    slot_mapping_T: Tensor
    max_q: int
    max_k: int
