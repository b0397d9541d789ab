from __future__ import annotations

import pytest

from tests.rules.kernels.test_wrong_dtype_fp32 import TF32, step
from tests.support.trace_builder import SGEMM, Program
from tests.support.verdicts import Clinic

RULE = "tf32-off"
CONVOLUTION = (
    "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize256x64x8_stage3_warpsize2x2x1_g1_ffma_aligna4"
    "_alignc4_execute_kernel__5x_cudnn"
)
"""As an H200 names it where `torch.backends.cudnn.allow_tf32` is False."""


def test_follows_fp32_and_shares_its_gain(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        step(program, SGEMM, 900)
    finding = clinic.verdicts(program).finding(RULE)
    assert finding["same_cause_as"] == "wrong-dtype-fp32"
    assert finding["gain"] is None
    assert "set_float32_matmul_precision" in finding["fixes"][0]["setting"]
    assert not any("cudnn" in fix["setting"] for fix in finding["fixes"])  # no convolution runs


def test_is_silent_on_devices_without_tf32(clinic: Clinic) -> None:
    program = Program(compute_capability=(7, 5), sm_count=40)
    for _ in range(5):
        step(program, SGEMM, 900)
    assert RULE not in clinic.verdicts(program).found


def test_is_silent_where_each_product_is_of_one_row(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        step(program, "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>", 900)
    verdicts = clinic.verdicts(program)
    assert verdicts.first == "wrong-dtype-fp32"  # half of the bytes is half of the time
    assert RULE not in verdicts.found


def test_is_silent_when_tf32_is_on(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        step(program, TF32, 300)
    assert RULE not in clinic.verdicts(program).found


def test_convolutions_have_a_setting_of_their_own_under_its_old_and_its_new_name(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        step(program, CONVOLUTION, 900)
    finding = clinic.verdicts(program).finding(RULE)
    assert "convolutions" in finding["summary"]
    settings = [fix["setting"] for fix in finding["fixes"] if fix["target"] == "pytorch"]
    assert len(settings) == 1
    assert "torch.backends.cudnn.allow_tf32" in settings[0]
    assert "torch.backends.cudnn.conv.fp32_precision" in settings[0]


def test_the_settings_are_those_of_the_installed_pytorch() -> None:
    torch = pytest.importorskip("torch")
    assert torch.backends.cudnn.conv.fp32_precision in {"tf32", "none", "ieee"}
    assert isinstance(torch.backends.cudnn.allow_tf32, bool)
    assert torch.backends.cuda.matmul.fp32_precision in {"tf32", "none", "ieee"}
