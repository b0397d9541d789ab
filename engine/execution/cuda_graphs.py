"""Decode steps as CUDA graphs: recorded once for some sizes of batch, replayed with one launch.

A graph reads and writes fixed memory. The inputs of a step are therefore copied into the buffer of its graph, and a
batch is padded to the next size for which there is a graph: padded rows have no tokens in the cache, write to no slot
of it, and belong to a slot of the runner's buffers that no request owns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from engine.execution.batch import BatchNumbers, padded_width
from engine.execution.graph_recorder import PassGraph
from engine.execution.staging import array_views, layout_size

if TYPE_CHECKING:
    from engine.execution.counters import Counters
    from engine.execution.forward import EagerPass, ForwardPass, PassOutput
    from engine.execution.graph_recorder import GraphRecorder, PackedStaging
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
    """Inputs of decode steps of one size, in one piece of host memory that is kept from step to step.

    Most rows of the block table are those of the step before, and only the others are written.
    """

    def __init__(self, num_requests: int, num_tokens: int, sizes: GraphSizes) -> None:
        """Start with padding only.

        Args:
            num_requests: rows.
            num_tokens: tokens of each row, Q.
            sizes: lengths; its `max_requests` is the slot of padding.
        """
        num_columns = padded_width(-(-sizes.max_len // sizes.block_size))
        initial = _padding(num_requests, num_tokens, num_columns, sizes)
        self.packed = np.zeros(layout_size(initial.arrays()), np.uint8)
        self.numbers = initial.kept_in(array_views(initial.arrays(), self.packed))
        self._num_tokens = num_tokens
        self._block_size = sizes.block_size
        self._padding_slot = sizes.max_requests
        self._num_filled = 0
        self._rows: list[tuple[int, ...]] = [()] * num_requests
        self._row_B1 = np.arange(num_requests)[:, None]
        self._offset_Q = np.arange(num_tokens)

    def fill(self, scheduled: Sequence[ScheduledRequest], slots: Sequence[int]) -> None:
        """Put requests into the first rows, and padding behind them."""
        numbers, num_tokens = self.numbers, self._num_tokens
        count = len(scheduled)
        used = count * num_tokens
        starts: list[int] = []
        tokens: list[int] = []
        from_last: list[int] = []
        for row, item in enumerate(scheduled):
            if self._rows[row] is not item.block_ids and self._rows[row] != item.block_ids:
                numbers.block_table_BM[row, : len(item.block_ids)] = item.block_ids
            self._rows[row] = item.block_ids
            starts.append(item.start)
            tokens += item.token_ids
            is_unknown = len(item.token_ids) < num_tokens
            from_last.append(is_unknown)
            if is_unknown:
                tokens.append(0)
        positions_BQ = np.array(starts)[:, None] + self._offset_Q
        numbers.token_ids_T[:used] = tokens
        numbers.positions_T[:used].reshape(count, num_tokens)[:] = positions_BQ
        numbers.from_last_T[num_tokens - 1 : used : num_tokens] = from_last
        numbers.slots_T[:used].reshape(count, num_tokens)[:] = np.array(slots)[:, None]
        blocks_BQ = numbers.block_table_BM[self._row_B1[:count], positions_BQ // self._block_size]
        mapping_BQ = blocks_BQ * np.int64(self._block_size) + positions_BQ % self._block_size
        numbers.slot_mapping_T[:used].reshape(count, num_tokens)[:] = mapping_BQ
        numbers.seq_lens_B[:count] = positions_BQ[:, -1] + 1
        if count < self._num_filled:
            self._pad(count, used)
        self._num_filled = count
        numbers.row_slots_R[:] = numbers.slots_T

    def _pad(self, count: int, used: int) -> None:
        numbers = self.numbers
        numbers.token_ids_T[used:] = 0
        numbers.positions_T[used:] = 0
        numbers.from_last_T[used:] = 0
        numbers.slots_T[used:] = self._padding_slot
        numbers.slot_mapping_T[used:] = -1
        numbers.seq_lens_B[count:] = 0


def _padding(num_requests: int, num_tokens: int, num_columns: int, sizes: GraphSizes) -> BatchNumbers:
    total = num_requests * num_tokens
    cu_q_B1 = np.arange(0, total + 1, num_tokens, dtype=np.int32)
    rows_R = np.arange(total, dtype=np.int64)
    return BatchNumbers.padding(sizes.max_requests, cu_q_B1, rows_R, num_columns, num_tokens, sizes.max_len)


class DecodeGraphs:
    """Replays a graph where all requests feed the same number of tokens and there is a graph for it."""

    def __init__(
        self, eager: EagerPass, others: ForwardPass, staging: PackedStaging, sizes: GraphSizes, counters: Counters
    ) -> None:
        """Record nothing yet; see `record`.

        Args:
            eager: what is recorded.
            others: runs what there is no graph for.
            staging: brings inputs to the device.
            sizes: what graphs are wanted for.
            counters: counts recordings and replays.
        """
        self._eager = eager
        self._others = others
        self._staging = staging
        self._sizes = sizes
        self._counters = counters
        self._graphs: dict[tuple[int, int], PassGraph] = {}
        self._bucket_of = _round_up(sizes.buckets())

    @torch.inference_mode()
    def record(self, recorder: GraphRecorder) -> None:
        """Record all graphs, the largest first so that the smaller ones find room in its memory.

        Raises:
            RuntimeError: there is no memory left for a graph.
        """
        for num_tokens in self._sizes.tokens_per_request:
            for num_requests in reversed(self._sizes.buckets()):
                inputs = DecodeInputs(num_requests, num_tokens, self._sizes)
                graph = PassGraph(inputs, self._eager.output, self._staging, recorder)
                self._graphs[num_requests, num_tokens] = graph
                self._counters.graph_captures += 1

    def run(self, scheduled: Sequence[ScheduledRequest], slots: Sequence[int]) -> PassOutput:
        """See `engine.execution.forward.ForwardPass`."""
        graph = self._find(scheduled)
        if graph is None:
            return self._others.run(scheduled, slots)
        self._counters.graph_replays += 1
        return graph.run(scheduled, slots, sum(item.num_tokens for item in scheduled))

    def _find(self, scheduled: Sequence[ScheduledRequest]) -> PassGraph | None:
        num_tokens = scheduled[0].num_tokens
        for item in scheduled:
            if not item.samples or item.num_tokens != num_tokens or len(item.draft_token_ids) != num_tokens - 1:
                return None
        if len(scheduled) >= len(self._bucket_of):
            return None
        return self._graphs.get((self._bucket_of[len(scheduled)], num_tokens))


def _round_up(buckets: Sequence[int]) -> list[int]:
    """For each number of requests from 0 to the largest bucket the bucket that holds it."""
    table = [buckets[0]]
    for bucket in buckets:
        table += [bucket] * (bucket + 1 - len(table))
    return table
