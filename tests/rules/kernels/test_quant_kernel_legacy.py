from __future__ import annotations

import pytest

from tests.support.trace_builder import ADD, FLASH, GEMM, HEAD_GEMM, Program
from tests.support.verdicts import Clinic

RULE = "quant-kernel-legacy"
AWQ = "void vllm::awq::gemm_forward_4bit_cuda_m16nXk32<128>(int, int, __half *, int *, __half *)"
GPTQ = "void vllm::gptq::gemm_half_q_half_gptq_4bit_kernel<true, 4>"
BITS_AND_BYTES = "void kgemm_4bit_inference_naive<__nv_bfloat16, 128, 16>"
UNPACK = "void kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>"
MARLIN = "void marlin::Marlin<__nv_bfloat16, 1125899906842625l, 256, 1, 8, 8, false, 4, 8, false>"
MACHETE = "void cutlass::device_kernel<machete::MacheteKernel<cutlass::half_t>>"


def decoding(products: tuple[str, ...], product_us: float, compute_capability: tuple[int, int] = (9, 0)) -> Program:
    """Steps of four layers on a busy device, each with these products and one plain one."""
    program = Program(compute_capability=compute_capability)
    for _ in range(5):
        program.silence(5)
        program.copy("HtoD pinned", 64)
        for _ in range(4):
            for product in products:
                program.launch(product, product_us)
            for kernel in (FLASH, ADD, GEMM):
                program.launch(kernel, 20)
        program.launch(HEAD_GEMM, 20)
        program.copy("DtoH pinned", 64)
        program.wait()
    return program


@pytest.mark.parametrize("product", [AWQ, GPTQ, BITS_AND_BYTES])
def test_fires_on_products_of_older_kernels(clinic: Clinic, product: str) -> None:
    verdicts = clinic.verdicts(decoding((product,), 90))
    assert verdicts.first == RULE
    assert verdicts.evidence(RULE, "slow quantised kernels") == pytest.approx(4 * 90 / (4 * 110 + 20))
    # a layer falls from 150 to 90 us
    assert verdicts.finding(RULE)["gain"]["speedup_expected"] == pytest.approx(150 / 90, rel=0.1)


def test_counts_unpacking_into_memory_as_gone(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(decoding((UNPACK, GEMM), 60))
    assert verdicts.evidence(RULE, "of it unpacking into memory") == 1.0
    assert verdicts.finding(RULE)["gain"]["speedup_expected"] == pytest.approx(180 / 120, rel=0.1)


@pytest.mark.parametrize("product", [MARLIN, MACHETE, GEMM])
def test_is_silent_on_fast_kernels(clinic: Clinic, product: str) -> None:
    assert RULE not in clinic.verdicts(decoding((product,), 90)).found


def test_is_silent_when_few_products_are_quantised(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(decoding((AWQ,), 4)).found


def test_says_when_the_device_is_too_old_for_more(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(decoding((AWQ,), 90, compute_capability=(7, 5)))
    assert RULE not in verdicts.found
    assert "too old" in verdicts.ruled_out[RULE]
