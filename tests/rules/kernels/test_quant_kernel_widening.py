"""Weights widened in kernels of their own before each product, without a name that says so."""

from __future__ import annotations

import pytest

from tests.support.trace_builder import ADD, FLASH, GEMM, HEAD_GEMM, Program
from tests.support.verdicts import Clinic

RULE = "quant-kernel-legacy"
WIDEN = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)"
    "::{lambda()#3}::operator()() const::{lambda()#12}>"
)
SCALE = "void at::native::elementwise_kernel<128, 4, at::native::BinaryFunctor<c10::BFloat16, MulFunctor<float>>>"
NARROW = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>"
)
NORM = "void rms_norm_kernel<c10::BFloat16>"
BITS = "void at::native::vectorized_elementwise_kernel<4, at::native::BUnaryFunctor<unsigned char, rshift_kernel_cuda>>"
LOOK_UP = "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::OpaqueType<2>>>"
JOIN = "void at::native::(anonymous namespace)::CatArrayBatchedCopy_alignedK_contig<OpaqueType<2u>, unsigned int>"

Kernels = tuple[tuple[str, float], ...]


def linear(before: Kernels, product_us: float = 10.0, behind: Kernels = ()) -> Kernels:
    """One linear layer: what comes before its product, the product, and what follows."""
    return (*before, (GEMM, product_us), *behind)


def decoding(*layer: Kernels, silence_us: float = 0.0) -> Program:
    """Six steps of four layers; the device never waits for the host unless it falls silent before each launch."""
    program = Program()
    for _ in range(6):
        program.silence(5)
        program.copy("HtoD pinned", 64)
        for _ in range(4):
            for kernel, kernel_us in (kernel for part in layer for kernel in part):
                program.silence(silence_us)
                program.launch(kernel, kernel_us)
        program.launch(HEAD_GEMM, 20)
        program.copy("DtoH pinned", 64)
        program.wait()
    return program


def transformer(inner: Kernels) -> tuple[Kernels, ...]:
    """A layer of four such linear layers around attention and norms."""
    return (((NORM, 3.0),), inner, ((FLASH, 12.0),), inner, ((ADD, 2.0), (NORM, 3.0)), inner, ((ADD, 2.0),), inner)


WIDENED = linear(((WIDEN, 30.0),), behind=((NARROW, 1.5), (SCALE, 2.5)))


def test_fires_on_weights_widened_before_each_product(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(decoding(*transformer(WIDENED)))
    assert verdicts.first == RULE
    assert verdicts.evidence(RULE, "products with widened weights") == pytest.approx(16 / 17)
    assert verdicts.evidence(RULE, "widening against products") == pytest.approx(16 * 30 / (16 * 10 + 20))
    assert verdicts.evidence(RULE, "scaling kernels behind each") == 2
    # a step takes 820 us; without the widening and the scaling, and no additions lost, 276
    assert verdicts.finding(RULE)["gain"]["speedup_expected"] == pytest.approx(820 / 276, rel=0.1)


def test_counts_the_launches_that_go_where_the_host_is_behind(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(decoding(*transformer(WIDENED), silence_us=60.0))
    # a layer launches 21 kernels, and 9 without the widening and the scaling
    assert verdicts.finding(RULE)["gain"]["speedup_expected"] == pytest.approx(85 / 37, rel=0.1)


def test_halves_that_are_looked_up_and_joined_are_unpacking_too(clinic: Clinic) -> None:
    half = ((BITS, 6.0), (WIDEN, 19.0), (LOOK_UP, 42.0))
    verdicts = clinic.verdicts(decoding(*transformer(linear((*half, *half, (JOIN, 70.0), (SCALE, 42.0))))))
    assert verdicts.first == RULE
    assert verdicts.evidence(RULE, "widening against products") == pytest.approx(16 * 246 / (16 * 10 + 20))
    assert verdicts.evidence(RULE, "scaling kernels behind each") == 0
    # a step takes 4,220 us, without the unpacking 284
    assert verdicts.finding(RULE)["gain"]["speedup_expected"] == pytest.approx(4220 / 284, rel=0.1)


def test_is_silent_where_only_inputs_are_looked_up_and_joined(clinic: Clinic) -> None:
    inner = linear(((LOOK_UP, 6.0), (JOIN, 8.0), (ADD, 4.0)))
    assert RULE not in clinic.verdicts(decoding(*transformer(inner))).found


def test_is_silent_on_convolutions_behind_long_activations(clinic: Clinic) -> None:
    convolution = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x64x64_execute_kernel"
    program = decoding(*transformer(((SCALE, 40.0), (ADD, 30.0), (convolution, 20.0))))
    assert RULE not in clinic.verdicts(program).found


def test_several_kernels_may_widen_one_weight(clinic: Clinic) -> None:
    unpacked = linear(((WIDEN, 15.0), (SCALE, 20.0), (SCALE, 15.0)))
    verdicts = clinic.verdicts(decoding(*transformer(unpacked)))
    assert verdicts.evidence(RULE, "widening against products") == pytest.approx(16 * 50 / (16 * 10 + 20))


@pytest.mark.parametrize(
    "inner",
    [
        pytest.param(linear(((WIDEN, 6.0),)), id="casts of activations, shorter than the product"),
        pytest.param(linear(((SCALE, 3.0),), product_us=2.0), id="short kernels before short products"),
        pytest.param(linear((), behind=((SCALE, 30.0), (NORM, 3.0))), id="long kernels elsewhere"),
    ],
)
def test_is_silent_on_look_alikes(clinic: Clinic, inner: Kernels) -> None:
    assert RULE not in clinic.verdicts(decoding(*transformer(inner))).found


def test_is_silent_when_part_of_the_products_have_a_long_kernel_before_them(clinic: Clinic) -> None:
    part = (*transformer(WIDENED), linear(()))  # 16 of 21 products
    assert RULE not in clinic.verdicts(decoding(*part)).found


def test_autocast_is_another_problem(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(decoding(*transformer(linear(((NARROW, 30.0),)))))
    assert RULE not in verdicts.found
    assert "autocast" in verdicts.ruled_out[RULE]
