from __future__ import annotations

import pytest

from tests.support.trace_builder import ADD, FLASH, GEMM, HEAD_GEMM, TOP_K, Program
from tests.support.verdicts import Clinic

RULE = "moe-gating-cost"
SORT = "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<unsigned int>"
GROUPED = "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<int>>>"
FUSED_GATE = "void vllm::moe::topkGatingSoftmax<8, 64, 4, 16, int>"
ALIGN = "void vllm::moe::moe_align_block_size_kernel<int>"


def decoding(routing: tuple[str, ...], routing_us: float, product_us: float, product: str = GROUPED) -> Program:
    """Steps of four layers whose feed-forward part is experts; the device never waits for the host."""
    program = Program()
    for _ in range(5):
        program.silence(5)
        program.copy("HtoD pinned", 64)
        for _ in range(4):
            for kernel, kernel_us in ((GEMM, 20.0), (FLASH, 20.0), (GEMM, 20.0)):
                program.launch(kernel, kernel_us)
            for kernel in routing:
                program.launch(kernel, routing_us)
            program.launch(product, product_us)
            program.launch(ADD, 10)
            program.launch(product, product_us)
        program.launch(HEAD_GEMM, 20)
        program.copy("DtoH pinned", 64)
        program.wait()
    return program


def test_fires_on_routing_of_many_small_kernels(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(decoding((TOP_K, ADD, SORT, ADD, ADD), routing_us=20, product_us=50))
    assert verdicts.first == RULE
    assert verdicts.evidence(RULE, "routing") == pytest.approx(0.5)
    # a layer takes 270 us; routing falls from 100 to 100 / 19
    assert verdicts.finding(RULE)["gain"]["speedup_expected"] == pytest.approx(280 / 185, rel=0.1)


def test_counts_routing_kernels_by_their_names(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(decoding((FUSED_GATE, ALIGN), routing_us=20, product_us=60, product="fused_moe_kernel"))
    assert verdicts.evidence(RULE, "routing") == pytest.approx(40 / 160)


def test_is_silent_when_routing_is_fused_and_small(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(decoding((FUSED_GATE, ALIGN), routing_us=4, product_us=60)).found


def test_is_silent_where_top_k_serves_sampling(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(decoding((TOP_K, ADD, SORT, ADD), routing_us=20, product_us=20, product=GEMM))
    assert RULE not in verdicts.found
