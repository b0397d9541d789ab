"""The most likely token against PyTorch."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra 'engine'")
pytest.importorskip("engine.kernels.jit", reason="needs the extra 'test'", exc_type=ImportError)

import torch

from engine.kernels.argmax import argmax_rows, argmax_rows_reference
from tests.support.paged_batch import DEVICE


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("vocab", [7, 1000, 70000])
def test_argmax_finds_the_largest_logit_wherever_it_is(vocab: int, dtype: torch.dtype) -> None:
    logits = torch.randn(5, vocab + 3, generator=torch.Generator().manual_seed(vocab)).to(DEVICE, dtype)[:, :vocab]
    for row, place in enumerate((0, vocab - 1, vocab // 2, 3)):
        logits[row, place] = 50
    assert torch.equal(argmax_rows(logits), argmax_rows_reference(logits))


def test_argmax_takes_the_first_of_equal_logits() -> None:
    logits = torch.zeros(3, 40000, device=DEVICE, dtype=torch.bfloat16)
    logits[1, [33000, 39000]] = 2
    logits[2, 1:] = -torch.inf
    assert argmax_rows(logits).tolist() == [0, 33000, 0]


def test_argmax_of_no_rows_is_empty() -> None:
    assert argmax_rows(torch.empty(0, 10, device=DEVICE)).shape == (0,)
