"""Paged attention against a float64 reference, for decode, verification, prefill and mixtures."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra 'engine'")
pytest.importorskip("engine.kernels.jit", reason="needs the extra 'test'", exc_type=ImportError)

import torch

from engine.attention.backend import AttentionSpec
from engine.attention.triton_paged import TritonPagedAttention
from engine.kernels.kv_write import write_kv_reference
from engine.kernels.paged_decode import paged_attention_reference
from engine.kernels.paging import Pages, Scores
from engine.kernels.rotary import rotate_reference
from tests.support.paged_batch import PagedBatch, Shape, angles, make_batch, relative_error

FP8 = torch.float8_e4m3fn
# Rounding of the operands; Triton's interpreter cuts bf16 off instead of rounding it.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}


def attend(batch: PagedBatch, window: int | None, turn: tuple[torch.Tensor, torch.Tensor] | None) -> torch.Tensor:
    """Run the backend on a batch; rotates in the kernel if angles are given."""
    spec = AttentionSpec(scale=batch.q_THD.shape[2] ** -0.5, windows=(window,))
    bound = TritonPagedAttention(spec).bind(batch.kv, batch.meta)
    new_tokens = (batch.q_THD, batch.k_TND, batch.v_TND)
    return bound(*new_tokens, 0) if turn is None else bound.attend_unrotated(new_tokens, turn, 0)


def expect(batch: PagedBatch, window: int | None, turn: tuple[torch.Tensor, torch.Tensor] | None) -> torch.Tensor:
    """What attention should return, in float64."""
    q, k, v = (x.double() for x in (batch.q_THD, batch.k_TND, batch.v_TND))
    if turn is not None:
        q, k = (rotate_reference(x, *(angle.double() for angle in turn)) for x in (q, k))
    pages = Pages(batch.pages.k_BSND.double(), batch.pages.v_BSND.double())
    write_kv_reference(k, v, pages, batch.meta.slot_mapping_T)
    return paged_attention_reference(q, pages, batch.meta, Scores(batch.q_THD.shape[2] ** -0.5, window))


def check(shape: Shape, seed: int, window: int | None = None, *, rotates: bool = False) -> None:
    """Compare the backend with the reference on fresh random numbers."""
    batch = make_batch(shape, seed)
    turn = angles(sum(shape.q_lens), shape.head_dim, seed) if rotates else None
    expected = expect(batch, window, turn)
    out = attend(batch, window, turn)
    assert relative_error(out, expected) < TOLERANCE[shape.dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("page", [16, 24, 64, 256])
def test_decode_equals_the_reference_for_any_page_size_and_dtype(page: int, dtype: torch.dtype) -> None:
    check(Shape((1, 5, 300, 130), (1, 1, 1, 1), page=page, dtype=dtype), seed=page, rotates=True)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"), [(1, 1, 64), (9, 3, 64), (8, 1, 16), (32, 2, 128), (6, 2, 80), (40, 2, 32)]
)
def test_decode_serves_any_division_of_query_heads(heads: int, kv_heads: int, head_dim: int) -> None:
    check(Shape((200, 7), (1, 2), heads=heads, kv_heads=kv_heads, head_dim=head_dim), seed=heads)


@pytest.mark.parametrize("q_len", [2, 5, 16])
def test_several_new_tokens_see_each_other_causally(q_len: int) -> None:
    check(Shape((q_len, 129, 258), (q_len, q_len, 1)), seed=q_len, rotates=True)


def test_new_tokens_may_lie_on_both_sides_of_a_split() -> None:
    check(Shape((133, 260), (9, 9)), seed=3)


def test_padded_requests_give_zeros_and_write_nothing() -> None:
    batch = make_batch(Shape((0, 40, 0), (1, 1, 1)), seed=4)
    k_cache = batch.pages.k_BSND
    before = k_cache.clone()
    out = attend(batch, None, None)
    assert out[0].abs().max() == 0
    assert out[2].abs().max() == 0
    written = (k_cache != before) & ~(k_cache.isnan() & before.isnan())
    assert written.any(dim=(2, 3)).sum() == 1


@pytest.mark.parametrize("page", [16, 48, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_prefill_equals_the_reference(page: int, dtype: torch.dtype) -> None:
    check(Shape((20, 70), (20, 70), page=page, dtype=dtype), seed=page, rotates=True)


def test_a_chunk_of_a_prompt_sees_the_chunks_before_it() -> None:
    check(Shape((90, 60), (30, 20)), seed=5)


@pytest.mark.parametrize("prompt", [40, 100])
def test_prompts_and_decoding_requests_share_a_step(prompt: int) -> None:
    check(Shape((9, prompt, 300, 150, 0), (3, prompt, 1, 2, 1), heads=6), seed=6, rotates=True)


@pytest.mark.parametrize(("num_padded", "window"), [(5, None), (37, 20), (150, None)])
def test_padded_tokens_behind_a_mixed_step_give_zeros_and_write_nothing(num_padded: int, window: int | None) -> None:
    shape = Shape((40, 150, 0, 0), (30, 3, 0, num_padded))
    check(shape, seed=8, window=window, rotates=True)
    batch = make_batch(shape, seed=8)
    k_cache = batch.pages.k_BSND
    before = k_cache.clone()
    assert attend(batch, window, None)[33:].abs().max() == 0
    written = (k_cache != before) & ~(k_cache.isnan() & before.isnan())
    assert written.any(dim=(2, 3)).sum() == 33


@pytest.mark.parametrize("q_lens", [(1, 4), (60, 1)])
def test_a_window_hides_older_tokens(q_lens: tuple[int, int]) -> None:
    check(Shape((300, 180), q_lens), seed=7, window=50)


@pytest.mark.parametrize("q_lens", [(1, 3), (40, 2)])
def test_fp8_pages_are_read_through_their_scales(q_lens: tuple[int, int]) -> None:
    shape = Shape((200, 50), q_lens, dtype=torch.bfloat16, stored=FP8, scales=(0.02, 0.5))
    batch = make_batch(shape, seed=8)
    out = attend(batch, None, None)
    stored = batch.pages
    pages = Pages(stored.k_BSND.float().double(), stored.v_BSND.float().double(), *shape.scales)
    expected = paged_attention_reference(batch.q_THD.double(), pages, batch.meta, Scores(shape.head_dim**-0.5))
    assert relative_error(out, expected) < TOLERANCE[torch.bfloat16]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="Triton 3.9's interpreter loses the carry of FP8 rounding")
@pytest.mark.parametrize("q_lens", [(1, 3), (40, 2)])
def test_fp8_pages_hold_new_tokens_within_one_step_of_the_format(q_lens: tuple[int, int]) -> None:
    shape = Shape((200, 50), q_lens, dtype=torch.bfloat16, stored=FP8, scales=(0.02, 0.5))
    batch = make_batch(shape, seed=8)
    attend(batch, None, None)
    slot = batch.meta.slot_mapping_T
    for cache, new, scale in zip(batch.kv.layer(0), (batch.k_TND, batch.v_TND), shape.scales, strict=True):
        stored = cache[slot // shape.page, slot % shape.page].float() * scale
        exact = new.float().clamp(-448 * scale, 448 * scale)
        # Half a step: three bits of fraction; below 2**-6 the steps no longer shrink.
        assert ((stored - exact).abs() <= exact.abs() / 16 + scale * 2**-10).all()


@pytest.mark.parametrize("q_len", [1, 20])
def test_a_result_does_not_depend_on_the_rest_of_the_batch(q_len: int) -> None:
    together = Shape((300, 45, 600, 70), (q_len, 3, 1, 30))
    batch = make_batch(together, seed=9)
    out = attend(batch, None, None)
    for row in range(4):
        alone = batch.only(row)
        rows = slice(int(batch.meta.cu_q_B1[row]), int(batch.meta.cu_q_B1[row + 1]))
        assert torch.equal(attend(alone, None, None), out[rows])


def test_a_prompt_in_chunks_gives_the_bits_of_a_prompt_at_once() -> None:
    batch = make_batch(Shape((90,), (90,)), seed=10)
    whole = attend(batch, None, None)
    parts = [attend(batch.chunk(first, last), None, None) for first, last in ((0, 30), (30, 70), (70, 90))]
    assert torch.equal(torch.cat(parts), whole)


def test_heads_with_gaps_between_them_are_accepted() -> None:
    batch = make_batch(Shape((20, 30), (1, 2)), seed=11)
    expected = expect(batch, None, None)
    spread = torch.stack((batch.q_THD, batch.q_THD), dim=2)[:, :, 0]
    out = attend(batch.with_queries(spread), None, None)
    assert relative_error(out, expected) < TOLERANCE[torch.float32]


def test_queries_that_do_not_fit_the_pages_are_refused() -> None:
    batch = make_batch(Shape((20,), (1,)), seed=12)
    with pytest.raises(ValueError, match="cannot share pages"):
        attend(batch.with_queries(batch.q_THD[:, :3]), None, None)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_decode_is_captured_once_and_replayed_for_longer_requests() -> None:
    long = Shape((900, 700, 800), (1, 1, 1), heads=8, head_dim=64, dtype=torch.bfloat16)
    batch = make_batch(long, seed=13)
    expected = expect(batch, None, None)
    lengths = batch.meta.seq_lens_B.clone()
    batch.meta.seq_lens_B.copy_(torch.tensor([5, 300, 130]))
    attend(batch, None, None)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attend(batch, None, None)
    out.fill_(torch.nan)
    batch.meta.seq_lens_B.copy_(lengths)
    graph.replay()
    assert relative_error(out, expected) < TOLERANCE[torch.bfloat16]
