"""Mixture of experts: choose experts for each token, run them, add up what they say.

Two ways to do each half. Healthy: one selection over all experts, one grouped product over all experts. Ill, kept on
purpose: a selection in rounds of small steps, and a loop over experts that waits for the device at each of them.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.model.operators import Operators
from engine.tracing import Range, span

Gate = Callable[[Tensor, int, bool], tuple[Tensor, Tensor]]


def gate_at_once(logits_TE: Tensor, top_k: int, is_renormalised: bool) -> tuple[Tensor, Tensor]:
    """Choose the `top_k` best experts of each token and their weights.

    Args:
        logits_TE: fp32 router scores.
        top_k: K.
        is_renormalised: divide the chosen probabilities by their sum.

    Returns:
        Weights (T, K) in fp32 and expert numbers (T, K) in int64.

    Renormalised probabilities are the softmax of the chosen logits alone, which saves the softmax over all E.
    """
    if is_renormalised:
        chosen, experts_TK = logits_TE.topk(top_k, dim=-1)
        return chosen.softmax(-1), experts_TK
    weights_TK, experts_TK = logits_TE.softmax(-1).topk(top_k, dim=-1)
    return weights_TK, experts_TK


def gate_in_rounds(logits_TE: Tensor, top_k: int, is_renormalised: bool) -> tuple[Tensor, Tensor]:
    """The same choice as `gate_at_once`, one expert a round: K times as many small steps over all E."""
    probabilities = logits_TE.softmax(-1)
    left = probabilities.clone()
    weights, experts = [], []
    for _ in range(top_k):
        best = left.argmax(-1, keepdim=True)
        taken = functional.one_hot(best.squeeze(-1), left.shape[-1]).to(left.dtype)
        weights.append((probabilities * taken).sum(-1, keepdim=True))
        experts.append(best)
        left = left.masked_fill(taken.bool(), -1.0)
    weights_TK = torch.cat(weights, dim=-1)
    if is_renormalised:
        weights_TK = weights_TK / weights_TK.sum(-1, keepdim=True)
    return weights_TK, torch.cat(experts, dim=-1)


class Experts(nn.Module):
    """Weights of the experts held here, which may be a range of the layer's experts."""

    def __init__(self, gate_up_ECD: Tensor, down_EDI: Tensor, first: int, num_total: int, operators: Operators) -> None:
        """Keep the weights.

        Args:
            gate_up_ECD: gate rows, then up rows, of each expert (C = 2 I).
            down_EDI: down projections.
            first: number of the first expert here.
            num_total: experts of the layer, here and elsewhere.
            operators: elementwise steps.
        """
        super().__init__()
        self.gate_up = nn.Parameter(gate_up_ECD, requires_grad=False)
        self.down = nn.Parameter(down_EDI, requires_grad=False)
        self.first = first
        self.num_total = num_total
        self._operators = operators

    @property
    def num_here(self) -> int:
        """Experts whose weights are here, E."""
        return self.gate_up.shape[0]

    def _run_one(self, expert: int, x_TD: Tensor) -> Tensor:
        inner = self._operators.silu_mul(functional.linear(x_TD, self.gate_up[expert]))
        return functional.linear(inner, self.down[expert])


class GroupedExperts(Experts):
    """All experts in two grouped products; where torch has none for the device and dtype, sorted slices in a loop."""

    def forward(self, x_TD: Tensor, weights_TK: Tensor, experts_TK: Tensor) -> Tensor:
        """Add up the weighted answers of the experts here; experts elsewhere contribute zero.

        Rows are sorted by expert and put back before the sum over K, so that the order of the additions does not
        depend on which other tokens are in the batch.

        Args:
            x_TD: normed tokens.
            weights_TK: fp32 weights of the chosen experts.
            experts_TK: int64 numbers of the chosen experts in the whole layer.

        Returns:
            out_TD in the dtype of x.

        Cost: no synchronisation with grouped products; one per call without them.
        """
        num_tokens, top_k = experts_TK.shape
        local = (experts_TK.flatten() - self.first).remainder(self.num_total)
        sorted_experts, order = local.sort(stable=True)
        numbers = torch.arange(self.num_here, device=local.device)
        ends_E = torch.searchsorted(sorted_experts, numbers, right=True)
        rows = self._run_sorted(x_TD.index_select(0, order // top_k), ends_E)
        if self.num_here < self.num_total:
            rows = rows.masked_fill((sorted_experts >= self.num_here)[:, None], 0.0)
        answers = torch.empty_like(rows).index_copy_(0, order, rows).view(num_tokens, top_k, -1)
        return (answers * weights_TK[:, :, None]).sum(1).to(x_TD.dtype)

    def _run_sorted(self, rows_RD: Tensor, ends_E: Tensor) -> Tensor:
        if has_grouped_product(rows_RD):
            ends = ends_E.int()
            inner = functional.grouped_mm(rows_RD, self.gate_up.transpose(1, 2), offs=ends)
            return functional.grouped_mm(self._operators.silu_mul(inner), self.down.transpose(1, 2), offs=ends)
        out = torch.zeros_like(rows_RD)
        begin = 0
        for expert, end in enumerate(ends_E.tolist()):
            if end > begin:
                out[begin:end] = self._run_one(expert, rows_RD[begin:end])
            begin = end
        return out


class LoopedExperts(Experts):
    """One expert after the other, each picking its tokens with a wait for the device. The ill variant.

    `num_visits` counts experts visited since the weights were loaded.
    """

    num_visits = 0

    def forward(self, x_TD: Tensor, weights_TK: Tensor, experts_TK: Tensor) -> Tensor:
        """See `GroupedExperts.forward`; E synchronisations and about eight small launches per expert."""
        out_TD = torch.zeros_like(x_TD, dtype=torch.float32)
        for expert in range(self.num_here):
            self.num_visits += 1
            token, place = torch.where(experts_TK == expert + self.first)
            answer = self._run_one(expert, x_TD[token])
            out_TD.index_add_(0, token, answer * weights_TK[token, place, None])
        return out_TD.to(x_TD.dtype)


def has_grouped_product(rows: Tensor) -> bool:
    """Whether torch multiplies groups of such rows in one call: bf16 on CUDA, any float on the CPU."""
    if not hasattr(functional, "grouped_mm"):
        return False
    return rows.device.type == "cpu" or (rows.device.type == "cuda" and rows.dtype == torch.bfloat16)


class MixtureOfExperts(nn.Module):
    """Router and experts in the place of an MLP.

    `num_gate_rounds` counts rounds of `gate_in_rounds` since the weights were loaded; a replayed graph counts nothing.
    """

    num_gate_rounds = 0

    def __init__(self, router_ED: Tensor, experts: Experts, gate: Gate, top_k: int, is_renormalised: bool) -> None:
        """Keep the parts.

        Args:
            router_ED: router weights; kept and applied in fp32, since close scores decide where a token goes.
            experts: those held here.
            gate: turns scores into weights and expert numbers.
            top_k: experts per token.
            is_renormalised: whether their weights are made to add up to 1.
        """
        super().__init__()
        self.router = nn.Parameter(router_ED.float(), requires_grad=False)
        self.experts = experts
        self._gate = gate
        self._top_k = top_k
        self._is_renormalised = is_renormalised

    def forward(self, x_TD: Tensor) -> Tensor:
        """Apply to T tokens."""
        if self._gate is gate_in_rounds:
            self.num_gate_rounds += self._top_k
        with span(Range.MOE_ROUTING):
            logits_TE = functional.linear(x_TD.float(), self.router)
            weights_TK, experts_TK = self._gate(logits_TE, self._top_k, self._is_renormalised)
        out_TD: Tensor = self.experts(x_TD, weights_TK, experts_TK)
        return out_TD
