"""Steps that feed prompts, or prompts beside decodes, as CUDA graphs: one graph for each padded number of tokens.

How a step divides its tokens among its requests is no matter of shapes: cumulative lengths say it, on the device. A
graph of T tokens therefore serves every step of at most T tokens. Tokens behind those of the step belong to a request
of length 0, the last one: they are written to no slot of the KV cache, see nothing, and no logits are taken of them.
Rows of other requests that the step does not have are empty.

Source: piecewise and full graphs by number of tokens in vLLM (`max_cudagraph_capture_size`) and SGLang. Here attention
is part of the graph, since the grids of `triton_paged` follow from shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from engine.execution.batch import BatchNumbers, batch_numbers, padded_width
from engine.execution.forward import PassOutput
from engine.execution.graph_recorder import PassGraph
from engine.execution.staging import array_views, layout_size

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from engine.execution.batch import Batch
    from engine.execution.counters import Counters
    from engine.execution.forward import EagerPass
    from engine.execution.graph_recorder import GraphRecorder, PackedStaging
    from engine.scheduling.plan import ScheduledRequest

_FEWEST_TOKENS = 16
_LEAST_SPACING = 64
_SIZES_PER_OCTAVE = 8


@dataclass(frozen=True, slots=True)
class MixedSizes:
    """What graphs of mixed steps are recorded for.

    Attributes:
        max_tokens: largest step, at least one token.
        max_requests: requests in a step at most; also the slot of padding in the runner's buffers.
        max_len: tokens that a request may have.
        block_size: tokens in a KV block.
        rows_per_request: rows of logits that a request may have: 1, or 1 + K with K drafts to verify.
    """

    max_tokens: int
    max_requests: int
    max_len: int
    block_size: int
    rows_per_request: int = 1

    def buckets(self) -> tuple[int, ...]:
        """Numbers of tokens, ascending: 16, 32, 64, then in steps of 64 and, from 1024 on, of an eighth of an octave.

        A product is computed in tiles of 64 to 256 rows, so that few of the padded rows cost time of their own.
        """
        sizes = [_FEWEST_TOKENS, 2 * _FEWEST_TOKENS]
        while sizes[-1] < self.max_tokens:
            octave = 1 << (sizes[-1].bit_length() - 1)
            spacing = max(_LEAST_SPACING, octave // _SIZES_PER_OCTAVE)
            sizes.append(sizes[-1] // spacing * spacing + spacing)
        return (*(size for size in sizes if size < self.max_tokens), self.max_tokens)

    def num_requests(self, num_tokens: int) -> int:
        """Rows of the block table, B: one for each request that may have a token, and one for the padding."""
        return min(self.max_requests, num_tokens) + 1

    def num_rows(self, num_tokens: int) -> int:
        """Rows of logits, R: fewer than tokens, since a pass takes R = T for all of them in order."""
        return max(1, min(self.max_requests * self.rows_per_request, num_tokens - 1))


class MixedInputs:
    """Inputs of steps of at most T tokens, in one piece of host memory that is kept from step to step."""

    def __init__(self, num_tokens: int, sizes: MixedSizes) -> None:
        """Start with padding only.

        Args:
            num_tokens: T.
            sizes: bounds of a step.
        """
        self.num_tokens = num_tokens
        initial = _padding(num_tokens, sizes)
        self.packed = np.zeros(layout_size(initial.arrays()), np.uint8)
        self.numbers = initial.kept_in(array_views(initial.arrays(), self.packed))
        self._block_size = sizes.block_size
        self._padding_slot = sizes.max_requests

    def fits(self, num_tokens: int, num_requests: int, num_rows: int) -> bool:
        """Whether a step with so many tokens, requests and rows of logits has room."""
        numbers = self.numbers
        has_requests = num_requests < len(numbers.seq_lens_B)
        return num_tokens <= self.num_tokens and has_requests and num_rows <= len(numbers.logit_rows_R)

    def fill(self, scheduled: Sequence[ScheduledRequest], slots: Sequence[int]) -> None:
        """Put requests into the first rows, and padding behind them."""
        step, kept = batch_numbers(scheduled, slots, self._block_size), self.numbers
        _put(kept.token_ids_T, step.token_ids_T, 0)
        _put(kept.positions_T, step.positions_T, 0)
        _put(kept.from_last_T, step.from_last_T, 0)
        _put(kept.slots_T, step.slots_T, self._padding_slot)
        _put(kept.slot_mapping_T, step.slot_mapping_T, -1)
        _put(kept.logit_rows_R, step.logit_rows_R, 0)
        _put(kept.row_slots_R, step.row_slots_R, self._padding_slot)
        _put(kept.cu_q_B1[:-1], step.cu_q_B1, int(step.cu_q_B1[-1]))
        _put(kept.seq_lens_B, step.seq_lens_B, 0)
        num_requests, num_columns = step.block_table_BM.shape
        kept.block_table_BM[:num_requests, :num_columns] = step.block_table_BM


def _put(kept: NDArray[Any], values: NDArray[Any], padding: int) -> None:
    kept[: len(values)] = values
    kept[len(values) :] = padding


def _padding(num_tokens: int, sizes: MixedSizes) -> BatchNumbers:
    cu_q_B1 = np.array([0] * sizes.num_requests(num_tokens) + [num_tokens], np.int32)
    rows_R = np.zeros(sizes.num_rows(num_tokens), np.int64)
    num_columns = padded_width(-(-sizes.max_len // sizes.block_size))
    return BatchNumbers.padding(sizes.max_requests, cu_q_B1, rows_R, num_columns, num_tokens, sizes.max_len)


class MixedGraphs:
    """Replays the graph of the next size that holds a step, whatever the step feeds; larger steps run eagerly.

    All graphs write the same logits, so that memory for them is taken once.
    """

    def __init__(self, eager: EagerPass, staging: PackedStaging, sizes: MixedSizes, counters: Counters) -> None:
        """Record nothing yet; see `record`.

        Args:
            eager: what is recorded, and runs everything else.
            staging: brings inputs to the device.
            sizes: what graphs are wanted for.
            counters: counts recordings and replays.
        """
        self._eager = eager
        self._staging = staging
        self._sizes = sizes
        self._counters = counters
        self._graphs: list[tuple[MixedInputs, PassGraph]] = []

    @torch.inference_mode()
    def record(self, recorder: GraphRecorder) -> None:
        """Record all graphs, the largest first so that the smaller ones find room in its memory.

        Raises:
            RuntimeError: there is no memory left for a graph.
        """
        logits_RV = self._eager.logits_room(self._sizes.num_rows(self._sizes.max_tokens))
        best_R = torch.empty(len(logits_RV), dtype=torch.int64, device=recorder.device)
        for num_tokens in reversed(self._sizes.buckets()):
            inputs = MixedInputs(num_tokens, self._sizes)
            graph = PassGraph(inputs, partial(self._pass, logits_RV, best_R), self._staging, recorder)
            self._graphs.insert(0, (inputs, graph))
            self._counters.graph_captures += 1

    def run(self, scheduled: Sequence[ScheduledRequest], slots: Sequence[int]) -> PassOutput:
        """See `engine.execution.forward.ForwardPass`."""
        num_tokens = sum(item.num_tokens for item in scheduled)
        num_rows = sum(1 + len(item.draft_token_ids) for item in scheduled if item.samples)
        for inputs, graph in self._graphs:
            if inputs.fits(num_tokens, len(scheduled), num_rows):
                self._counters.graph_replays += 1
                self._counters.mixed_graph_replays += 1
                self._counters.graph_padding_tokens += inputs.num_tokens - num_tokens
                return graph.run(scheduled, slots, num_rows)
        return self._eager.run(scheduled, slots)

    def _pass(self, logits_RV: Tensor, best_R: Tensor, batch: Batch) -> PassOutput:
        """A whole pass whose results end in the memory that all graphs share."""
        made = self._eager.output(batch)
        assert made.best_R is not None, "a recorded pass chooses the most probable tokens"
        num_rows = len(made.row_slots_R)
        logits_RV[:num_rows].copy_(made.logits_RV)
        best_R[:num_rows].copy_(made.best_R)
        return PassOutput(logits_RV[:num_rows], made.row_slots_R, best_R[:num_rows])
