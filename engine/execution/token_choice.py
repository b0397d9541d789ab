"""Which tokens a piece of a step brings: options of its requests, penalties, drafts to verify, log probabilities.

Dimensions: R rows of logits in the order of the requests, each with 1 + (number of drafts) rows; V tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch

from engine.execution.penalties import SeenTokens
from engine.execution.proposals import Proposal
from engine.execution.sampler import SamplingRows, greedy, pack_rows, sample, top_logprobs, verify
from engine.tracing import Range, span

if TYPE_CHECKING:
    from torch import Tensor

    from engine.execution.forward import PassOutput
    from engine.execution.staging import Staging
    from engine.sampling_params import SamplingParams
    from engine.scheduling.plan import ScheduledRequest
    from engine.scheduling.request import Request


@dataclass(frozen=True, slots=True)
class Submission:
    """A request as the runner knows it: the scheduler's record, and how its tokens are chosen.

    `is_plain` says that its tokens are the most probable ones, without penalties.
    """

    request: Request
    params: SamplingParams
    seed: int
    is_plain: bool = field(init=False)

    def __post_init__(self) -> None:
        """Find out once, not in every step, whether the most probable token is all that is wanted."""
        object.__setattr__(self, "is_plain", self.params.is_greedy and not self.params.has_penalties)


@dataclass(frozen=True, slots=True)
class Choice:
    """Tokens of the rows of a piece, on the device.

    Attributes:
        tokens_R: int64; for a row before a draft the token to take if the draft is rejected.
        accepted_R: bool, whether the draft behind a row is kept; None if a draft is kept exactly where it equals the
            token of its row (greedy), which the host can tell.
        logprobs: of the tokens kept (R), the best (R, K) and their ids (R, K); None if no request wants them.
    """

    tokens_R: Tensor
    accepted_R: Tensor | None
    logprobs: tuple[Tensor, Tensor, Tensor] | None


class TokenChoice:
    """Chooses tokens for the requests in the slots."""

    def __init__(self, num_slots: int, vocab_size: int, device: torch.device, staging: Staging) -> None:
        self._num_slots = num_slots
        self._vocab_size = vocab_size
        self._device = device
        self._staging = staging
        self._seen: SeenTokens | None = None

    def take_slot(self, submission: Submission, slot: int) -> None:
        """A request holds a slot from now on: count what it has seen, if that matters to it."""
        if not submission.params.has_penalties:
            return
        if self._seen is None:
            self._seen = SeenTokens(self._num_slots, self._vocab_size, self._device)
        request = submission.request
        num_prompt = len(request.prompt_token_ids)
        self._seen.start(slot, request.token_ids[:num_prompt], request.token_ids[num_prompt:])

    def choose(
        self, output: PassOutput, sampling: Sequence[tuple[ScheduledRequest, Submission]], proposal: Proposal
    ) -> Choice:
        """Choose the tokens of a piece.

        Args:
            output: of its forward pass, with the rows of the requests in `sampling`, in order.
            sampling: the requests that sample, at least one.
            proposal: where their drafts come from.
        """
        with span(Range.SAMPLING, len(sampling)):
            if all(submission.is_plain for _, submission in sampling):
                tokens_R = greedy(output.logits_RV) if output.best_R is None else output.best_R
                return Choice(tokens_R, None, _logprobs(output.logits_RV, tokens_R, sampling))
            return self._draw(output.logits_RV, output.row_slots_R, sampling, proposal)

    def _draw(
        self,
        logits_RV: Tensor,
        row_slots_R: Tensor,
        sampling: Sequence[tuple[ScheduledRequest, Submission]],
        proposal: Proposal,
    ) -> Choice:
        rows = self._rows(sampling)
        penalised_RV = logits_RV
        if self._seen is not None and any(submission.params.has_penalties for _, submission in sampling):
            penalised_RV = self._seen.apply(logits_RV, row_slots_R, rows)
        accepted_R = None
        if any(item.draft_token_ids for item, _ in sampling):
            drafts_R, probs_RV = self._drafts(sampling, proposal)
            accepted_R, tokens_R = verify(penalised_RV, rows, drafts_R, probs_RV)
            kept_R = torch.where(accepted_R, drafts_R, tokens_R)
        else:
            kept_R = tokens_R = sample(penalised_RV, rows)
        if self._seen is not None:
            self._seen.add(row_slots_R, tokens_R)
        return Choice(tokens_R, accepted_R, _logprobs(logits_RV, kept_R, sampling))

    def _rows(self, sampling: Sequence[tuple[ScheduledRequest, Submission]]) -> SamplingRows:
        params: list[SamplingParams] = []
        seeds: list[int] = []
        positions: list[int] = []
        for item, submission in sampling:
            num_rows = 1 + len(item.draft_token_ids)
            end = item.start + item.num_tokens
            params += [submission.params] * num_rows
            seeds += [submission.seed] * num_rows
            positions += range(end - num_rows + 1, end + 1)
        return pack_rows(params, seeds, positions, self._vocab_size, self._staging)

    def _drafts(
        self, sampling: Sequence[tuple[ScheduledRequest, Submission]], proposal: Proposal
    ) -> tuple[Tensor, Tensor]:
        """Draft behind each row (0 where there is none), and its distribution (all 0 where there is none)."""
        drafts = [[*item.draft_token_ids, 0] for item, _ in sampling]
        is_draft = [[1] * len(item.draft_token_ids) + [0] for item, _ in sampling]
        numbers = np.array([list(chain(*drafts)), list(chain(*is_draft))], dtype=np.int64)
        drafts_R, is_draft_R = self._staging.to_device((numbers,))[0].unbind(0)
        probs_RV = torch.zeros(len(drafts_R), self._vocab_size, dtype=torch.float32, device=self._device)
        probs_RV.scatter_(1, drafts_R[:, None], is_draft_R[:, None].float())
        _fill_drawn(probs_RV, sampling, proposal.probs)
        return drafts_R, probs_RV


def _fill_drawn(
    probs_RV: Tensor, sampling: Sequence[tuple[ScheduledRequest, Submission]], drawn: Mapping[int, Tensor]
) -> None:
    row = 0
    for item, _ in sampling:
        num_drafts = len(item.draft_token_ids)
        if item.request_id in drawn:
            probs_RV[row : row + num_drafts] = drawn[item.request_id][:num_drafts]
        row += num_drafts + 1


def _logprobs(
    logits_RV: Tensor, tokens_R: Tensor, sampling: Sequence[tuple[ScheduledRequest, Submission]]
) -> tuple[Tensor, Tensor, Tensor] | None:
    wanted = [submission.params.logprobs for _, submission in sampling if submission.params.logprobs is not None]
    return top_logprobs(logits_RV, tokens_R, max(wanted)) if wanted else None
