"""Norm, gate, rotation and KV write against float64 references."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra 'engine'")
pytest.importorskip("engine.kernels.jit", reason="needs the extra 'test'", exc_type=ImportError)

import torch

from engine.kernels.kv_write import rotate_and_write_kv, rotate_and_write_kv_reference, write_kv
from engine.kernels.paging import Pages
from engine.kernels.rms_norm import add_rms_norm, rms_norm, rms_norm_reference
from engine.kernels.rotary import rotate, rotate_reference
from engine.kernels.silu_mul import silu_mul, silu_mul_reference
from tests.support.paged_batch import DEVICE, Shape, angles, make_batch, relative_error

# Two roundings in 16 bits; Triton's interpreter cuts bf16 off instead of rounding it.
TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1.2e-2}
DTYPES = sorted(TOLERANCE, key=str)


def draw(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Random numbers on the device under test."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [64, 576, 1000])
def test_rms_norm_equals_the_reference(dim: int, dtype: torch.dtype) -> None:
    x, weight = draw(5, dim, dtype=dtype, seed=dim), draw(dim, dtype=dtype, seed=1)
    expected = rms_norm_reference(x.double(), weight.double(), 1e-5)
    assert relative_error(rms_norm(x, weight, 1e-5), expected) < TOLERANCE[dtype]


def test_rms_norm_takes_one_row_of_weights_per_head_and_heads_cut_from_a_wider_tensor() -> None:
    heads = draw(3, 7, 32, dtype=torch.float32, seed=2)[:, :5]
    weight = draw(5, 32, dtype=torch.float32, seed=3)
    expected = rms_norm_reference(heads.double(), weight.double(), 1e-5)
    assert relative_error(rms_norm(heads, weight, 1e-5), expected) < TOLERANCE[torch.float32]


@pytest.mark.parametrize("dtype", DTYPES)
def test_add_rms_norm_gives_the_norm_of_the_sum_and_the_sum(dtype: torch.dtype) -> None:
    x, residual, weight = (draw(*shape, dtype=dtype, seed=4) for shape in ((6, 320), (6, 320), (320,)))
    normed, total = add_rms_norm(x, residual, weight, 1e-6)
    expected = x.double() + residual.double()
    assert relative_error(total, expected) < TOLERANCE[dtype]
    assert relative_error(normed, rms_norm_reference(total.double(), weight.double(), 1e-6)) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ff", [48, 1500])
def test_silu_mul_equals_the_reference(ff: int, dtype: torch.dtype) -> None:
    gate_up = draw(3, 2 * ff, dtype=dtype, seed=ff)
    assert relative_error(silu_mul(gate_up), silu_mul_reference(gate_up.double())) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "head_dim"), [(1, 64), (9, 80), (40, 16)])
def test_rotate_equals_the_reference(heads: int, head_dim: int, dtype: torch.dtype) -> None:
    x = draw(4, heads + 2, head_dim, dtype=dtype, seed=heads)[:, :heads]
    cos, sin = angles(4, head_dim, seed=heads, dtype=dtype)
    expected = rotate_reference(x.double(), cos.double(), sin.double())
    assert relative_error(rotate(x, cos, sin), expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("page", [16, 24])
def test_rotate_and_write_touches_the_slots_of_the_batch_only(page: int, dtype: torch.dtype) -> None:
    batch = make_batch(Shape((5, 40, 0), (5, 2, 1), heads=12, kv_heads=3, page=page, dtype=dtype), seed=page)
    turn = angles(8, 32, seed=page)
    pages = batch.pages
    expected = Pages(pages.k_BSND.double(), pages.v_BSND.double())
    q, k, v = (x.double() for x in (batch.q_THD, batch.k_TND, batch.v_TND))
    wide_turn = (turn[0].double(), turn[1].double())
    q_expected = rotate_and_write_kv_reference(q, k, v, wide_turn, expected, batch.meta.slot_mapping_T)
    rotated = rotate_and_write_kv(batch.q_THD, batch.k_TND, batch.v_TND, turn, pages, batch.meta.slot_mapping_T)
    assert relative_error(rotated, q_expected) < TOLERANCE[dtype]
    for cache, reference in ((pages.k_BSND, expected.k_BSND), (pages.v_BSND, expected.v_BSND)):
        assert torch.equal(cache.isnan(), reference.isnan())
        assert relative_error(cache.nan_to_num(), reference.nan_to_num()) < TOLERANCE[dtype]


def test_write_kv_copies_the_bits() -> None:
    batch = make_batch(Shape((20, 3), (20, 3), dtype=torch.bfloat16), seed=5)
    write_kv(batch.k_TND, batch.v_TND, batch.pages, batch.meta.slot_mapping_T)
    slot = batch.meta.slot_mapping_T
    assert torch.equal(batch.pages.k_BSND[slot // 16, slot % 16], batch.k_TND)
    assert torch.equal(batch.pages.v_BSND[slot // 16, slot % 16], batch.v_TND)


def test_angles_of_another_head_size_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be rotated"):
        rotate(draw(2, 3, 32, dtype=torch.float32, seed=6), *angles(2, 16, seed=6))


def test_slots_that_are_not_int64_are_refused() -> None:
    batch = make_batch(Shape((20,), (2,)), seed=7)
    with pytest.raises(ValueError, match="int64"):
        write_kv(batch.k_TND, batch.v_TND, batch.pages, batch.meta.slot_mapping_T.int())
