"""Penalties on tokens that a request has seen: counts kept on the device, by slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from engine.execution.sampler import SamplingRows


class SeenTokens:
    """How often each request has seen each token: S slots and one for padding, V tokens.

    The two tables take (S + 1) * V * 5 bytes; they exist only once a request with a penalty has come.
    """

    def __init__(self, num_slots: int, vocab_size: int, device: torch.device) -> None:
        self._in_output_SV = torch.zeros(num_slots + 1, vocab_size, dtype=torch.int32, device=device)
        self._in_prompt_SV = torch.zeros(num_slots + 1, vocab_size, dtype=torch.bool, device=device)

    def start(self, slot: int, prompt: Sequence[int], output: Sequence[int]) -> None:
        """Count the tokens of a request that takes a slot; a request that was preempted brings its output."""
        device = self._in_output_SV.device
        self._in_prompt_SV[slot] = False
        self._in_prompt_SV[slot, torch.tensor(prompt, dtype=torch.int64, device=device)] = True
        self._in_output_SV[slot] = 0
        if output:
            ids_T = torch.tensor(output, dtype=torch.int64, device=device)
            ones_T = torch.ones_like(ids_T, dtype=torch.int32)
            self._in_output_SV[slot].index_put_((ids_T,), ones_T, accumulate=True)

    def add(self, slots_R: Tensor, tokens_R: Tensor) -> None:
        """Count one new token for each slot."""
        ones_R = torch.ones_like(tokens_R, dtype=torch.int32)
        self._in_output_SV.index_put_((slots_R, tokens_R), ones_R, accumulate=True)

    def apply(self, logits_RV: Tensor, slots_R: Tensor, rows: SamplingRows) -> Tensor:
        """Return float32 logits with repetition, then frequency and presence penalties taken off."""
        counts_RV = self._in_output_SV[slots_R]
        is_seen_RV = (counts_RV > 0) | self._in_prompt_SV[slots_R]
        logits_RV = logits_RV.float()
        factor_R1 = rows.repetition_R[:, None]
        penalised_RV = torch.where(logits_RV > 0, logits_RV / factor_R1, logits_RV * factor_R1)
        logits_RV = torch.where(is_seen_RV, penalised_RV, logits_RV)
        logits_RV = logits_RV - counts_RV * rows.frequency_R[:, None]
        return logits_RV - (counts_RV > 0) * rows.presence_R[:, None]
