from __future__ import annotations

import pytest

from tests.support.trace_builder import ADD, GEMM, HEAD_GEMM, SGEMM, Program, decode_step
from tests.support.verdicts import Clinic

RULE = "wrong-dtype-fp32"
DOUBLE = (
    "sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize128x64x16_stage3_warpsize2x2x1_tensor16x8x8_execute_kernel__5x_cublas",
    "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_128x64_16x3_nn_align1>(cutlass_80_tensorop_d884gemm::Params)",
    "volta_dgemm_128x64_nt",
    "Cijk_Ailk_Bljk_DB_MT128x128x16_MI16x16x4x1_SN",
)
DOUBLE_GEMV = "void gemv2T_kernel_val<int, int, double, double, double, double, 128, 16, 4, 4, false>"
TF32 = "cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4"


def step(program: Program, product: str, product_us: float) -> None:
    """One step of forty products behind a full queue."""
    program.copy("HtoD pinned", 64)
    for _ in range(40):
        program.silence(4)
        program.launch(product, product_us)
        program.launch(ADD, 5)
    program.launch(HEAD_GEMM, 80)
    program.wait()


def test_fires_with_the_ratio_of_the_units_for_large_products(clinic: Clinic) -> None:
    program = Program(compute_capability=(9, 0))
    for _ in range(5):
        step(program, SGEMM, 900)
    verdicts = clinic.verdicts(program)
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    # four fifths of 989 / 67 TFLOP/s on the products, little else in the step
    assert 7 < finding["gain"]["speedup_expected"] < 12
    assert verdicts.evidence(RULE, "of these bound by arithmetic") > 0.99


def test_promises_a_factor_of_two_where_bandwidth_binds(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        step(program, "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 2, 2>", 200)
    assert 1.6 < clinic.verdicts(program).finding(RULE)["gain"]["speedup_expected"] < 2.05


def test_is_silent_on_bf16_and_tf32(clinic: Clinic) -> None:
    for product in (GEMM, TF32):
        program = Program()
        for _ in range(5):
            step(program, product, 200)
        assert RULE not in clinic.verdicts(program).found


def test_is_silent_on_a_router_in_fp32(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        step(program, GEMM, 200)
        program.launch(SGEMM, 200)
    assert RULE not in clinic.verdicts(program).found


def test_is_ruled_out_when_launches_bind(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program)
        program.silence(20)
        for _ in range(20):
            program.silence(20)
            program.launch(SGEMM, 3)
    verdicts = clinic.verdicts(program)
    assert verdicts.first == "host-dispatch-bound"
    assert RULE in verdicts.ruled_out


def test_attention_over_prompts_gains_the_ratio_where_the_whole_model_is_fp32(clinic: Clinic) -> None:
    def expected(attention: str, product: str) -> float:
        program = Program()
        for _ in range(4):
            step(program, product, 300)
            for _ in range(10):
                program.launch(attention, 900)
        return float(clinic.verdicts(program).finding(RULE)["gain"]["speedup_expected"])

    # 9 of 21 ms are attention: about 1/12 of it is left, or half of it where it reads a cache
    assert expected("_prefill_kernel", SGEMM) > 1.8 * expected("_decode_kernel", SGEMM)


@pytest.mark.parametrize("product", DOUBLE)
def test_says_fp64_and_promises_the_ratio_of_the_units(clinic: Clinic, product: str) -> None:
    program = Program(compute_capability=(9, 0))
    for _ in range(5):
        step(program, product, 900)
    finding = clinic.verdicts(program).finding(RULE)
    assert finding["title"] == "The model computes in fp64"
    assert "numpy" in finding["fixes"][0]["setting"]
    # four fifths of 989 / 67 TFLOP/s on the products, little else in the step
    assert 7 < finding["gain"]["speedup_expected"] < 12


def test_fp64_costs_most_where_a_device_is_not_made_for_it(clinic: Clinic) -> None:
    def expected(compute_capability: tuple[int, int], product: str) -> float:
        program = Program(compute_capability=compute_capability)
        for _ in range(4):
            step(program, product, 9000)
        return float(clinic.verdicts(program).finding(RULE)["gain"]["speedup_expected"])

    assert expected((8, 9), DOUBLE[1]) > 4 * expected((8, 0), DOUBLE[1])
    assert expected((8, 9), DOUBLE_GEMV) == pytest.approx(4, rel=0.1)  # bound by bytes: eight against two


def test_a_double_buffer_is_no_double(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        step(program, "void gemm_double_buffer_kernel<__nv_bfloat16, 64>", 200)
    assert RULE not in clinic.verdicts(program).found
