"""Drafts by a smaller model with a KV cache of its own.

Dimensions: R requests, V tokens of the vocabulary, K drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from engine.execution.forward import ForwardPass, PassOutput
from engine.execution.proposals import Proposal, Speculating
from engine.execution.random_numbers import Purpose, exponential
from engine.execution.sampler import greedy, pack_rows, probabilities
from engine.execution.slots import SlotTable
from engine.scheduling.plan import ScheduledRequest
from engine.tracing import Range, span

if TYPE_CHECKING:
    from torch import Tensor

    from engine.execution.counters import Counters
    from engine.execution.staging import Staging


class DraftModelProposer:
    """Runs the small model K times ahead of the large one.

    Its KV needs no scheduler: every slot owns one block as long as the longest request. Before it drafts it reads the
    tokens that it has not seen: the whole prompt at first, later the one or two that the large model has added. KV of
    rejected drafts is overwritten by the tokens that came instead.
    """

    def __init__(
        self, forward: ForwardPass, last_tokens: Tensor, staging: Staging, counters: Counters, max_chunk: int
    ) -> None:
        """Keep the parts.

        Args:
            forward: pass of the small model over a cache with one block per slot.
            last_tokens: int64, buffer of last tokens by slot, with one more slot for padding; shared with `forward`.
            staging: brings numbers to the device.
            counters: counts passes.
            max_chunk: tokens in a pass at most.
        """
        self._forward = forward
        self._last_tokens = last_tokens
        self._staging = staging
        self._counters = counters
        self._max_chunk = max_chunk
        self._slots = SlotTable(len(last_tokens) - 1)
        self._num_computed: dict[int, int] = {}

    def forget(self, request_id: int) -> None:
        """See `Proposer`."""
        self._slots.release(request_id)
        self._num_computed.pop(request_id, None)

    @torch.inference_mode()
    def propose(self, requests: Sequence[Speculating]) -> Proposal:
        """See `Proposer`; all requests get as many drafts as the one that wants most, and keep what they want."""
        if not requests:
            return Proposal()
        with span(Range.DRAFT, len(requests)):
            slots, arrived = self._slots.assign([request.request_id for request in requests])
            self._num_computed.update(dict.fromkeys(arrived, 0))
            self._read_ahead(requests, slots)
            return self._draft(requests, slots)

    def _read_ahead(self, requests: Sequence[Speculating], slots: Sequence[int]) -> None:
        """Feed what no draft pass can hold: long stretches, request by request, up to the last chunk of each."""
        room = max(1, self._max_chunk // len(requests))
        for request, slot in zip(requests, slots, strict=True):
            while len(request.token_ids) - self._num_computed[request.request_id] > room:
                start = self._num_computed[request.request_id]
                chunk = tuple(request.token_ids[start : min(start + self._max_chunk, len(request.token_ids) - 1)])
                self._run([_feed(request.request_id, slot, start, chunk, samples=False)], [slot])
                self._num_computed[request.request_id] += len(chunk)

    def _draft(self, requests: Sequence[Speculating], slots: Sequence[int]) -> Proposal:
        first = [self._unseen(request, slot) for request, slot in zip(requests, slots, strict=True)]
        drawn, probs = [], []
        items = first
        for step in range(max(request.num_drafts for request in requests)):
            output = self._run(items, slots)
            tokens_R, probs_RV = self._choose(output.logits_RV, requests, step)
            self._last_tokens.index_copy_(0, output.row_slots_R, tokens_R)
            drawn.append(tokens_R)
            probs.append(probs_RV)
            items = [_continue(item, slot) for item, slot in zip(items, slots, strict=True)]
        self._counters.syncs += 1
        token_ids = torch.stack(drawn, dim=1).tolist()
        for request in requests:
            self._num_computed[request.request_id] = len(request.token_ids)
        return Proposal(
            {
                request.request_id: tuple(ids[: request.num_drafts])
                for request, ids in zip(requests, token_ids, strict=True)
            },
            _by_request(requests, probs),
        )

    def _unseen(self, request: Speculating, slot: int) -> ScheduledRequest:
        start = min(self._num_computed[request.request_id], len(request.token_ids) - 1)
        return _feed(request.request_id, slot, start, tuple(request.token_ids[start:]), samples=True)

    def _choose(self, logits_RV: Tensor, requests: Sequence[Speculating], step: int) -> tuple[Tensor, Tensor | None]:
        """One draft for each request, and the distributions unless all are greedy."""
        if all(request.params.is_greedy for request in requests):
            return greedy(logits_RV), None
        positions = [len(request.token_ids) + step for request in requests]
        rows = pack_rows(
            [request.params for request in requests],
            [request.seed for request in requests],
            positions,
            logits_RV.shape[-1],
            self._staging,
        )
        probs_RV = probabilities(logits_RV, rows)
        race_RV = exponential(rows.seeds_R, rows.positions_R, Purpose.DRAFT, logits_RV.shape[-1])
        return (probs_RV / race_RV).argmax(dim=-1), probs_RV

    def _run(self, items: Sequence[ScheduledRequest], slots: Sequence[int]) -> PassOutput:
        self._counters.draft_passes += 1
        return self._forward.run(items, slots)


def _feed(request_id: int, slot: int, start: int, token_ids: tuple[int, ...], samples: bool) -> ScheduledRequest:
    return ScheduledRequest(request_id, start, len(token_ids), (slot,), token_ids, (), samples)


def _continue(item: ScheduledRequest, slot: int) -> ScheduledRequest:
    """The pass after this one feeds the token just drawn, which only the device knows."""
    return ScheduledRequest(item.request_id, item.start + item.num_tokens, 1, (slot,), (), (), samples=True)


def _by_request(requests: Sequence[Speculating], probs: Sequence[Tensor | None]) -> dict[int, Tensor]:
    known = [probs_RV for probs_RV in probs if probs_RV is not None]
    if not known:
        return {}
    stacked_RKV = torch.stack(known, dim=1)
    return {
        request.request_id: stacked_RKV[index, : request.num_drafts]
        for index, request in enumerate(requests)
        if not request.params.is_greedy
    }
