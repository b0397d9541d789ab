"""Questions that sums alone can ask: what `nsys stats`, nvprof and PyTorch's profiler print, without any recording.

Evidence is reconstructed from the figures of C25 huggingface/transformers#21681, C27 vllm-project/vllm#21376 and C40
NVIDIA/DeepLearningExamples#1336, in the tools' own forms. Each stands beside sums of which nothing is to be asked.
"""

from __future__ import annotations

import pytest

from tests.cases.test_sums_of_a_profile import Row, as_csv, as_nvprof, as_text
from tests.support.verdicts import Clinic

WIDE: list[Row] = [
    ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128", 144, 2_100_000_000),
    ("void at::native::vectorized_elementwise_kernel<4, float>(int)", 288, 301_000_000),
]
OLDER: list[Row] = [
    ("void vllm::awq::gemm_forward_4bit_cuda_m16nXk32<128>(int, int)", 14_000, 1_900_000_000),
    ("void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>", 8_000, 300_000_000),
]
CALM: list[Row] = [
    ("nvjet_tst_128x256_64x4_bf16", 30_000, 9_000_000_000),
    ("void marlin::Marlin<__nv_bfloat16, 256, 4>(int4 const*)", 9_000, 2_000_000_000),
    ("ampere_sgemm_128x64_tn", 64, 190_000_000),
    ("cutlass_80_tensorop_s1688gemm_128x256_16x3_tn_align4", 900, 900_000_000),
]
ASKED = {
    "fp32 products, nsys stats": ("wrong-dtype-fp32", as_text("cuda_gpu_kern_sum", WIDE)),
    "older quantisation, nvprof": ("quant-kernel-legacy", as_nvprof("cuda_gpu_kern_sum", OLDER)),
    "older quantisation, nsys stats as CSV": ("quant-kernel-legacy", as_csv("cuda_gpu_kern_sum", OLDER)),
}


@pytest.mark.parametrize("name", ASKED)
def test_kernels_that_hold_the_time_are_asked_about(name: str, clinic: Clinic) -> None:
    rule, text = ASKED[name]
    verdicts = clinic.told(text)
    finding = verdicts.finding(rule)
    assert verdicts.found == {rule, "trace-blind"}
    assert (finding["severity"], finding["gain"]) == ("medium", None)
    assert "?" in finding["verify"]


# ranges and calls of the operating system -----------------------------------------------------------------------------
RANGES = (
    " ** NVTX Range Summary (nvtx_sum):\n\n Time (%)  Total Time (ns)  Instances  Avg (ns)  Range\n"
    " --------  ---------------  ---------  --------  -----\n 60.0  90,000,000,000  2  45,000,000,000.0  :load\n"
    " 40.0  {:,}  200  25,000,000.0  :decode\n\n"
)
SYSTEM = (
    " ** OS Runtime Summary (osrt_sum):\n\n Time (%)  Total Time (ns)  Num Calls  Avg (ns)  Name\n"
    " --------  ---------------  ---------  --------  ----\n 92.0  410,000,000,000  {:,}  210.0  futex\n"
    " 8.0  31,000,000,000  312  99,358,974.3  poll\n\n"
)


def test_ranges_that_outlast_all_kernels_and_many_calls_of_the_system_are_asked_about(clinic: Clinic) -> None:
    verdicts = clinic.told(RANGES.format(30 * 10**9) + SYSTEM.format(1_900_000) + as_text("cuda_gpu_kern_sum", CALM))
    ranges, calls = verdicts.finding("trace-blind"), verdicts.finding("profiler-distorted")
    assert verdicts.found == {"trace-blind", "profiler-distorted"}
    assert (ranges["severity"], calls["severity"]) == ("medium", "info")
    assert "200 ranges `decode` take 30.0 s" in ranges["summary"]
    assert "the device idles for at least 60% of them" in ranges["summary"]
    assert "1,900,312 calls of the operating system" in calls["summary"]


def test_16_bit_products_marlin_tf32_short_ranges_and_few_calls_of_the_system_are_not(clinic: Clinic) -> None:
    verdicts = clinic.told(RANGES.format(13 * 10**9) + SYSTEM.format(4_200) + as_text("cuda_gpu_kern_sum", CALM))
    assert verdicts.found == {"trace-blind"}
    assert verdicts.finding("trace-blind")["severity"] == "info"


# the table of PyTorch's profiler ------------------------------------------------------------------------------------
AVERAGES = (
    "            Name     CPU total     Self CUDA   Self CUDA %    CUDA total  CUDA time avg    # of Calls  \n"
    "        aten::mm       8.102ms       0.000us         0.00%        2.101s      14.590ms           144  \n"
    "  {}       0.000us        2.101s        81.20%        2.101s      14.590ms           144  \n"
    "  void at::native::vectorized_elementwise_kernel<4, at::n       0.000us     301.100ms        11.63%     301.100ms"
    "       1.045ms           288  \n"
    "  cudaLaunchKernel       4.102ms       0.000us         0.00%       0.000us       0.000us           912  \n"
    "Self CPU time total: 2.612s\nSelf CUDA time total: 2.587s\n"
)


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x", {"wrong-dtype-fp32", "trace-blind"}),
        ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128", {"trace-blind"}),
    ],
)
def test_averages_of_operators_tell_kernels_beside_them(kernel: str, found: set[str], clinic: Clinic) -> None:
    assert clinic.told(AVERAGES.format(kernel)).found == found


HOST_ALONE = (
    "          Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls  \n"
    "  aten::linear         0.81%     137.648us       100.00%      17.004ms     212.554us            80  \n"
    "   aten::addmm        53.00%       9.013ms        96.75%      16.451ms     205.637us            80  \n"
    "   aten::copy_        42.90%       7.296ms        42.90%       7.296ms      91.195us            80  \n"
    "{}Self CPU time total: 17.004ms\n"
)
LAUNCHES = "  cudaLaunchKernel         3.29%     560.000us         3.29%     560.000us       7.000us            80  \n"


@pytest.mark.parametrize(
    ("calls", "told"), [("", "or the model ran on the CPU"), (LAUNCHES, "the device worked unseen")]
)
def test_a_table_without_a_column_of_the_device_is_no_measurement_of_it(calls: str, told: str, clinic: Clinic) -> None:
    verdicts = clinic.told(HOST_ALONE.format(calls))
    assert verdicts.first == "capture-fault"
    assert told in verdicts.finding("capture-fault")["summary"]
