"""Public cases as short lists and as tables of other columns: a label and a figure a line, decimal commas.

Evidence is reconstructed from the figures of C12 jundot/omlx#1522, C14 ndif-team/nnsight#169, C16
NVIDIA/TensorRT-LLM#16827, C20 Project-MONAI/VLM-Surgical-Agent-Framework#5, C25 huggingface/transformers#21681, C27
vllm-project/vllm#21376, C28 vllm-project/vllm#4238, C31 local-inference-lab/rtx6kpro PR#88, C32 ROCm/ATOM PR#1210,
C33 NVIDIA/TensorRT-LLM#1144, C39 vllm-project/vllm PR#24343 and C40 NVIDIA/DeepLearningExamples#1336. Each text stands
beside one in which the tempting cause is true.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import doctor
from doctor.errors import UnknownEvidenceError
from doctor.readers.bench_rows import number_of
from tests.support.verdicts import Clinic

POLICIES = (
    "| scheduler policy | out tok/s | TPOT p99 (ms) | paused requests |\n|---|---:|---:|---:|\n"
    "| MAX_UTILIZATION | {} | {} | {} |\n| GUARANTEED_NO_EVICT | 161,0 | 122 | 0 |\n"
)
USAGE = "policy,throughput_tok_s,kv_usage,paused\nGUARANTEED_NO_EVICT,161.0,0.97,0\nMAX_UTILIZATION,{},1.0,{}\n"
EAGER = "with `--enforce-eager`: {} tok/s\nwithout: 45.9 tok/s\n"
METHODS = "llama3.1 8B INT4\n--quantization awq: {} tok/s\nno flag (awq_marlin): 123 tok/s\n"
LAYOUTS = "13B, 4xA100, 3 req/s\nTP4 {bar} 6.4 s\nPP2xTP2 {bar} {two} s\nPP4 {bar} {four} s\n"
LAYOUT_ROWS = "config,latency p90 (s),throughput (req/s)\nTP4,6.4,3.0\nPP2xTP2,{},2.9\nPP4,{},{}\n"
DRAFTS = "| k | accept length | tok/s |\n|---|---|---|\n| 1 | 1.63 | 108.5 |\n| 32 | {} | {} |\n"
ROUTED = (
    "Tokens routed per EP rank over 500 steps:\n- rank 0: 512,000\n- rank 1: 498,112\n- rank 2: {}\n- rank 3: 505,000\n"
)
PROFILED = "| GPU | without nsys | with nsys |\n|---|---|---|\n| H100 | 5m29s | {} |\n| A100 | 3m51s | {} |\n"
RANKS = (
    "| EP rank | tokens per step | MoE GEMM (ms) |\n|---|---|---|\n| 0 | {} | 9.8 |\n| 1 | 1530 | 3.1 |\n"
    "| 2 | 1,490 | 3.0 |\n| 3 | 1505 | 3.0 |\n"
)
WIDTHS = "| GPUs | tok/s |\n|---|---|\n| 1x 4090 | 51 |\n| 2x 4090 (TP=2) | {} |\n"
LINKS = (
    "index; name; utilization.gpu [%]; pcie.link.gen.current; pcie.link.gen.max; pcie.link.width.current;"
    " pcie.link.width.max; power.draw [W]\n" + "0; NVIDIA RTX PRO 6000; {}; {}; 5; 16; 16; 288,5 W\n" * 5
)
LEVELS = "time,phase,memory_gb\n" + "".join(f"{second}.0,{{}},{{}}\n" for second in range(10))
STEPS = "".join(f"[10:{step:02d}:00] step={step} mem_alloc={{}}00 MiB mem_reserved=61000 MiB\n" for step in range(30))
CELLS = "flags | tok/s\n--- | ---\n{} | {}\n{} | 45,9\n"
SESSION = (
    ">>> m = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-2-13b-hf', device_map='auto')\n>>> m.dtype\n"
    "torch.{}\n>>> m.get_memory_footprint()/1e9\n{}\n"
)


def _levels(*levels: float) -> str:
    return LEVELS.format(*(part for level in levels for part in ("prefill" if level > 30 else "decode", level)))


FORMS = {
    "C12": ("prefill-activation-peak", _levels(24.5, 24.6, 24.6, 31.9, 42.8, 24.7, 24.6, 24.6, 24.6, 24.6),
            _levels(24.5, 26.6, 28.6, 31.9, 34.8, 36.7, 38.6, 40.6, 42.6, 42.8)),
    "C16 commas": ("kv-preemption-thrash", POLICIES.format("95,7", 1111, 318), POLICIES.format("160,2", 124, 0)),
    "C16 beside the usage": ("kv-preemption-thrash", USAGE.format(95.7, 412), USAGE.format(160.1, 0)),
    "C20": ("cudagraph-off", EAGER.format(11.2), EAGER.format(45.1)),
    "C25": ("wrong-dtype-fp32", SESSION.format("float32", 52.06), SESSION.format("bfloat16", 26.03)),
    "C27": ("quant-kernel-legacy", METHODS.format(23), METHODS.format(119)),
    "C28": ("tp-too-wide", WIDTHS.format(52), WIDTHS.format(98)),
    "C31": ("pcie-link-degraded", LINKS.format(*("100 %", 2) * 5), LINKS.format(*("0 %", 1) * 5)),
    "C32": ("moe-expert-imbalance", RANKS.format("5,210"), RANKS.format("1,560")),
    "C33": ("pp-bubble", LAYOUTS.format(bar="|", two=10.2, four=31), LAYOUTS.format(bar="|", two=6.5, four=6.9)),
    "C33 colons": ("pp-bubble", LAYOUTS.format(bar=":", two=10.2, four=44), LAYOUTS.format(bar=":", two=6.5, four=6.9)),
    "C32 under a heading": ("moe-expert-imbalance", ROUTED.format("1,610,304"), ROUTED.format("530,304")),
    "C33 as CSV": ("pp-bubble", LAYOUT_ROWS.format(10.2, 41.7, 1.9), LAYOUT_ROWS.format(6.6, 6.9, 3.0)),
    "C39 by k": ("spec-not-paying", DRAFTS.format(2.18, 48.3), DRAFTS.format(9.18, 348.3)),
    "C14": ("memory-leak-growth", STEPS.format(*range(30, 60)), STEPS.format(*[30] * 30)),
    "C20 as two cells": ("cudagraph-off", CELLS.format("recipe (`--enforce-eager`)", "11,2", "flag removed"),
                         CELLS.format("recipe (`--enforce-eager`)", "45,1", "flag removed")),
    "C27 against no flag": ("quant-kernel-legacy", CELLS.format("`--quantization awq`", 9, "(none)"),
                            CELLS.format("`--quantization awq`", 44, "(none)")),
    "C40 list": ("profiler-distorted", "H100 without nsys: 5m29s\nH100 with nsys: 23m16s\n",
                 "H100 without nsys: 5m29s\nH100 with nsys: 5m36s\n"),
    "C40": ("profiler-distorted", PROFILED.format("23m16s", "7m49s"), PROFILED.format("5m41s", "3m59s")),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "text", "flipped"), FORMS.values(), ids=FORMS)
def test_the_form_is_read_and_turns_with_its_figures(rule: str, text: str, flipped: str, clinic: Clinic) -> None:
    assert clinic.told(text).first == rule
    if rule == "wrong-dtype-fp32":  # nothing is left to find in a model of 16 bits
        assert not clinic.told(flipped).found
    else:
        assert rule not in clinic.told(flipped).found


@pytest.mark.parametrize(
    ("told", "number"),
    [
        ("95,7", 95.7),
        ("1,234", 1234.0),
        ("1,234.5", 1234.5),
        ("12,345,678", 12_345_678.0),
        ("0,125", 0.125),
        ("7,25 s", 7.25),
    ],
)
def test_a_comma_parts_decimals_where_it_parts_no_thousands(told: str, number: float) -> None:
    assert number_of(told) == number


LOGS = (
    "[2026-01-01 10:00:01 TP1] Load weight end. took: 6.4 s\n[2026-01-01 10:00:02 TP2] Load weight end. took: 7.1 s\n",
    "without: see below\nbaseline: none\nTP=4\n",
    "graph capture took: 31 s\neager run took: 4 s later we stopped\n",
)


@pytest.mark.parametrize("text", LOGS)
def test_lines_of_a_log_are_no_list_of_results(text: str, tmp_path: Path) -> None:
    path = tmp_path / "evidence"
    path.write_text(text)
    try:
        with doctor.load(path) as case:
            assert case.execute("SELECT count(*) FROM bench_row").fetchall() == [(0,)]
    except UnknownEvidenceError:
        pass


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest"
         " NVIDIA driver is installed and running.\n", "cannot reach the NVIDIA driver"),
        ("{}\n", "without anything in it"),
        (" [ ]", "without anything in it"),
    ],
)  # fmt: skip
def test_what_tells_nothing_says_why(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "evidence"
    path.write_text(text)
    with pytest.raises(UnknownEvidenceError, match=words):
        doctor.load(path)


def test_a_message_that_a_container_s_prefix_breaks_is_put_together(clinic: Clinic) -> None:
    lines = (
        "ValueError: The model's max seq len (40960) is larger than the maximum number of",
        "tokens that can be stored in KV cache (12288). Try increasing",
        "`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
    )
    text = "".join(f"vllm_1  | {line}\n" for line in lines)
    assert clinic.told(text).first == "max-model-len-too-high"
