import math
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from torch import Tensor  # noqa: E402

from engine.attention.backend import AttentionSpec, KvCache  # noqa: E402
from engine.attention.registry import backend_names, create_backend  # noqa: E402
from engine.errors import ConfigError  # noqa: E402
from engine.model.kv.concat import ConcatKv  # noqa: E402
from engine.model.kv.paged import KvGeometry, PagedKv  # noqa: E402
from tests.support.packed_batch import BlockTables  # noqa: E402

CPU = torch.device("cpu")


def reference_float64(q_HD: Tensor, k_KND: Tensor, v_KND: Tensor, scale: float, window: int | None) -> Tensor:
    """Attention of the last token over K keys, written out in float64 head by head."""
    heads_per_kv = q_HD.shape[0] // k_KND.shape[1]
    out: Tensor = torch.empty(q_HD.shape, dtype=torch.float64)
    first = 0 if window is None else max(0, k_KND.shape[0] - window)
    for head in range(q_HD.shape[0]):
        keys = k_KND[first:, head // heads_per_kv].double()
        values = v_KND[first:, head // heads_per_kv].double()
        weights = torch.softmax(keys @ q_HD[head].double() * scale, dim=0)
        out[head] = weights @ values
    return out


def make_kv(layout: str, geometry: KvGeometry, tables: BlockTables) -> KvCache:
    if layout == "concat":
        return ConcatKv(geometry, tables.num_blocks, tables.block_size)
    return PagedKv(geometry, tables.num_blocks, tables.block_size, geometry.dtype, CPU)


@dataclass(frozen=True)
class Case:
    counts: list[tuple[int, int]]
    block_size: int
    num_kv_heads: int
    heads_per_kv: int
    head_dim: int
    window: int | None
    seed: int


CASES = st.builds(
    Case,
    counts=st.one_of(
        st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)).filter(any), min_size=1, max_size=20),
        st.lists(st.tuples(st.integers(0, 30), st.integers(1, 2)), min_size=16, max_size=40),
    ),
    block_size=st.sampled_from([1, 4, 16, 64]),
    num_kv_heads=st.integers(1, 3),
    heads_per_kv=st.integers(1, 4),
    head_dim=st.sampled_from([8, 16, 48]),
    window=st.sampled_from([None, 1, 5, 100]),
    seed=st.integers(0, 2**16),
)


@pytest.mark.parametrize("backend", ["torch_ref", "eager"])
@pytest.mark.parametrize("layout", ["paged", "contiguous", "concat"])
@settings(max_examples=25, deadline=None)
@given(case=CASES)
def test_backend_equals_float64_attention_on_any_paged_batch(backend: str, layout: str, case: Case) -> None:
    generator = torch.Generator().manual_seed(case.seed)
    spec = AttentionSpec(scale=1 / math.sqrt(case.head_dim), windows=(None, case.window))
    geometry = KvGeometry(range(1, 2), case.num_kv_heads, case.head_dim, torch.float32)
    block_size = case.block_size if layout == "paged" else 40
    tables = BlockTables(len(case.counts), -(-40 // block_size), block_size, case.seed)
    kv = make_kv(layout, geometry, tables)
    attention = create_backend(backend, spec)
    keys = [torch.randn(sum(pair), case.num_kv_heads, case.head_dim, generator=generator) for pair in case.counts]
    values = [torch.randn(key.shape, generator=generator) for key in keys]
    spans_of_passes = ([(0, old) for old, _ in case.counts], [(old, new) for old, new in case.counts])
    for spans in spans_of_passes:
        if not any(count for _, count in spans):
            continue
        num_tokens = sum(count for _, count in spans)
        q_THD = torch.randn(num_tokens, case.num_kv_heads * case.heads_per_kv, case.head_dim, generator=generator)
        k_TND = torch.cat([key[start : start + count] for key, (start, count) in zip(keys, spans, strict=True)])
        v_TND = torch.cat([value[start : start + count] for value, (start, count) in zip(values, spans, strict=True)])
        out_THD = attention.bind(kv, tables.meta(spans))(q_THD, k_TND, v_TND, layer=1)
        row = 0
        for key, value, (start, count) in zip(keys, values, spans, strict=True):
            for end in range(start + 1, start + count + 1):
                wanted = reference_float64(q_THD[row], key[:end], value[:end], spec.scale, case.window)
                torch.testing.assert_close(out_THD[row].double(), wanted, atol=1e-5, rtol=1e-5)
                row += 1


@pytest.mark.parametrize("backend", ["torch_ref", "eager"])
def test_padded_tokens_and_rows_change_nothing(backend: str) -> None:
    spec = AttentionSpec(scale=0.25, windows=(None,))
    geometry = KvGeometry(range(1), 2, 16, torch.float32)
    tables = BlockTables(3, 2, 8)
    spans = [(0, 3), (0, 9)]
    meta = tables.meta(spans)
    torch.manual_seed(0)
    q, k, v = torch.randn(12, 4, 16), torch.randn(12, 2, 16), torch.randn(12, 2, 16)
    kv = PagedKv(geometry, tables.num_blocks, 8, torch.float32, CPU)
    wanted = create_backend(backend, spec).bind(kv, meta)(q, k, v, 0)
    padded = type(meta)(
        cu_q_B1=torch.cat((meta.cu_q_B1, meta.cu_q_B1[-1:])),
        seq_lens_B=torch.cat((meta.seq_lens_B, torch.zeros(1, dtype=torch.int32))),
        block_table_BM=tables.table,
        slot_mapping_T=torch.cat((meta.slot_mapping_T, torch.full((4,), -1))),
        max_q=meta.max_q,
        max_k=meta.max_k,
    )
    other = PagedKv(geometry, tables.num_blocks, 8, torch.float32, CPU)
    longer = [torch.cat((x, torch.full((4, *x.shape[1:]), 7.0))) for x in (q, k, v)]
    out = create_backend(backend, spec).bind(other, padded)(longer[0], longer[1], longer[2], 0)
    torch.testing.assert_close(out[:12], wanted)
    for ours, theirs in zip(other.layer(0), kv.layer(0), strict=True):
        assert torch.equal(ours, theirs)


def test_unknown_backend_is_refused_with_the_list_of_names() -> None:
    with pytest.raises(ConfigError, match=r"flash.*eager, torch_ref, triton_paged, varlen"):
        create_backend("flash", AttentionSpec(scale=1.0, windows=(None,)))


def test_names_are_sorted_and_complete() -> None:
    assert backend_names() == ("eager", "torch_ref", "triton_paged", "varlen")


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a CUDA device")
def test_varlen_says_that_it_needs_cuda() -> None:
    with pytest.raises(ConfigError, match="needs CUDA"):
        create_backend("varlen", AttentionSpec(scale=1.0, windows=(None,)))
