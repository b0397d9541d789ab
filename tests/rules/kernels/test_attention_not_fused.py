from __future__ import annotations

import pytest

from tests.support.trace_builder import ADD, FLASH, GEMM, HEAD_GEMM, SOFTMAX, TOP_K, Program
from tests.support.verdicts import Clinic

RULE = "attention-not-fused"
REPEAT = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>"


def step(program: Program, attention: tuple[tuple[str, float], ...]) -> None:
    """One step of six layers, each with the given attention, behind a full queue."""
    program.copy("HtoD pinned", 64)
    for _ in range(6):
        for kernel, kernel_us in ((GEMM, 60.0), *attention, (GEMM, 60.0), (ADD, 10.0)):
            program.silence(4)
            program.launch(kernel, kernel_us)
    program.launch(HEAD_GEMM, 80)
    program.wait()


EAGER = ((GEMM, 50.0), (ADD, 300.0), (ADD, 200.0), (SOFTMAX, 500.0), (GEMM, 50.0))


def test_fires_when_scores_go_through_memory(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        step(program, EAGER)
    verdicts = clinic.verdicts(program)
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    # 1000 of 1230 us a layer lie between the two products
    assert 3 < finding["gain"]["speedup_expected"] < 6
    assert verdicts.evidence(RULE, "softmax kernels") == 30


def test_is_silent_on_fused_attention(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        step(program, ((FLASH, 300.0),))
    assert RULE not in clinic.verdicts(program).found


def test_does_not_take_expert_routing_for_attention(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        step(program, ((FLASH, 100.0), (GEMM, 20.0), (SOFTMAX, 300.0), (TOP_K, 20.0), (GEMM, 50.0)))
    assert RULE not in clinic.verdicts(program).found


def test_is_cleared_when_the_scores_are_small(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        step(program, ((GEMM, 50.0), (SOFTMAX, 5.0), (GEMM, 50.0)))
    verdicts = clinic.verdicts(program)
    assert RULE not in verdicts.found
    assert "of the device's time" in verdicts.ruled_out[RULE]


def test_eager_attention_by_name_is_enough_and_sdpa_is_not(clinic: Clinic) -> None:
    config = '{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "_attn_implementation": "%s"}'
    assert clinic.told(config % "eager").first == RULE
    assert RULE not in clinic.told(config % "sdpa").found


def expected_win(clinic: Clinic, *layers: tuple[tuple[str, float], ...]) -> float:
    program = Program()
    for _ in range(4):
        for attention in layers:
            step(program, attention)
    return float(clinic.verdicts(program).finding(RULE)["gain"]["speedup_expected"])


def test_a_fused_kernel_needs_no_copies_of_its_operands(clinic: Clinic) -> None:
    copied = ((REPEAT, 200.0), (REPEAT, 200.0), *EAGER)
    # 400 of 1,630 us a layer come before the products, 1,000 between them
    assert expected_win(clinic, copied) == pytest.approx(expected_win(clinic, EAGER) * 1630 / 1230, rel=0.05)


def test_what_is_copied_between_the_products_goes_too(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        program.copy("HtoD pinned", 64)
        for _ in range(6):
            for kernel, kernel_us in ((GEMM, 60.0), (GEMM, 50.0)):
                program.launch(kernel, kernel_us)
            program.copy("DtoD device", 2_000_000_000, gigabytes_per_s=4_000)
            for kernel, kernel_us in ((ADD, 500.0), (SOFTMAX, 500.0), (GEMM, 50.0), (GEMM, 60.0), (ADD, 10.0)):
                program.launch(kernel, kernel_us)
        program.launch(HEAD_GEMM, 80)
        program.wait()
    assert clinic.verdicts(program).finding(RULE)["gain"]["speedup_expected"] > 5.5


def test_products_of_awkward_lengths_take_no_longer_in_a_fused_kernel(clinic: Clinic) -> None:
    awkward = tuple((name, 400.0 if name == GEMM else kernel_us) for name, kernel_us in EAGER)
    # as many scores in both, so that 700 of the 800 us of the two products go as well
    alone, beside_better = expected_win(clinic, awkward), expected_win(clinic, awkward, EAGER)
    assert beside_better > 1.3 * alone


FP32_PRODUCT = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_kernel"
WIDENED = ((FP32_PRODUCT, 600.0), (SOFTMAX, 60.0), (GEMM, 40.0), (FP32_PRODUCT, 500.0))


def test_owns_products_that_attention_alone_computes_in_fp32(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        step(program, WIDENED)
    verdicts = clinic.verdicts(program)
    assert verdicts.first == RULE
    assert verdicts.evidence(RULE, "fp32 products of attention") > 0.6
    assert "attention that is not fused" in verdicts.ruled_out["wrong-dtype-fp32"]
    # 1160 of 1330 us a layer; on the 16-bit units 1100 of them take less than a fifth
    assert verdicts.finding(RULE)["gain"]["speedup_bound"] > 3


def test_leaves_a_model_whose_products_are_all_fp32_to_its_type(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        program.copy("HtoD pinned", 64)
        for _ in range(6):
            for kernel, kernel_us in ((FP32_PRODUCT, 600.0), *WIDENED[:2], WIDENED[3], (FP32_PRODUCT, 900.0)):
                program.silence(4)
                program.launch(kernel, kernel_us)
        program.wait()
    assert clinic.verdicts(program).first == "wrong-dtype-fp32"


IS_MASKED = "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::isneginf_kernel_impl>"
ALL_MASKED = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<bool, at::native::and_kernel_cuda>>"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>"
CHOICE = "void at::native::elementwise_kernel<128, 2, at::native::(anonymous namespace)::where_kernel_impl>"
CAST = "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda>"


def test_sees_a_softmax_that_tests_for_rows_without_any_key(clinic: Clinic) -> None:
    behind = ((IS_MASKED, 30.0),) * 2 + ((ALL_MASKED, 30.0), (FILL, 1.0)) + ((CHOICE, 90.0),) * 2 + ((CAST, 40.0),) * 2
    program = Program()
    for _ in range(5):
        step(program, ((FP32_PRODUCT, 350.0), (ADD, 100.0), (SOFTMAX, 200.0), *behind, (FP32_PRODUCT, 280.0)))
    verdicts = clinic.verdicts(program)
    assert verdicts.first == RULE
    assert verdicts.evidence(RULE, "fp32 products of attention") > 0.3
    assert "wrong-dtype-fp32" not in verdicts.found
