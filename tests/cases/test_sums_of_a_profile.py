"""Sums in place of a recording: what `nsys stats`, nvprof and PyTorch's profiler print, whole or pasted in part.

Evidence is reconstructed from the figures of C17 NVIDIA/TensorRT-LLM PR#16680, C18 kekzl/imp PR#1409 and C29
vllm-project/vllm PR#44677, in the tools' own forms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

import doctor
from tests.support.verdicts import Clinic

Row = tuple[str, int, int]
"""Name, calls, total in ns."""
RULES = {
    "sync-in-step", "pageable-copies", "comm-exposed", "alloc-in-hot-loop", "tiny-kernels", "quant-kernel-legacy",
    "wrong-dtype-fp32",
}  # fmt: skip

COPIES: dict[str, Sequence[Row]] = {
    "cuda_api_sum": [
        ("cudaMemcpyAsync", 90_759, 4_130_000_000),
        ("cudaStreamSynchronize", 91_230, 2_021_000_000),
        ("cudaLaunchKernel", 310_000, 1_540_000_000),
    ],
    "cuda_gpu_kern_sum": [("void moe_ffn<(int)4, float>(T1 const *)", 310_000, 3_100_000_000)],
    "cuda_gpu_mem_time_sum": [("[CUDA memcpy Host-to-Device]", 90_759, 795_000_000)],
}
WAITS: dict[str, Sequence[Row]] = {
    "cuda_api_sum": [
        ("cudaStreamSynchronize", 3_200, 1_900_000_000),
        ("cudaLaunchKernel", 48_000, 230_000_000),
        ("cudaMemcpyAsync", 3_260, 40_000_000),
    ],
    "cuda_gpu_kern_sum": [("nvjet_tst_128x256", 24_000, 2_000_000_000), ("rms_norm_kernel", 24_000, 400_000_000)],
    "cuda_gpu_mem_time_sum": [("[CUDA memcpy HtoD]", 3_260, 4_000_000)],
}
REDUCTIONS: dict[str, Sequence[Row]] = {
    "cuda_gpu_kern_sum": [
        ("nvjet_tst_192x192", 512, 838_000_000),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)", 128, 248_000_000),
    ],
}
FAULTS = {"pageable-copies": COPIES, "sync-in-step": WAITS, "comm-exposed": REDUCTIONS}
HEADINGS = {
    "cuda_api_sum": ("Num Calls", "Name"),
    "cuda_gpu_kern_sum": ("Instances", "Name"),
    "cuda_gpu_mem_time_sum": ("Count", "Operation"),
}


def _cells(rows: Sequence[Row]) -> list[list[str]]:
    whole = sum(total for _, _, total in rows)
    return [
        [f"{100 * t / whole:.1f}", str(t), str(n), f"{t / n:.1f}", f"{t / n:.1f}", "900", "90000", "12.5", name]
        for name, n, t in rows
    ]


def as_text(report: str, rows: Sequence[Row]) -> str:
    count, name = HEADINGS[report]
    title = f" ** CUDA Summary ({report}):\n\n"
    head = f" Time (%)  Total Time (ns)  {count}  Avg (ns)  Med (ns)  Min (ns)  Max (ns)  StdDev (ns)  {name}\n"
    lines = [
        f"  {share:>8}  {int(total):>15,}  {int(n):>9,}  " + "  ".join(rest) for share, total, n, *rest in _cells(rows)
    ]
    return title + head + " --------  ---------------  ---------  ---\n" + "\n".join(lines) + "\n\n"


def as_csv(report: str, rows: Sequence[Row]) -> str:
    count, name = HEADINGS[report]
    head = f"Time (%),Total Time (ns),{count},Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),{name}\n"
    return head + "".join(",".join([*cells, f'"{name}"']) + "\n" for *cells, name in _cells(rows)) + "\n"


def as_bars(report: str, rows: Sequence[Row]) -> str:
    count, name = HEADINGS[report]
    head = (
        f"| Time (%) | Total Time (ns) | {count} | Avg (ns) | Med (ns) | Min (ns) | Max (ns) | StdDev (ns) | {name} |\n"
    )
    return head + "|" + "---|" * 9 + "\n" + "".join("| " + " | ".join(cells) + " |\n" for cells in _cells(rows)) + "\n"


def as_pasted_rows(report: str, rows: Sequence[Row]) -> str:
    return "what nsys says:\n" + "\n".join("> " + "   ".join(cells) for cells in _cells(rows)) + "\n"


def as_nvprof(report: str, rows: Sequence[Row]) -> str:
    what = "API calls" if report == "cuda_api_sum" else "GPU activities"
    lines = [
        f"{what + ':' if place == 0 else '':>16}  {share}%  {int(total) / 1e6:.3f}ms  {n}  {float(mean) / 1e3:.3f}us"
        f"  1.0000us  9.0000ms  {name}"
        for place, (share, total, n, mean, *_, name) in enumerate(_cells(rows))
    ]
    head = (
        ""
        if report == "cuda_api_sum"
        else "==7== Profiling result:\n            Type  Time(%)  Time  Calls  Avg  Min  Max  Name\n"
    )
    return head + "\n".join(lines) + "\n"


FORMS = (as_text, as_csv, as_bars, as_pasted_rows, as_nvprof)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_every_form_gives_the_same_rows(form: Callable[[str, Sequence[Row]], str], clinic: Clinic) -> None:
    ordered = sorted(COPIES.items(), key=lambda item: item[0] == "cuda_api_sum")
    path = clinic.folder / "sums"
    path.write_text("".join(form(report, rows) for report, rows in ordered))
    with doctor.load(path) as case:
        told = case.execute(
            "SELECT report, text, call_count, total_ns FROM profile_sum JOIN text ON text_id = name_id"
        ).fetchall()
    kinds = {"cuda_api_sum": "api", "cuda_gpu_kern_sum": "kernel", "cuda_gpu_mem_time_sum": "copy"}
    assert told == [(kinds[report], *row) for report, rows in ordered for row in rows]


@pytest.mark.parametrize("rule", FAULTS)
def test_each_fault_is_told_by_its_sums_as_a_question(rule: str, clinic: Clinic) -> None:
    verdicts = clinic.told("".join(as_text(report, rows) for report, rows in FAULTS[rule].items()))
    assert verdicts.first == rule
    assert verdicts.found & RULES == {rule}
    finding = verdicts.finding(rule)
    assert finding["severity"] == "medium"
    assert finding["gain"] is None
    assert "nsys profile --trace" in verdicts.finding("trace-blind")["fixes"][0]["setting"]


def test_tables_in_a_file_each_are_one_profile(clinic: Clinic) -> None:
    verdicts = clinic.told(*(as_csv(report, rows) for report, rows in COPIES.items()))
    assert verdicts.evidence("pageable-copies", "time in calls against the device's") == pytest.approx(4130 / 795)


def test_a_paste_without_its_last_rows_keeps_the_shares_that_it_tells(clinic: Clinic) -> None:
    lines = as_text("cuda_api_sum", COPIES["cuda_api_sum"]).splitlines()
    verdicts = clinic.told("\n".join(lines[:5]))
    assert verdicts.evidence("pageable-copies", "copying calls") == pytest.approx(0.537, abs=0.001)
    assert verdicts.finding("pageable-copies")["confidence"] < 0.5


HEALTHY: dict[str, dict[str, Sequence[Row]]] = {
    "a wait a step, behind a busy device": {
        "cuda_api_sum": [("cudaStreamSynchronize", 128, 9_400_000_000), ("cudaLaunchKernel", 61_000, 300_000_000)],
        "cuda_gpu_kern_sum": [("nvjet_tst_128x256", 30_000, 9_000_000_000), ("rms_norm", 31_000, 600_000_000)],
    },
    "a graph and a wait a step": {
        "cuda_api_sum": [("cudaGraphLaunch_v10000", 1_000, 40_000_000), ("cudaEventSynchronize", 1_000, 900_000_000)],
        "cuda_gpu_kern_sum": [("flash_fwd_splitkv_kernel", 300_000, 900_000_000)],
    },
    "pinned copies": {
        "cuda_api_sum": [("cudaMemcpyAsync", 9_000, 45_000_000), ("cudaLaunchKernel", 90_000, 400_000_000)],
        "cuda_gpu_kern_sum": [("nvjet_tst_128x256", 90_000, 2_000_000_000)],
        "cuda_gpu_mem_time_sum": [("[CUDA memcpy HtoD]", 9_000, 700_000_000)],
    },
    "a token read at the end of each step": {
        "cuda_api_sum": [("cudaMemcpyAsync", 500, 8_000_000_000), ("cudaLaunchKernel", 300_000, 1_500_000_000)],
        "cuda_gpu_kern_sum": [("nvjet_tst_128x256", 300_000, 9_000_000_000)],
        "cuda_gpu_mem_time_sum": [("[CUDA memcpy DtoH]", 500, 900_000)],
    },
    "collectives that are short": {
        "cuda_gpu_kern_sum": [("nvjet_tst", 6_400, 900_000_000), ("ncclDevKernel_AllReduce", 128, 40_000_000)]
    },
    "a pool that is filled once": {
        "cuda_api_sum": [("cudaMalloc", 400, 900_000_000), ("cudaLaunchKernel", 90_000, 400_000_000)],
        "cuda_gpu_kern_sum": [("nvjet_tst", 90_000, 2_000_000_000)],
    },
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_sums_are_no_finding_but_their_limits(name: str, clinic: Clinic) -> None:
    verdicts = clinic.told("".join(as_text(report, rows) for report, rows in HEALTHY[name].items()))
    assert verdicts.found == {"trace-blind"}
    assert verdicts.finding("trace-blind")["severity"] == "info"


def test_long_waits_that_are_few_are_cleared(clinic: Clinic) -> None:
    sums = HEALTHY["a wait a step, behind a busy device"]
    verdicts = clinic.told("".join(as_text(report, rows) for report, rows in sums.items()))
    assert "one for 477 kernels" in verdicts.ruled_out["sync-wait-only"]


def test_allocations_in_every_layer_and_kernels_shorter_than_their_launches_are_told(clinic: Clinic) -> None:
    allocating = [
        ("cudaMalloc", 20_000, 800_000_000),
        ("cudaFree", 20_000, 900_000_000),
        ("cudaLaunchKernel", 90_000, 4 * 10**8),
    ]
    kernels = [("nvjet_tst", 90_000, 2_000_000_000)]
    verdicts = clinic.told(as_text("cuda_api_sum", allocating) + as_text("cuda_gpu_kern_sum", kernels))
    assert verdicts.found == {"alloc-in-hot-loop", "trace-blind"}
    launching = [("cudaLaunchKernel", 310_000, 1_700_000_000)]
    tiny = [("vectorized_elementwise_kernel", 310_000, 682_000_000)]
    verdicts = clinic.told(as_text("cuda_api_sum", launching) + as_text("cuda_gpu_kern_sum", tiny))
    assert verdicts.found == {"tiny-kernels", "trace-blind"}
    assert "elementwise 310000" in verdicts.finding("tiny-kernels")["summary"]


def test_of_two_profiles_in_one_paste_each_is_compared_with_itself(clinic: Clinic) -> None:
    before = as_text("cuda_api_sum", WAITS["cuda_api_sum"]) + as_text("cuda_gpu_kern_sum", WAITS["cuda_gpu_kern_sum"])
    calm = HEALTHY["a wait a step, behind a busy device"]
    after = as_text("cuda_api_sum", calm["cuda_api_sum"]) + as_text("cuda_gpu_kern_sum", calm["cuda_gpu_kern_sum"])
    assert clinic.told(before + after).evidence("sync-in-step", "waiting calls") == 3200


OPERATORS = (
    f"{'-' * 20}  {'-' * 12}\n"
    "   Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg     Self CUDA   Self CUDA %"
    "    CUDA total  CUDA time avg    # of Calls  \n"
    f"{'-' * 20}  {'-' * 12}\n"
    "   aten::item  0.30%  3.100ms  42.10%  431.000ms  53.875us  0.000us  0.00%  4.100ms  0.512us  8000\n"
    "   cudaStreamSynchronize  40.10%  410.000ms  40.10%  410.000ms  51.250us  0.000us  0.00%  0.000us  0.000us  {}\n"
    "   cudaLaunchKernel  30.10%  310.000ms  30.10%  310.000ms  3.875us  0.000us  0.00%  0.000us  0.000us  80000\n"
    "   void at::native::elementwise_kernel<128, 2>...  0.00%  0.000us  0.00%  0.000us  0.000us  420.100ms  71.90%"
    "  420.100ms  6.137us  70000\n"
    "Self CPU time total: 1.023s\n"
)  # fmt: skip


@pytest.mark.parametrize(("wait_count", "is_found"), [(8000, True), (80, False)])
def test_the_table_of_pytorch_s_profiler_is_read_alike(wait_count: int, is_found: bool, clinic: Clinic) -> None:
    verdicts = clinic.told(OPERATORS.format(wait_count))
    assert ("sync-in-step" in verdicts.found) == is_found


def test_totals_that_no_run_can_have_are_no_fault_of_the_reader(clinic: Clinic) -> None:
    heading = " Time (%)  Total Time (ns)  Num Calls  Avg (ns)  Name\n"
    names = ("cudaLaunchKernel", "cudaMalloc", "cudaMemcpyAsync")
    rows = "".join(f" 25.0  4000000000000000000  540112  18,352.4  {name}\n" for name in names)
    verdicts = clinic.told(f" ** CUDA API Summary (cuda_api_sum):\n\n{heading}{rows}")
    assert verdicts.finding("trace-blind")["severity"] == "info"


def test_numbers_keep_their_units_and_names_their_commas(clinic: Clinic) -> None:
    text = (
        "Time (%);Total Time (ms);Instances;Avg (ms);Name\n60,5;1.234,5;1000;1,2345;void f<int, (bool)0>(int*, int)\n"
        "\n Time(%)  Total Time (ns)  Instances  Average  Minimum  Maximum  Name\n"
        " 39.5  1000  10  100.0  90  120  void g<a, b>(c, d)\n"
    )
    path = clinic.folder / "sums"
    path.write_text(text)
    with doctor.load(path) as case:
        rows = case.execute(
            "SELECT text, total_ns, call_count FROM profile_sum JOIN text ON text_id = name_id"
        ).fetchall()
    assert rows == [("void f<int, (bool)0>(int*, int)", 1_234_500_000, 1000), ("void g<a, b>(c, d)", 1000, 10)]
