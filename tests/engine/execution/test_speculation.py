"""Speculation changes how fast tokens come, never which ones (greedy) or how they are distributed (sampled)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from torch import Tensor  # noqa: E402

from engine import LLM, SamplingParams  # noqa: E402
from engine.execution.proposals import NgramProposer, Speculating  # noqa: E402
from engine.execution.random_numbers import Purpose, exponential  # noqa: E402
from engine.execution.sampler import pack_rows, probabilities, verify  # noqa: E402
from engine.execution.staging import HostStaging  # noqa: E402
from tests.support.tiny_models import make_model, save_model  # noqa: E402

VOCAB = 6
COUNT = 30_000
# 99.9th percentile of chi-square with 5 degrees of freedom.
LIMIT_5 = 20.5


def chi_square(observed: Tensor, probs: Tensor) -> float:
    expected = probs * observed.sum()
    return float(((observed - expected) ** 2 / expected).sum())


def verified(target: Tensor, draft: Tensor | None, params: SamplingParams) -> Tensor:
    """Counts of tokens kept at one place, over many seeds; without a distribution the draft is always token 2."""
    rows = pack_rows([params] * COUNT, list(range(COUNT)), [4] * COUNT, VOCAB, HostStaging())
    if draft is None:
        drafts = torch.full((COUNT,), 2)
        draft_probs = torch.nn.functional.one_hot(drafts, VOCAB).float()
    else:
        draft_probs = probabilities(draft.expand(COUNT, VOCAB), rows)
        race = exponential(rows.seeds_R, rows.positions_R, Purpose.DRAFT, VOCAB)
        drafts = (draft_probs / race).argmax(-1)
    accepted, tokens = verify(target.expand(COUNT, VOCAB), rows, drafts, draft_probs)
    assert 0 < int(accepted.sum()) < COUNT
    counts: Tensor = torch.bincount(torch.where(accepted, drafts, tokens), minlength=VOCAB).float()
    return counts


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.6])
def test_drawn_drafts_leave_the_distribution_of_the_target(temperature: float) -> None:
    torch.manual_seed(3)
    target, draft = torch.randn(2, VOCAB)
    counts = verified(target, draft, SamplingParams(temperature=temperature))
    assert chi_square(counts, (target / temperature).softmax(-1)) < LIMIT_5


def test_guessed_drafts_leave_the_distribution_of_the_target() -> None:
    torch.manual_seed(4)
    target = torch.randn(VOCAB)
    assert chi_square(verified(target, None, SamplingParams(temperature=1.0)), target.softmax(-1)) < LIMIT_5


def test_cut_distributions_stay_cut() -> None:
    torch.manual_seed(5)
    target, draft = torch.randn(2, VOCAB)
    counts = verified(target, draft, SamplingParams(temperature=1.0, top_k=3))
    kept = target.topk(3).indices
    assert set(counts.nonzero().flatten().tolist()) == set(kept.tolist())
    assert chi_square(counts[kept], target[kept].softmax(-1)) < LIMIT_5


def test_taking_the_draft_without_the_rule_would_be_noticed() -> None:
    torch.manual_seed(3)
    target, draft = torch.randn(2, VOCAB)
    counts = verified(draft, target, SamplingParams(temperature=1.0))
    assert chi_square(counts, target.softmax(-1)) > 10 * LIMIT_5


def test_greedy_rows_accept_exactly_the_best_token() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [0.0, 2.0, 1.0], [3.0, 0.0, 1.0]])
    rows = pack_rows([SamplingParams(temperature=0)] * 3, [1, 2, 3], [0, 0, 0], 3, HostStaging())
    drafts = torch.tensor([1, 2, 0])
    probs = torch.nn.functional.one_hot(drafts, 3).float() * torch.tensor([[1.0], [1.0], [0.0]])
    accepted, tokens = verify(logits, rows, drafts, probs)
    assert accepted.tolist() == [True, False, False]
    assert tokens[1:].tolist() == [1, 0]


@pytest.mark.parametrize("speculate", ["ngram", "draft"])
def test_sampled_pairs_of_tokens_are_distributed_as_without_speculation(speculate: str, tmp_path: Path) -> None:
    """Whole engine, vocabulary of 5: 1,500 sampled answers of three tokens, against their exact probabilities."""
    small = {"vocab_size": 5, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
    model = make_model("llama", seed=2, **small)
    folder = save_model(model, tmp_path / "target")
    draft = save_model(make_model("llama", seed=9, num_hidden_layers=1, **small), tmp_path / "draft")
    option = "ngram" if speculate == "ngram" else f"draft:{draft}"
    llm = LLM(str(folder), device="cpu", dtype="float32", speculate=option, ngram_min=1, num_draft_tokens=3)
    prompt = [0, 1, 2, 3, 4, 1, 0, 2, 2, 3]
    params = [SamplingParams(max_new_tokens=3, temperature=0.8, seed=seed) for seed in range(1500)]
    answers = llm.generate([prompt] * len(params), params)
    assert llm.core.counters.drafted > llm.core.counters.accepted > 0
    seen = Counter(answer.token_ids for answer in answers)
    exact = _exact_answers(model, prompt, temperature=0.8, length=3)
    counts = torch.tensor([float(seen[ids]) for ids in exact])
    probs = torch.tensor(list(exact.values()))
    # Answers that are rare are put together, so that each class expects at least five.
    rare = probs * len(params) < 5
    counts = torch.cat([counts[~rare], counts[rare].sum()[None]])
    probs = torch.cat([probs[~rare], probs[rare].sum()[None]])
    degrees = len(probs) - 1
    assert chi_square(counts, probs) < degrees + 4 * (2 * degrees) ** 0.5


def _exact_answers(model: Any, prompt: list[int], temperature: float, length: int) -> dict[tuple[int, ...], float]:
    """Probability of each answer of this length."""
    answers: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        longer: dict[tuple[int, ...], float] = {}
        for ids, chance in answers.items():
            with torch.inference_mode():
                logits = model(torch.tensor([[*prompt, *ids]])).logits[0, -1]
            for token, share in enumerate((logits / temperature).softmax(-1).tolist()):
                longer[(*ids, token)] = chance * share
        answers = longer
    return answers


def test_a_draft_model_equal_to_the_target_is_always_right(tmp_path: Path) -> None:
    folder = save_model(make_model("llama"), tmp_path)
    llm = LLM(str(folder), device="cpu", dtype="float32", speculate=f"draft:{folder}", num_draft_tokens=4)
    params = SamplingParams(max_new_tokens=16, temperature=0, ignore_eos=True)
    llm.generate([[5, 6, 7, 8], [9, 10]], params)
    counters = llm.core.counters
    assert counters.accepted == counters.drafted > 0
    assert counters.steps < 16


def test_ngram_drafts_continue_the_latest_place_where_the_last_tokens_occurred() -> None:
    proposer = NgramProposer(min_size=2)
    params = SamplingParams()
    text = [1, 2, 3, 4, 1, 2, 9, 8, 1, 2]
    proposal = proposer.propose([Speculating(0, text, params, 0, num_drafts=3)])
    assert proposal.token_ids == {0: (9, 8, 1)}
    text += [3]
    assert proposer.propose([Speculating(0, text, params, 0, num_drafts=2)]).token_ids == {0: (4, 1)}


def test_ngram_drafts_are_none_where_nothing_repeats() -> None:
    proposal = NgramProposer(min_size=2).propose([Speculating(0, [1, 2, 3, 4], SamplingParams(), 0, num_drafts=3)])
    assert proposal.token_ids == {0: ()}


def test_requests_with_penalties_are_not_speculated(tmp_path: Path) -> None:
    folder = save_model(make_model("llama"), tmp_path)
    llm = LLM(str(folder), device="cpu", dtype="float32", speculate="ngram", ngram_min=1)
    llm.generate([[5, 6, 5, 6, 5, 6]], SamplingParams(max_new_tokens=8, temperature=0, repetition_penalty=1.3))
    assert llm.core.counters.drafted == 0
