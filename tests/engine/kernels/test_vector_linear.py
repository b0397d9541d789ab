"""Linear layers of one token against float64 references."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra 'engine'")
pytest.importorskip("engine.kernels.jit", reason="needs the extra 'test'", exc_type=ImportError)

import torch

from engine.kernels.vector_linear import (
    VectorTile,
    vector_gate_up,
    vector_gate_up_reference,
    vector_linear,
    vector_linear_reference,
)
from tests.support.paged_batch import DEVICE, relative_error

TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
DTYPES = sorted(TOLERANCE, key=str)


def draw(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Random numbers on the device under test."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_in", "num_out"), [(64, 32), (300, 37), (5000, 6)])
def test_a_linear_layer_with_norm_and_residual_equals_the_reference(
    num_in: int, num_out: int, dtype: torch.dtype
) -> None:
    x, weight = draw(1, num_in, dtype=dtype, seed=1), draw(num_out, num_in, dtype=dtype, seed=2)
    norm, residual = draw(num_in, dtype=dtype, seed=3), draw(1, num_out, dtype=dtype, seed=4)
    expected = vector_linear_reference(x.double(), weight.double(), (norm.double(), 1e-5), residual.double())
    assert relative_error(vector_linear(x, weight, (norm, 1e-5), residual), expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_plain_linear_layer_equals_the_reference(dtype: torch.dtype) -> None:
    x, weight = draw(1, 96, dtype=dtype, seed=5), draw(50, 96, dtype=dtype, seed=6)
    assert relative_error(vector_linear(x, weight), x.double() @ weight.double().T) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_in", "ff"), [(64, 32), (300, 11)])
def test_a_gated_layer_equals_the_reference(num_in: int, ff: int, dtype: torch.dtype) -> None:
    x, weight = draw(1, num_in, dtype=dtype, seed=7), draw(2 * ff, num_in, dtype=dtype, seed=8)
    norm = draw(num_in, dtype=dtype, seed=9)
    expected = vector_gate_up_reference(x.double(), weight.double(), (norm.double(), 1e-5))
    assert relative_error(vector_gate_up(x, weight, (norm, 1e-5)), expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("tile", [VectorTile(1, 32, 1), VectorTile(8, 64, 2), VectorTile(16, 512, 8)])
def test_every_tile_gives_the_same_layer(tile: VectorTile) -> None:
    x, weight = draw(1, 200, dtype=torch.float32, seed=10), draw(45, 200, dtype=torch.float32, seed=11)
    assert relative_error(vector_linear(x, weight, tile=tile), x.double() @ weight.double().T) < 1e-6


def test_a_residual_may_be_added_in_place() -> None:
    x, weight = draw(1, 64, dtype=torch.float32, seed=12), draw(64, 64, dtype=torch.float32, seed=13)
    expected = x.double() @ weight.double().T + x.double()
    assert relative_error(vector_linear(x, weight, residual_1O=x), expected) < 1e-6


def test_two_tokens_are_refused() -> None:
    weight = draw(8, 16, dtype=torch.float32, seed=14)
    with pytest.raises(ValueError, match="one token"):
        vector_linear(draw(2, 16, dtype=torch.float32, seed=15), weight)
