from __future__ import annotations

import pytest

from tests.support.trace_builder import ADD, FLASH, GEMM, HEAD_GEMM, SOFTMAX, TOP_K, Program
from tests.support.verdicts import Clinic

RULE = "moe-gating-cost"
SORT = "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<unsigned int>"
GROUPED = "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<int>>>"
FUSED_GATE = "void vllm::moe::topkGatingSoftmax<8, 64, 4, 16, int>"
ALIGN = "void vllm::moe::moe_align_block_size_kernel<int>"
MAXIMUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>"
MASK = "void at::native::vectorized_elementwise_kernel<4, at::native::masked_fill_kernel(at::TensorIterator&)>"
CAST = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>"
ROUND = (MAXIMUM, ADD, MASK)
ROUNDS = (SOFTMAX, *ROUND * 8, SORT)
"""Eight experts a token, one after the other: 26 kernels, none of them named after routing or a top-k."""


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


def replayed(between: tuple[tuple[str, float], ...], product_us: float, product: str = GROUPED) -> Program:
    """Decode steps, each one CUDA graph: four layers with these kernels between router and experts."""
    dense = [(GEMM, 10.0), (FLASH, 10.0), (GEMM, 10.0), (ADD, 2.0), (GEMM, 5.0)]
    experts = [(product, product_us), (ADD, 2.0), (product, product_us), (ADD, 2.0)]
    program = Program()
    for _ in range(6):
        program.silence(5)
        program.copy("HtoD pinned", 64)
        program.graph([*[*dense, *between, *experts] * 4, (HEAD_GEMM, 20.0)])
        program.copy("DtoH pinned", 64)
        program.wait()
    return program


def each(kernels: tuple[str, ...], kernel_us: float) -> tuple[tuple[str, float], ...]:
    """These kernels, all of one length."""
    return tuple((kernel, kernel_us) for kernel in kernels)


def test_fires_on_experts_chosen_in_rounds_whatever_their_kernels_are_called(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(replayed(each(ROUNDS, 3.0), product_us=50))
    assert verdicts.first == RULE
    assert verdicts.evidence(RULE, "routing kernels") == len(ROUNDS)
    assert verdicts.evidence(RULE, "routing") == pytest.approx(78 / 178)
    # a layer takes 219 us and routing falls from 78 to 17
    assert verdicts.finding(RULE)["gain"]["speedup_expected"] == pytest.approx(219 / 158, rel=0.05)


def test_is_silent_when_rounds_are_a_small_part_of_the_layers(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(replayed(each(ROUNDS, 3.0), product_us=225)).found
    assert RULE in clinic.verdicts(replayed(each(ROUNDS, 3.0), product_us=215)).found


def test_is_silent_when_few_kernels_stand_between_router_and_experts(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(replayed(each((SOFTMAX, *ROUND * 3), 8.0), product_us=50)).found
    assert RULE in clinic.verdicts(replayed(each((SOFTMAX, *ROUND * 4), 8.0), product_us=50)).found


def test_is_silent_when_weights_are_prepared_between_router_and_experts(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(replayed((*each(ROUND * 4, 1.0), (CAST, 120.0)), product_us=50)).found


def test_is_silent_on_rounds_before_a_dense_product(clinic: Clinic) -> None:
    program = replayed((*each(ROUNDS, 3.0), (GEMM, 10.0), (ADD, 2.0)), product_us=50)
    assert RULE not in clinic.verdicts(program).found


def test_says_when_routing_is_as_fast_as_it_gets(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(replayed(((FUSED_GATE, 6.0), (ALIGN, 8.0)), product_us=20))
    assert RULE not in verdicts.found
    assert "14 us a layer" in verdicts.ruled_out[RULE]
