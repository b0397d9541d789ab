from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from torch import Tensor  # noqa: E402

from engine.execution.penalties import SeenTokens  # noqa: E402
from engine.execution.random_numbers import Purpose, exponential, uniform  # noqa: E402
from engine.execution.sampler import SamplingRows, greedy, pack_rows, probabilities, sample, top_logprobs  # noqa: E402
from engine.execution.staging import HostStaging  # noqa: E402
from engine.sampling_params import SamplingParams  # noqa: E402

VOCAB = 8
LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0, -4.0])


def rows_for(params: list[SamplingParams], seeds: list[int], vocab: int = VOCAB) -> SamplingRows:
    return pack_rows(params, seeds, [10] * len(params), vocab, HostStaging())


def draw_many(params: SamplingParams, count: int = 20_000) -> Tensor:
    """Share of draws of each token over many seeds."""
    rows = rows_for([params] * count, list(range(count)))
    tokens = sample(LOGITS.expand(count, VOCAB), rows)
    shares: Tensor = torch.bincount(tokens, minlength=VOCAB) / count
    return shares


def chi_square(shares: Tensor, probs: Tensor, count: int) -> float:
    expected = probs[probs > 0] * count
    return float(((shares[probs > 0] * count - expected) ** 2 / expected).sum())


def test_greedy_takes_the_first_of_equal_logits() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0], [5.0, 5.0, 5.0]], dtype=torch.bfloat16)
    assert greedy(logits).tolist() == [1, 0]


def test_draws_follow_the_softmax_with_temperature() -> None:
    probs = (LOGITS / 1.5).softmax(-1)
    # 24.3 is the 99.9th percentile of chi-square with 7 degrees of freedom.
    assert chi_square(draw_many(SamplingParams(temperature=1.5)), probs, 20_000) < 24.3


def test_top_k_keeps_the_k_most_probable_tokens() -> None:
    probs = probabilities(LOGITS[None], rows_for([SamplingParams(top_k=3)], [0]))[0]
    expected = torch.zeros(VOCAB)
    expected[:3] = LOGITS[:3].softmax(-1)
    torch.testing.assert_close(probs, expected)


def test_top_p_keeps_the_smallest_set_that_reaches_its_share() -> None:
    full = LOGITS.softmax(-1)
    limit = float(full[:2].sum()) + 1e-4
    probs = probabilities(LOGITS[None], rows_for([SamplingParams(top_p=limit)], [0]))[0]
    assert (probs > 0).tolist() == [True, True, True, False, False, False, False, False]


def test_top_p_keeps_the_best_token_even_if_its_share_is_smaller() -> None:
    probs = probabilities(LOGITS[None], rows_for([SamplingParams(top_p=1e-6)], [0]))[0]
    assert probs.tolist() == [1.0, *[0.0] * 7]


def test_min_p_drops_tokens_far_below_the_best() -> None:
    full = LOGITS.softmax(-1)
    probs = probabilities(LOGITS[None], rows_for([SamplingParams(min_p=0.3)], [0]))[0]
    kept = full >= 0.3 * full.max()
    torch.testing.assert_close(probs, torch.where(kept, full, 0.0) / full[kept].sum())


def test_greedy_and_sampled_requests_share_a_batch() -> None:
    params = [SamplingParams(temperature=0), SamplingParams(temperature=2.0, top_k=4), SamplingParams(temperature=0)]
    tokens = sample(LOGITS.expand(3, VOCAB), rows_for(params, [1, 2, 3]))
    assert tokens[0] == tokens[2] == 0
    assert tokens[1] < 4


def test_a_seed_gives_the_same_token_whatever_else_is_in_the_batch() -> None:
    torch.manual_seed(0)
    logits = torch.randn(5, 300)
    params = [SamplingParams(temperature=1.0)] * 5
    together = sample(logits, rows_for(params, [7, 8, 9, 10, 11], 300))
    alone = [int(sample(logits[i : i + 1], rows_for([params[i]], [7 + i], 300))) for i in range(5)]
    assert together.tolist() == alone


def test_random_numbers_are_uniform_and_differ_by_seed_position_and_purpose() -> None:
    seeds, positions = torch.tensor([1, 1, 2, 1]), torch.tensor([5, 6, 5, 5])
    numbers = uniform(seeds, positions, Purpose.SAMPLE, 50_000)
    assert 0 < float(numbers.min()) < 1e-4
    assert 1 - 1e-4 < float(numbers.max()) < 1
    torch.testing.assert_close(numbers.mean(-1), torch.full((4,), 0.5), atol=0.006, rtol=0)
    torch.testing.assert_close(numbers.var(-1), torch.full((4,), 1 / 12), atol=0.003, rtol=0)
    correlation = torch.corrcoef(torch.cat([numbers[:3], uniform(seeds[3:], positions[3:], Purpose.ACCEPT, 50_000)]))
    assert float((correlation - torch.eye(4)).abs().max()) < 0.02
    assert torch.equal(numbers[0], numbers[3])


def test_exponential_numbers_have_mean_one() -> None:
    numbers = exponential(torch.tensor([3]), torch.tensor([1]), Purpose.DRAFT, 100_000)
    assert abs(float(numbers.mean()) - 1) < 0.02


def test_logprobs_are_those_of_the_unchanged_logits() -> None:
    chosen, best, ids = top_logprobs(LOGITS[None], torch.tensor([3]), 2)
    expected = LOGITS.log_softmax(-1)
    torch.testing.assert_close(chosen[0], expected[3])
    assert ids.tolist() == [[0, 1]]
    torch.testing.assert_close(best[0], expected[:2])


def test_penalties_follow_their_definitions() -> None:
    seen = SeenTokens(num_slots=2, vocab_size=VOCAB, device=torch.device("cpu"))
    seen.start(1, prompt=[0, 7], output=[2, 2])
    seen.add(torch.tensor([1]), torch.tensor([3]))
    params = SamplingParams(repetition_penalty=2.0, frequency_penalty=0.5, presence_penalty=0.25)
    penalised = seen.apply(LOGITS[None], torch.tensor([1]), rows_for([params], [0]))[0]
    expected = LOGITS.clone()
    expected[0] = 2.0 / 2
    expected[7] = -4.0 * 2
    expected[2] = 0.5 / 2 - 2 * 0.5 - 0.25
    expected[3] = 0.0 / 2 - 0.5 - 0.25
    torch.testing.assert_close(penalised, expected)


def test_a_slot_forgets_the_request_before() -> None:
    seen = SeenTokens(num_slots=1, vocab_size=VOCAB, device=torch.device("cpu"))
    seen.start(0, prompt=[1], output=[2])
    seen.start(0, prompt=[], output=[])
    rows = rows_for([SamplingParams(repetition_penalty=2.0, presence_penalty=1.0)], [0])
    assert torch.equal(seen.apply(LOGITS[None], torch.tensor([0]), rows)[0], LOGITS)
