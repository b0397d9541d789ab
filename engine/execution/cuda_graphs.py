"""Decode steps as CUDA graphs: recorded once for some sizes of batch, replayed with one launch.

A graph reads and writes fixed memory. The inputs of a step are therefore copied into the buffer of its graph, and a
batch is padded to the next size for which there is a graph: padded rows have no tokens in the cache, write to no slot
of it, and belong to a slot of the runner's buffers that no request owns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from engine.execution.batch import BatchNumbers, padded_width
from engine.execution.forward import PassOutput
from engine.execution.staging import layout_size, layout_views

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from engine.execution.counters import Counters
    from engine.execution.forward import EagerPass
    from engine.execution.staging import PinnedStaging
    from engine.scheduling.plan import ScheduledRequest


@dataclass(frozen=True, slots=True)
class GraphSizes:
    """What graphs are recorded for.

    Attributes:
        max_requests: largest batch.
        max_len: tokens that a request may have.
        block_size: tokens in a KV block.
        tokens_per_request: tokens that each request feeds: 1 for decode, 1 + K for the verification of K drafts.
    """

    max_requests: int
    max_len: int
    block_size: int
    tokens_per_request: tuple[int, ...] = (1,)

    def buckets(self) -> tuple[int, ...]:
        """Sizes of batch, ascending: powers of two up to 8, then steps of 8."""
        sizes = [1, 2, 4, *range(8, self.max_requests + 8, 8)]
        return (*(size for size in sizes if size < self.max_requests), self.max_requests)


class DecodeInputs:
    """Inputs of decode steps of one size, kept from step to step: most rows of the block table do not change."""

    def __init__(self, num_requests: int, num_tokens: int, sizes: GraphSizes) -> None:
        """Start with padding only.

        Args:
            num_requests: rows.
            num_tokens: tokens of each row.
            sizes: lengths; its `max_requests` is the slot of padding.
        """
        self._num_tokens = num_tokens
        self._block_size = sizes.block_size
        self._padding_slot = sizes.max_requests
        total = num_requests * num_tokens
        num_columns = padded_width(-(-sizes.max_len // sizes.block_size))
        self.numbers = BatchNumbers(
            token_ids_T=np.zeros(total, np.int64),
            positions_T=np.zeros(total, np.int64),
            from_last_T=np.zeros(total, np.int64),
            slots_T=np.full(total, self._padding_slot, np.int64),
            slot_mapping_T=np.full(total, -1, np.int64),
            logit_rows_R=np.arange(total, dtype=np.int64),
            row_slots_R=np.full(total, self._padding_slot, np.int64),
            cu_q_B1=np.arange(0, total + 1, num_tokens, dtype=np.int32),
            seq_lens_B=np.zeros(num_requests, np.int32),
            block_table_BM=np.zeros((num_requests, num_columns), np.int32),
            max_q=num_tokens,
            max_k=sizes.max_len,
            takes_last=True,
        )
        self._rows: list[tuple[int, ...]] = [()] * num_requests

    def fill(self, scheduled: Sequence[ScheduledRequest], slots: Sequence[int]) -> list[NDArray[np.generic]]:
        """Put requests into the first rows and padding behind them; returns the arrays in the order of a batch."""
        numbers = self.numbers
        count = len(scheduled)
        used = count * self._num_tokens
        for row, item in enumerate(scheduled):
            if self._rows[row] != item.block_ids:
                self._rows[row] = item.block_ids
                numbers.block_table_BM[row, : len(item.block_ids)] = item.block_ids
        known = [(*item.token_ids, 0)[: self._num_tokens] for item in scheduled]
        starts_B = np.array([item.start for item in scheduled], np.int64)
        positions_BQ = starts_B[:, None] + np.arange(self._num_tokens)
        blocks_BQ = np.take_along_axis(numbers.block_table_BM[:count], positions_BQ // self._block_size, axis=1)
        numbers.token_ids_T[:used] = np.array(known, np.int64).reshape(-1)
        numbers.positions_T[:used] = positions_BQ.reshape(-1)
        last_of_each = numbers.from_last_T[:used].reshape(count, self._num_tokens)[:, -1]
        last_of_each[:] = [item.takes_last_token for item in scheduled]
        numbers.slots_T[:used] = np.repeat(np.asarray(slots, np.int64), self._num_tokens)
        mapping_BQ = blocks_BQ.astype(np.int64) * self._block_size + positions_BQ % self._block_size
        numbers.slot_mapping_T[:used] = mapping_BQ.reshape(-1)
        numbers.seq_lens_B[:count] = starts_B + self._num_tokens
        self._pad(count, used)
        numbers.row_slots_R[:] = numbers.slots_T
        return numbers.arrays()

    def _pad(self, count: int, used: int) -> None:
        numbers = self.numbers
        numbers.token_ids_T[used:] = 0
        numbers.positions_T[used:] = 0
        numbers.from_last_T[used:] = 0
        numbers.slots_T[used:] = self._padding_slot
        numbers.slot_mapping_T[used:] = -1
        numbers.seq_lens_B[count:] = 0


@dataclass(frozen=True, slots=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    inputs: DecodeInputs
    buffer: Tensor
    output: PassOutput


class GraphedPass:
    """Replays a graph where all requests feed the same number of tokens and there is a graph for it; else eager."""

    def __init__(self, eager: EagerPass, staging: PinnedStaging, sizes: GraphSizes, counters: Counters) -> None:
        """Record nothing yet; see `record`.

        Args:
            eager: what is recorded, and runs everything else.
            staging: brings inputs to the device.
            sizes: what graphs are wanted for.
            counters: counts replays.
        """
        self._eager = eager
        self._staging = staging
        self._sizes = sizes
        self._counters = counters
        self._graphs: dict[tuple[int, int], _Recorded] = {}
        self._bucket_of = _round_up(sizes.buckets())

    @torch.inference_mode()
    def record(self, device: torch.device) -> None:
        """Record all graphs, the largest first so that the smaller ones find room in its memory."""
        pool = torch.cuda.graph_pool_handle()
        for num_tokens in self._sizes.tokens_per_request:
            for num_requests in reversed(self._sizes.buckets()):
                self._graphs[num_requests, num_tokens] = self._record_one(num_requests, num_tokens, device, pool)
                self._counters.graph_captures += 1

    def run(self, scheduled: Sequence[ScheduledRequest], slots: Sequence[int]) -> PassOutput:
        """See `engine.execution.forward.ForwardPass`."""
        recorded = self._find(scheduled)
        if recorded is None:
            return self._eager.run(scheduled, slots)
        self._staging.copy_into(recorded.inputs.fill(scheduled, slots), recorded.buffer)
        recorded.graph.replay()
        self._counters.graph_replays += 1
        num_rows = sum(item.num_tokens for item in scheduled)
        output = recorded.output
        best_R = None if output.best_R is None else output.best_R[:num_rows]
        return PassOutput(output.logits_RV[:num_rows], output.row_slots_R[:num_rows], best_R)

    def _find(self, scheduled: Sequence[ScheduledRequest]) -> _Recorded | None:
        num_tokens = scheduled[0].num_tokens
        for item in scheduled:
            if not item.samples or item.num_tokens != num_tokens or len(item.draft_token_ids) != num_tokens - 1:
                return None
        if len(scheduled) >= len(self._bucket_of):
            return None
        return self._graphs.get((self._bucket_of[len(scheduled)], num_tokens))

    def _record_one(self, num_requests: int, num_tokens: int, device: torch.device, pool: Any) -> _Recorded:
        inputs = DecodeInputs(num_requests, num_tokens, self._sizes)
        arrays = inputs.numbers.arrays()
        buffer = torch.zeros(layout_size(arrays), dtype=torch.uint8, device=device)
        self._staging.copy_into(arrays, buffer)
        batch = inputs.numbers.on_device(layout_views(arrays, buffer))
        side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            # Libraries set themselves up and kernels are compiled on first use: that must not happen while recording.
            self._eager.output(batch)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            output = self._eager.output(batch)
        return _Recorded(graph, inputs, buffer, output)


def _round_up(buckets: Sequence[int]) -> list[int]:
    """For each number of requests from 0 to the largest bucket the bucket that holds it."""
    table = [buckets[0]]
    for bucket in buckets:
        table += [bucket] * (bucket + 1 - len(table))
    return table
