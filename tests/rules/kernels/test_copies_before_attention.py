"""Keys and values written out anew, heads repeated, before every fused attention kernel."""

from __future__ import annotations

import pytest

from tests.support.trace_builder import ADD, FLASH, GEMM, HEAD_GEMM, Program
from tests.support.verdicts import Clinic

RULE = "attention-not-fused"
TITLE = "Keys and values are copied before every attention"
COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(c10::BFloat16)#1}> >(int)"
)
COMPILED = "triton_poi_fused__unsafe_view_clone_expand_3"
NARROW = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>"
)
ROPE = "void rotary_embedding_kernel<c10::BFloat16>"
CONV = "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_64x64>"

Kernels = tuple[tuple[str, float], ...]


def decoding(before: Kernels, attention: Kernels = ((FLASH, 20.0),), layers: int = 6) -> Program:
    """Six steps of layers: a product, what stands before attention, attention, a product, an addition."""
    program = Program()
    for _ in range(6):
        program.copy("HtoD pinned", 64)
        for _ in range(layers):
            for kernel, kernel_us in ((GEMM, 15.0), *before, *attention, (GEMM, 15.0), (ADD, 3.0)):
                program.launch(kernel, kernel_us)
        program.launch(HEAD_GEMM, 20)
        program.copy("DtoH pinned", 64)
        program.wait()
    return program


@pytest.mark.parametrize("copy", [COPY, COMPILED])
def test_fires_on_a_pair_of_long_copies_before_each_attention(clinic: Clinic, copy: str) -> None:
    finding = clinic.verdicts(decoding(((ROPE, 3.0), (copy, 60.0), (ADD, 2.0), (copy, 58.0)))).finding(RULE)
    assert finding["title"] == TITLE
    assert "enable_gqa=True" in finding["fixes"][0]["setting"]
    # a layer falls from 176 us to 58, and to 48 where attention reads half of the bytes
    assert finding["gain"]["speedup_expected"] == pytest.approx(176 / 48, rel=0.15)
    assert finding["gain"]["speedup_bound"] > 176 / 40


def test_attention_over_a_prompt_keeps_its_time(clinic: Clinic) -> None:
    finding = clinic.verdicts(decoding(((COPY, 60.0), (COPY, 60.0)), attention=((FLASH, 200.0),))).finding(RULE)
    assert finding["gain"]["speedup_expected"] == pytest.approx(353 / 233, rel=0.1)


def test_the_second_kernel_of_a_split_attention_counts_with_the_first(clinic: Clinic) -> None:
    split = ((FLASH, 20.0), ("void flash_fwd_splitkv_combine_kernel<128>", 4.0))
    verdicts = clinic.verdicts(decoding(((COPY, 60.0), (COPY, 60.0)), attention=split))
    assert verdicts.evidence(RULE, "attention kernels with copies") == 1.0


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(((ROPE, 30.0), (ROPE, 30.0)), id="rotary embeddings"),
        pytest.param(((NARROW, 30.0), (NARROW, 30.0)), id="casts of activations"),
        pytest.param(((ADD, 30.0), (ADD, 30.0)), id="additions"),
        pytest.param(((COPY, 30.0), (COPY, 30.0), (COPY, 30.0)), id="queries, keys and values laid out alike"),
        pytest.param(((COPY, 30.0), (COPY, 12.0)), id="copies of two sizes"),
        pytest.param(((COPY, 4.0), (COPY, 4.0)), id="a step's own rows"),
        pytest.param(((COPY, 40.0), (COPY, 40.0), (CONV, 20.0)), id="a layout for a convolution"),
    ],
)
def test_is_silent_on_look_alikes(clinic: Clinic, before: Kernels) -> None:
    assert RULE not in clinic.verdicts(decoding(before)).found


def test_is_silent_when_the_copies_are_short_beside_attention(clinic: Clinic) -> None:
    before = ((COPY, 40.0), (COPY, 40.0))
    assert RULE not in clinic.verdicts(decoding(before, attention=((FLASH, 300.0),))).found
