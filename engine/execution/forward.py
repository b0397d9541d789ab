"""One forward pass of one model: from scheduled requests to logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from engine.execution.batch import Batch, pack
from engine.execution.sampler import greedy
from engine.tracing import Range

if TYPE_CHECKING:
    from torch import Tensor

    from engine.attention.backend import Attend, AttendUnrotated, AttentionBackend
    from engine.execution.counters import Counters
    from engine.execution.staging import Staging
    from engine.model.decoder import Decoder
    from engine.model.kv.concat import ConcatKv
    from engine.model.kv.paged import PagedKv
    from engine.scheduling.plan import ScheduledRequest


@dataclass(frozen=True, slots=True)
class ModelOnDevice:
    """A decoder with the attention backend and the KV cache that belong to it."""

    decoder: Decoder
    backend: AttentionBackend
    kv: PagedKv | ConcatKv
    device: torch.device
    vocab_size: int


@dataclass(frozen=True, slots=True)
class PassOutput:
    """What a forward pass gives; valid until the next one.

    Attributes:
        logits_RV: of the rows that sample, in the order of the requests.
        row_slots_R: int64, slot of the request of each row.
        best_R: int64, most probable token of each row, already kept as the last token of its slot; None if the pass
            leaves that to others.
    """

    logits_RV: Tensor
    row_slots_R: Tensor
    best_R: Tensor | None = None

    def first(self, num_rows: int) -> PassOutput:
        """The same without the rows behind the first `num_rows`, which are padding."""
        best_R = None if self.best_R is None else self.best_R[:num_rows]
        return PassOutput(self.logits_RV[:num_rows], self.row_slots_R[:num_rows], best_R)


class ForwardPass(Protocol):
    """Runs the requests of one piece of a step."""

    def run(self, scheduled: Sequence[ScheduledRequest], slots: Sequence[int]) -> PassOutput:
        """Feed the tokens and write their KV.

        Args:
            scheduled: the requests, at least one.
            slots: for each request its slot.
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
        self._wrap = lambda attend: synchronizing(attend, counters)

    @torch.inference_mode()
    def run(self, scheduled: Sequence[ScheduledRequest], slots: Sequence[int]) -> PassOutput:
        """See `ForwardPass`."""
        batch = pack(scheduled, slots, self._model.kv.block_size, self._staging)
        return PassOutput(self.logits(batch), batch.row_slots_R)

    def logits_room(self, num_rows: int) -> Tensor:
        """Memory for `num_rows` rows of logits, (R, V) in the dtype of the model."""
        model = self._model
        return torch.empty(num_rows, model.vocab_size, dtype=model.decoder.dtype, device=model.device)

    def output(self, batch: Batch) -> PassOutput:
        """A whole pass with the choice of the most probable tokens, as CUDA graphs record it."""
        logits_RV = self.logits(batch)
        best_R = greedy(logits_RV)
        self._last_tokens.index_copy_(0, batch.row_slots_R, best_R)
        return PassOutput(logits_RV, batch.row_slots_R, best_R)

    def logits(self, batch: Batch) -> Tensor:
        """Logits of the rows of a batch that sample."""
        tokens_T = batch.token_ids_T
        if batch.takes_last:
            tokens_T = torch.where(batch.from_last_T > 0, self._last_tokens[batch.slots_T], tokens_T)
        attend = self._wrap(self._model.backend.bind(self._model.kv, batch.meta))
        hidden_TD = self._model.decoder.forward(tokens_T, batch.positions_T, attend)
        if len(batch.logit_rows_R) == 0:
            return hidden_TD.new_empty(0, self._model.vocab_size)
        if len(batch.logit_rows_R) < len(batch.positions_T):
            hidden_TD = hidden_TD[batch.logit_rows_R]
        return self._model.decoder.logits(hidden_TD)


def synchronizing(attend: Attend, counters: Counters) -> Attend:
    """Attention that waits for the device each time: no layer starts before the host has seen the last one end."""
    fused: AttendUnrotated | None = getattr(attend, "attend_unrotated", None)
    return _Synchronizing(attend, counters) if fused is None else _SynchronizingFused(attend, fused, counters)


class _Synchronizing:
    def __init__(self, attend: Attend, counters: Counters) -> None:
        self._attend = attend
        self._counters = counters

    def __call__(self, q_THD: Tensor, k_TND: Tensor, v_TND: Tensor, layer: int) -> Tensor:
        return self._wait(self._attend(q_THD, k_TND, v_TND, layer))

    def _wait(self, out_THD: Tensor) -> Tensor:
        self._counters.syncs += 1
        self._counters.layer_syncs += 1
        if out_THD.is_cuda:
            torch.cuda.synchronize(out_THD.device)
        return out_THD


class _SynchronizingFused(_Synchronizing):
    def __init__(self, attend: Attend, fused: AttendUnrotated, counters: Counters) -> None:
        super().__init__(attend, counters)
        self._fused = fused

    def attend_unrotated(
        self, new_tokens: tuple[Tensor, Tensor, Tensor], angles: tuple[Tensor, Tensor], layer: int
    ) -> Tensor:
        return self._wait(self._fused(new_tokens, angles, layer))


def _unchanged(attend: Attend) -> Attend:
    return attend


def phase(scheduled: Sequence[ScheduledRequest]) -> Range:
    """Name of a piece in a trace: prefill if it holds a part of a prompt, verify if it holds drafts, else decode."""
    name = Range.DECODE
    for item in scheduled:
        if item.num_tokens > 1:
            if item.num_tokens > 1 + len(item.draft_token_ids):
                return Range.PREFILL
            name = Range.VERIFY
    return name
