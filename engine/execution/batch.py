"""The input of one forward pass: packed tensors, built on the host and brought over in one copy.

Dimensions: T tokens, B requests, M blocks in a row of the block table, R rows of logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.attention.meta import AttentionMeta

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from engine.execution.staging import Staging
    from engine.scheduling.plan import ScheduledRequest


_TABLE_MULTIPLE = 16


@dataclass(frozen=True, slots=True)
class Batch:
    """One forward pass over some requests of a step; immutable, and passed by argument.

    Attributes:
        token_ids_T: int64. Where `from_last_T` is 1 the value is void.
        positions_T: int64, place of each token in its request.
        from_last_T: int64, 1 where the token is the one sampled last for its request, which the host may not know yet.
        slots_T: int64, slot of the request of each token in the runner's buffers.
        meta: what attention needs.
        logit_rows_R: int64, rows of the hidden states that need logits.
        row_slots_R: int64, slot of the request of each of these rows.
        takes_last: whether any token of `from_last_T` is 1; known on the host.
    """

    token_ids_T: Tensor
    positions_T: Tensor
    from_last_T: Tensor
    slots_T: Tensor
    meta: AttentionMeta
    logit_rows_R: Tensor
    row_slots_R: Tensor
    takes_last: bool


def pack(scheduled: Sequence[ScheduledRequest], slots: Sequence[int], block_size: int, staging: Staging) -> Batch:
    """Pack the requests of one forward pass, in their order.

    Args:
        scheduled: what to run; at least one request.
        slots: for each request its slot in the runner's buffers.
        block_size: tokens in a KV block.
        staging: brings the numbers to the device.

    Cost: one copy to the device when memory is pinned; no synchronisation.
    """
    numbers = batch_numbers(scheduled, slots, block_size)
    return numbers.on_device(staging.to_device(numbers.arrays()))


@dataclass(frozen=True, slots=True)
class BatchNumbers:
    """The same batch on the host. Fields are those of `Batch` and its `meta`."""

    token_ids_T: NDArray[np.int64]
    positions_T: NDArray[np.int64]
    from_last_T: NDArray[np.int64]
    slots_T: NDArray[np.int64]
    slot_mapping_T: NDArray[np.int64]
    logit_rows_R: NDArray[np.int64]
    row_slots_R: NDArray[np.int64]
    cu_q_B1: NDArray[np.int32]
    seq_lens_B: NDArray[np.int32]
    block_table_BM: NDArray[np.int32]
    max_q: int
    max_k: int
    takes_last: bool

    @classmethod
    def padding(
        cls,
        slot: int,
        cu_q_B1: NDArray[np.int32],
        logit_rows_R: NDArray[np.int64],
        num_columns: int,
        max_q: int,
        max_k: int,
    ) -> BatchNumbers:
        """A batch of nothing but padding, which no slot of the KV cache holds: inputs of a recorded pass begin so.

        Args:
            slot: of padding in the runner's buffers.
            cu_q_B1: how the tokens divide among the rows of the block table.
            logit_rows_R: tokens of which logits are taken.
            num_columns: blocks in a row of the block table, M.
            max_q: see `AttentionMeta`.
            max_k: see `AttentionMeta`.
        """
        num_requests, num_tokens = len(cu_q_B1) - 1, int(cu_q_B1[-1])
        return cls(
            token_ids_T=np.zeros(num_tokens, np.int64),
            positions_T=np.zeros(num_tokens, np.int64),
            from_last_T=np.zeros(num_tokens, np.int64),
            slots_T=np.full(num_tokens, slot, np.int64),
            slot_mapping_T=np.full(num_tokens, -1, np.int64),
            logit_rows_R=logit_rows_R,
            row_slots_R=np.full(len(logit_rows_R), slot, np.int64),
            cu_q_B1=cu_q_B1,
            seq_lens_B=np.zeros(num_requests, np.int32),
            block_table_BM=np.zeros((num_requests, num_columns), np.int32),
            max_q=max_q,
            max_k=max_k,
            takes_last=True,
        )

    def arrays(self) -> list[NDArray[np.generic]]:
        """What travels to the device, in a fixed order."""
        return [
            self.token_ids_T,
            self.positions_T,
            self.from_last_T,
            self.slots_T,
            self.slot_mapping_T,
            self.logit_rows_R,
            self.row_slots_R,
            self.cu_q_B1,
            self.seq_lens_B,
            self.block_table_BM,
        ]

    def kept_in(self, arrays: Sequence[NDArray[Any]]) -> BatchNumbers:
        """The same batch in other arrays, given in the order of `arrays`; they get its values."""
        for kept, array in zip(arrays, self.arrays(), strict=True):
            kept[...] = array
        tokens, positions, from_last, slots, mapping, rows, row_slots, cu_q, seq_lens, table = arrays
        return BatchNumbers(
            token_ids_T=tokens,
            positions_T=positions,
            from_last_T=from_last,
            slots_T=slots,
            slot_mapping_T=mapping,
            logit_rows_R=rows,
            row_slots_R=row_slots,
            cu_q_B1=cu_q,
            seq_lens_B=seq_lens,
            block_table_BM=table,
            max_q=self.max_q,
            max_k=self.max_k,
            takes_last=self.takes_last,
        )

    def on_device(self, tensors: Sequence[Tensor]) -> Batch:
        """Put the batch together from its arrays on the device, in the order of `arrays`."""
        tokens, positions, from_last, slots, mapping, rows, row_slots, cu_q, seq_lens, table = tensors
        meta = AttentionMeta(cu_q, seq_lens, table, mapping, self.max_q, self.max_k)
        return Batch(tokens, positions, from_last, slots, meta, rows, row_slots, self.takes_last)


def batch_numbers(scheduled: Sequence[ScheduledRequest], slots: Sequence[int], block_size: int) -> BatchNumbers:
    """Lay out the requests of one forward pass, in their order; see `pack`."""
    counts_B = np.fromiter((item.num_tokens for item in scheduled), dtype=np.int64, count=len(scheduled))
    starts_B = np.fromiter((item.start for item in scheduled), dtype=np.int64, count=len(scheduled))
    ends_B = starts_B + counts_B
    cu_q_B1 = np.zeros(len(scheduled) + 1, dtype=np.int64)
    np.cumsum(counts_B, out=cu_q_B1[1:])
    table_BM = block_table([item.block_ids for item in scheduled])
    owner_T = np.repeat(np.arange(len(scheduled)), counts_B)
    positions_T = np.arange(cu_q_B1[-1]) - np.repeat(cu_q_B1[:-1] - starts_B, counts_B)
    slot_mapping_T = table_BM[owner_T, positions_T // block_size].astype(np.int64) * block_size
    slots_B = np.asarray(slots, dtype=np.int64)
    logit_rows_R, row_owner_R = logit_rows(scheduled, cu_q_B1)
    return BatchNumbers(
        token_ids_T=_token_ids(scheduled),
        positions_T=positions_T,
        from_last_T=_from_last(scheduled, cu_q_B1),
        slots_T=slots_B[owner_T],
        slot_mapping_T=slot_mapping_T + positions_T % block_size,
        logit_rows_R=logit_rows_R,
        row_slots_R=slots_B[row_owner_R],
        cu_q_B1=cu_q_B1.astype(np.int32),
        seq_lens_B=ends_B.astype(np.int32),
        block_table_BM=table_BM,
        max_q=int(counts_B.max()),
        max_k=int(ends_B.max()),
        takes_last=any(item.takes_last_token for item in scheduled),
    )


def block_table(rows: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    """Block numbers as one array (B, M), with 0 behind the end of each row; M is a multiple of 16.

    A kernel is compiled anew when the stride of the table starts or ceases to be one: Triton looks at that.
    """
    lengths_B = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    table_BM = np.zeros((len(rows), padded_width(int(lengths_B.max()))), dtype=np.int32)
    is_used_BM = np.arange(table_BM.shape[1]) < lengths_B[:, None]
    table_BM[is_used_BM] = np.fromiter(chain.from_iterable(rows), np.int32, int(lengths_B.sum()))
    return table_BM


def padded_width(num_blocks: int) -> int:
    """Columns of a block table that holds this many blocks in a row."""
    return -(-num_blocks // _TABLE_MULTIPLE) * _TABLE_MULTIPLE


def logit_rows(
    scheduled: Sequence[ScheduledRequest], cu_q_B1: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of the hidden states that need logits, and for each the index of its request in the batch."""
    counts = [1 + len(item.draft_token_ids) if item.samples else 0 for item in scheduled]
    owner_R = np.repeat(np.arange(len(scheduled)), counts)
    ends = np.repeat(cu_q_B1[1:], counts)
    behind = np.concatenate([np.arange(count, 0, -1) for count in counts]) if counts else np.zeros(0, np.int64)
    return ends - behind.astype(np.int64), owner_R


def _token_ids(scheduled: Sequence[ScheduledRequest]) -> NDArray[np.int64]:
    """Token ids of all requests in a row; 0 where only the device knows the token."""
    flat = chain.from_iterable(map(_padded, scheduled))
    return np.fromiter(flat, dtype=np.int64, count=sum(item.num_tokens for item in scheduled))


def _padded(item: ScheduledRequest) -> tuple[int, ...]:
    return (*item.token_ids, 0) if item.takes_last_token else item.token_ids


def _from_last(scheduled: Sequence[ScheduledRequest], cu_q_B1: NDArray[np.int64]) -> NDArray[np.int64]:
    from_last_T = np.zeros(int(cu_q_B1[-1]), dtype=np.int64)
    from_last_T[[int(cu_q_B1[i + 1]) - 1 for i, item in enumerate(scheduled) if item.takes_last_token]] = 1
    return from_last_T
