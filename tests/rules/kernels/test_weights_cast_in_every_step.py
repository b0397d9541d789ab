"""Weights kept in fp32 and cast to 16 bits before their products in every step, as under torch.autocast."""

from __future__ import annotations

import pytest

from tests.support.trace_builder import ADD, FLASH, GEMM, HEAD_GEMM, Program
from tests.support.verdicts import Clinic

RULE = "wrong-dtype-fp32"
NARROW = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)"
    "::{lambda(float)#1}, std::array<char*, 2ul> >(int)"
)
WIDEN = NARROW.replace("bfloat16_copy_kernel_cuda", "bfloat16tofloat32_copy_kernel_cuda")

Kernels = tuple[tuple[str, float], ...]
BOTH_OPERANDS: Kernels = ((NARROW, 18.0), (NARROW, 1.5))


def decoding(*before_each: Kernels, silence_us: float = 0.0, product_us: float = 10.0) -> Program:
    """Six steps of four layers; a layer has a product behind each of these, attention and an addition."""
    program = Program()
    for _ in range(6):
        program.copy("HtoD pinned", 64)
        for _ in range(4):
            for before in before_each:
                for kernel, kernel_us in (*before, (GEMM, product_us)):
                    program.silence(silence_us)
                    program.launch(kernel, kernel_us)
            program.launch(FLASH, 12)
            program.launch(ADD, 3)
        program.launch(HEAD_GEMM, 20)
        program.copy("DtoH pinned", 64)
        program.wait()
    return program


def test_fires_on_casts_of_both_operands_before_the_products(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(decoding(BOTH_OPERANDS, BOTH_OPERANDS, ((NARROW, 18.0),), BOTH_OPERANDS))
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    assert finding["title"] == "The weights are kept in fp32 and cast in every step"
    assert "autocast" in finding["fixes"][0]["setting"]
    assert verdicts.evidence(RULE, "products with cast operands") == pytest.approx(16 / 17)
    # a layer falls from 131.5 to 55 us; the head takes 20
    assert finding["gain"]["speedup_expected"] == pytest.approx((4 * 131.5 + 20) / (4 * 55 + 20), rel=0.1)


def test_the_launches_of_the_casts_go_where_the_host_is_behind(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(decoding(*(BOTH_OPERANDS,) * 4, silence_us=60.0))
    # 12 slow launches a layer, 4 without the casts
    assert verdicts.finding(RULE)["gain"]["speedup_expected"] == pytest.approx(12 / 4, rel=0.15)


@pytest.mark.parametrize(
    ("before_each", "product_us"),
    [
        pytest.param((((NARROW, 1.5),),) * 4, 10.0, id="activations of a few tokens"),
        pytest.param((((NARROW, 9.0),),) * 4, 30.0, id="activations of a prompt, shorter than their products"),
        pytest.param((((WIDEN, 18.0), (WIDEN, 1.5)),) * 4, 10.0, id="casts to 32 bits"),
        pytest.param((BOTH_OPERANDS, (), ()), 10.0, id="a third of the products, as in a training step"),
    ],
)
def test_is_silent_on_look_alikes(clinic: Clinic, before_each: tuple[Kernels, ...], product_us: float) -> None:
    assert RULE not in clinic.verdicts(decoding(*before_each, product_us=product_us)).found
