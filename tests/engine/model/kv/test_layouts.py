import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from torch import dtype as Dtype  # noqa: E402, N812 (a type, here)

from engine.attention.backend import KvCache  # noqa: E402
from engine.errors import ConfigError  # noqa: E402
from engine.model.decoder import Decoder  # noqa: E402
from engine.model.kv.concat import ConcatKv  # noqa: E402
from engine.model.kv.paged import FP8, KvGeometry, PagedKv  # noqa: E402
from engine.model.weights import LoadOptions, load_decoder  # noqa: E402
from tests.support.decoding import draw_prompts, logits_of  # noqa: E402
from tests.support.packed_batch import BlockTables  # noqa: E402
from tests.support.tiny_models import make_model, save_model  # noqa: E402

CPU = torch.device("cpu")
LENGTHS = (7, 21, 33)
CHUNKS = [[5, 9, 30], [1, 1, 1], [1, 11, 2]]
LONGEST = 40


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    folder = save_model(make_model("qwen3"), tmp_path_factory.mktemp("qwen3"))
    return load_decoder(folder, LoadOptions())


def concat(geometry: KvGeometry, num_blocks: int, block_size: int) -> KvCache:
    return ConcatKv(geometry, num_blocks, block_size)


def paged_fp8(geometry: KvGeometry, num_blocks: int, block_size: int) -> KvCache:
    return PagedKv(geometry, num_blocks, block_size, FP8, CPU)


@pytest.mark.parametrize("backend", ["torch_ref", "eager"])
def test_paged_contiguous_and_concatenated_layouts_give_equal_logits(decoder: Decoder, backend: str) -> None:
    prompts = draw_prompts(LENGTHS, 160)
    wanted = torch.cat(logits_of(decoder, prompts, CHUNKS, backend, block_size=4))
    for make_kv, block_size in ((None, LONGEST), (concat, LONGEST), (None, 1), (None, 16)):
        options = {} if make_kv is None else {"make_kv": make_kv}
        ours = logits_of(decoder, prompts, CHUNKS, backend, block_size=block_size, **options)
        torch.testing.assert_close(torch.cat(ours), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("backend", ["torch_ref", "eager"])
def test_fp8_cache_stays_close_and_does_not_depend_on_chunks(decoder: Decoder, backend: str) -> None:
    prompts = draw_prompts(LENGTHS, 160)
    exact = torch.cat(logits_of(decoder, prompts, CHUNKS, backend))
    chunked = torch.cat(logits_of(decoder, prompts, CHUNKS, backend, make_kv=paged_fp8))
    whole = torch.cat(logits_of(decoder, prompts, [list(LENGTHS)], backend, make_kv=paged_fp8))
    assert 0.0 < (chunked - exact).norm() / exact.norm() < 0.1
    torch.testing.assert_close(chunked, whole, atol=1e-4, rtol=1e-4)


def geometry() -> KvGeometry:
    return KvGeometry(range(2, 4), 2, 16, torch.float32)


def test_fp8_pool_takes_a_quarter_of_an_fp32_pool() -> None:
    assert (
        PagedKv(geometry(), 8, 16, FP8, CPU).num_bytes * 4 == PagedKv(geometry(), 8, 16, torch.float32, CPU).num_bytes
    )
    assert geometry().bytes_per_token(FP8) == 2 * 2 * 2 * 16


def test_fp8_scales_keep_values_beyond_the_largest_number_of_fp8() -> None:
    tables = BlockTables(1, 2, 8)
    meta = tables.meta([(0, 10)])
    k, v = torch.randn(10, 2, 16) * 1000, torch.randn(10, 2, 16) * 0.001
    kv = PagedKv(geometry(), 2, 8, FP8, CPU)
    kv.set_scales(3, 16.0, 1 / 1024)
    kv.write(3, k, v, meta)
    k_read, v_read = kv.read(3, tables.table, 10)
    assert (k_read[0] - k).norm() / k.norm() < 2**-4
    assert (v_read[0] - v).norm() / v.norm() < 2**-4
    unscaled = PagedKv(geometry(), 2, 8, FP8, CPU)
    unscaled.write(3, k, v, meta)
    assert torch.isfinite(unscaled.read(3, tables.table, 10)[0]).all()
    assert unscaled.read(3, tables.table, 10)[0].abs().max() == torch.finfo(FP8).max


@pytest.mark.parametrize("dtype", [torch.float32, FP8])
def test_blocks_are_views_of_what_was_written_in_all_layers(dtype: Dtype) -> None:
    kv = PagedKv(geometry(), 6, 4, dtype, CPU)
    tables = BlockTables(1, 3, 4)
    for layer in (2, 3):
        kv.write(layer, torch.randn(12, 2, 16), torch.randn(12, 2, 16), tables.meta([(0, 12)]))
    wanted = [kv.read(layer, tables.table, 12) for layer in (2, 3)]
    kept = kv.blocks().clone()
    kv.blocks().zero_()
    assert not torch.equal(kv.read(2, tables.table, 12)[0], wanted[0][0])
    kv.blocks().copy_(kept)
    for layer, (k_wanted, v_wanted) in zip((2, 3), wanted, strict=True):
        k_read, v_read = kv.read(layer, tables.table, 12)
        assert torch.equal(k_read, k_wanted)
        assert torch.equal(v_read, v_wanted)


def test_concatenation_copies_the_square_of_the_length_and_pages_copy_nothing() -> None:
    kv = ConcatKv(geometry(), 1, 64)
    tables = BlockTables(1, 1, 64)
    token = torch.randn(1, 2, 16)
    for position in range(40):
        kv.write(2, token, token, tables.meta([(position, 1)]))
    assert kv.bytes_copied == 2 * token.nbytes * sum(range(40))
    assert kv.num_bytes == 2 * token.nbytes * 40
    kv.release([0])
    assert kv.num_bytes == 0


def test_concatenated_cache_forgets_rejected_tokens_and_former_requests() -> None:
    kv = ConcatKv(geometry(), 1, 64)
    tables = BlockTables(1, 1, 64)
    k = torch.randn(20, 2, 16)
    kv.write(2, k[:10], k[:10], tables.meta([(0, 10)]))
    kv.write(2, k[10:14], k[10:14], tables.meta([(6, 4)]))
    kept, _ = kv.read(2, tables.table, 10)
    assert torch.equal(kept[0], torch.cat((k[:6], k[10:14])))
    kv.write(2, k[15:], k[15:], tables.meta([(0, 5)]))
    kept, _ = kv.read(2, tables.table, 5)
    assert torch.equal(kept[0], k[15:])


def test_impossible_pools_are_refused() -> None:
    with pytest.raises(ConfigError, match="0 blocks of 16"):
        PagedKv(geometry(), 0, 16, torch.float32, CPU)
    with pytest.raises(ConfigError, match=r"float32 or torch\.float8_e4m3fn, not torch\.int8"):
        PagedKv(geometry(), 1, 16, torch.int8, CPU)
    with pytest.raises(ConfigError, match="need an FP8 pool"):
        PagedKv(geometry(), 1, 16, torch.float32, CPU).set_scales(2, 2.0, 2.0)
    with pytest.raises(ConfigError, match="no blocks; choose eager or torch_ref"):
        ConcatKv(geometry(), 1, 16).layer(2)
    with pytest.raises(ConfigError, match="0 requests"):
        ConcatKv(geometry(), 0, 16)
