import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from torch import Tensor  # noqa: E402

from engine.model import moe  # noqa: E402
from engine.model.moe import Experts, GroupedExperts, LoopedExperts, gate_at_once, gate_in_rounds  # noqa: E402
from engine.model.operators import REFERENCE  # noqa: E402

HIDDEN, INNER = 32, 48


def weights(num_experts: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    gate_up = torch.randn(num_experts, 2 * INNER, HIDDEN, generator=generator) * 0.2
    down = torch.randn(num_experts, HIDDEN, INNER, generator=generator) * 0.2
    return gate_up, down


def route(num_tokens: int, num_experts: int, top_k: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x_TD = torch.randn(num_tokens, HIDDEN, generator=generator)
    logits = torch.randn(num_tokens, num_experts, generator=generator)
    return x_TD, *gate_at_once(logits, top_k, is_renormalised=True)


@settings(max_examples=30, deadline=None)
@given(num_tokens=st.integers(1, 40), num_experts=st.integers(1, 9), top_k=st.integers(1, 4), seed=st.integers(0, 999))
def test_grouped_and_looped_experts_say_the_same(num_tokens: int, num_experts: int, top_k: int, seed: int) -> None:
    x_TD, weights_TK, experts_TK = route(num_tokens, num_experts, min(top_k, num_experts), seed)
    kept = weights(num_experts, seed)
    grouped = GroupedExperts(*kept, 0, num_experts, REFERENCE)(x_TD, weights_TK, experts_TK)
    looped = LoopedExperts(*kept, 0, num_experts, REFERENCE)(x_TD, weights_TK, experts_TK)
    torch.testing.assert_close(grouped, looped, atol=1e-5, rtol=1e-5)


def test_grouped_experts_without_grouped_products_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x_TD, weights_TK, experts_TK = route(17, 6, 2, seed=3)
    experts = GroupedExperts(*weights(6, 3), 0, 6, REFERENCE)
    at_once = experts(x_TD, weights_TK, experts_TK)
    monkeypatch.delattr(torch.nn.functional, "grouped_mm")
    assert not moe.has_grouped_product(x_TD)
    torch.testing.assert_close(experts(x_TD, weights_TK, experts_TK), at_once, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("kind", [GroupedExperts, LoopedExperts])
def test_experts_shared_out_over_two_places_add_up_to_the_whole(kind: type[Experts]) -> None:
    x_TD, weights_TK, experts_TK = route(25, 8, 3, seed=1)
    gate_up, down = weights(8, 1)
    whole = kind(gate_up, down, 0, 8, REFERENCE)(x_TD, weights_TK, experts_TK)
    parts = [
        kind(gate_up[begin:end], down[begin:end], begin, 8, REFERENCE)(x_TD, weights_TK, experts_TK)
        for begin, end in ((0, 3), (3, 8))
    ]
    torch.testing.assert_close(parts[0] + parts[1], whole, atol=1e-5, rtol=1e-5)


def test_answer_for_a_token_does_not_depend_on_the_rest_of_the_batch() -> None:
    x_TD, weights_TK, experts_TK = route(30, 4, 2, seed=5)
    experts = GroupedExperts(*weights(4, 5), 0, 4, REFERENCE)
    together = experts(x_TD, weights_TK, experts_TK)
    backwards = experts(x_TD.flip(0), weights_TK.flip(0), experts_TK.flip(0)).flip(0)
    torch.testing.assert_close(backwards, together, atol=1e-6, rtol=1e-6)


@settings(max_examples=30, deadline=None)
@given(
    num_tokens=st.integers(1, 30),
    num_experts=st.integers(1, 16),
    top_k=st.integers(1, 8),
    is_renormalised=st.booleans(),
    seed=st.integers(0, 999),
)
def test_both_gates_choose_the_same_experts(
    num_tokens: int, num_experts: int, top_k: int, is_renormalised: bool, seed: int
) -> None:
    logits_TE = torch.randn(num_tokens, num_experts, generator=torch.Generator().manual_seed(seed))
    top_k = min(top_k, num_experts)
    weights_TK, experts_TK = gate_at_once(logits_TE, top_k, is_renormalised)
    slow_weights_TK, slow_experts_TK = gate_in_rounds(logits_TE, top_k, is_renormalised)
    assert torch.equal(experts_TK, slow_experts_TK)
    torch.testing.assert_close(weights_TK, slow_weights_TK)


def test_gate_in_rounds_runs_many_more_operations() -> None:
    logits_TE = torch.randn(8, 16)
    counts = []
    for gate in (gate_at_once, gate_in_rounds):
        with torch.profiler.profile() as profile:
            gate(logits_TE, 4, True)
        counts.append(sum(event.name.startswith("aten::") for event in profile.events()))
    assert counts[1] > 5 * counts[0]


def test_looped_experts_count_their_visits() -> None:
    x_TD, weights_TK, experts_TK = route(5, 6, 2, seed=0)
    experts = LoopedExperts(*weights(6, 0), 0, 6, REFERENCE)
    experts(x_TD, weights_TK, experts_TK)
    experts(x_TD, weights_TK, experts_TK)
    assert experts.num_visits == 12
