"""One forward pass of one model: from scheduled requests to logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from engine.execution.batch import Batch, pack
from engine.tracing import Range, span

if TYPE_CHECKING:
    from torch import Tensor

    from engine.attention.backend import Attend, AttentionBackend, KvCache
    from engine.execution.counters import Counters
    from engine.execution.staging import Staging
    from engine.model.decoder import Decoder
    from engine.scheduling.plan import ScheduledRequest


@dataclass(frozen=True, slots=True)
class ModelOnDevice:
    """A decoder with the attention backend and the KV cache that belong to it."""

    decoder: Decoder
    backend: AttentionBackend
    kv: KvCache
    device: torch.device
    vocab_size: int


class ForwardPass(Protocol):
    """Runs the requests of one piece of a step."""

    def run(self, scheduled: Sequence[ScheduledRequest], slots: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Feed the tokens and write their KV.

        Args:
            scheduled: the requests, at least one.
            slots: for each request its slot.

        Returns:
            logits_RV of the rows that sample, valid until the next call, and row_slots_R, the slot of each of them.
        """
        ...


class EagerPass:
    """Operator by operator; takes any batch."""

    def __init__(self, model: ModelOnDevice, last_tokens: Tensor, staging: Staging) -> None:
        self._model = model
        self._last_tokens = last_tokens
        self._staging = staging
        self._wrap: Callable[[Attend], Attend] = _unchanged

    def synchronize_layers(self, counters: Counters) -> None:
        """Wait for the device after every layer from now on."""
        self._wrap = lambda attend: SynchronizingAttend(attend, counters)

    def run(self, scheduled: Sequence[ScheduledRequest], slots: Sequence[int]) -> tuple[Tensor, Tensor]:
        """See `ForwardPass`."""
        batch = pack(scheduled, slots, self._model.kv.block_size, self._staging)
        return self.logits(batch), batch.row_slots_R

    def logits(self, batch: Batch) -> Tensor:
        """Logits of the rows of a batch that sample; CUDA graphs record this function."""
        tokens_T = batch.token_ids_T
        if batch.takes_last:
            tokens_T = torch.where(batch.from_last_T > 0, self._last_tokens[batch.slots_T], tokens_T)
        attend = self._wrap(self._model.backend.bind(self._model.kv, batch.meta))
        hidden_TD = self._model.decoder.forward(tokens_T, batch.positions_T, attend)
        if len(batch.logit_rows_R) < len(batch.positions_T):
            hidden_TD = hidden_TD[batch.logit_rows_R]
        return self._model.decoder.logits(hidden_TD)


class SynchronizingAttend:
    """Attention that waits for the device each time: a layer cannot start before the host has seen the last one end."""

    def __init__(self, attend: Attend, counters: Counters) -> None:
        self._attend = attend
        self._counters = counters

    def __call__(self, q_THD: Tensor, k_TND: Tensor, v_TND: Tensor, layer: int) -> Tensor:
        """See `engine.attention.backend.Attend`."""
        out_THD = self._attend(q_THD, k_TND, v_TND, layer)
        self._counters.syncs += 1
        self._counters.layer_syncs += 1
        if out_THD.is_cuda:
            torch.cuda.synchronize(out_THD.device)
        return out_THD


def _unchanged(attend: Attend) -> Attend:
    return attend


def phase(scheduled: Sequence[ScheduledRequest]) -> Range:
    """Name of a piece in a trace: prefill if it holds a part of a prompt, verify if it holds drafts, else decode."""
    if any(item.num_tokens > 1 + len(item.draft_token_ids) for item in scheduled):
        return Range.PREFILL
    return Range.VERIFY if any(item.draft_token_ids for item in scheduled) else Range.DECODE


def run_piece(
    forward: ForwardPass, scheduled: Sequence[ScheduledRequest], slots: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Run one piece inside the range of its phase."""
    with span(phase(scheduled), len(scheduled)):
        return forward.run(scheduled, slots)
