"""Public cases in the words of other tools: columns of other names, tables behind commands, logs of other servers.

Evidence is reconstructed from the figures of C04 NVIDIA/nvidia-docker#1460, C05 vllm-project/vllm PR#41776, C12
jundot/omlx#1522, C14 ndif-team/nnsight#169, C15 AUTOMATIC1111/stable-diffusion-webui#11063, C16
NVIDIA/TensorRT-LLM#16827, C19 sgl-project/sglang-omni#907, C20 Project-MONAI/VLM-Surgical-Agent-Framework#5, C28
vllm-project/vllm#4238, C32 ROCm/ATOM PR#1210, C33 NVIDIA/TensorRT-LLM#1144, C34 rammsguns/llm-rig#100 and C40
NVIDIA/DeepLearningExamples#1336. Tables that tell of different things are diagnosed together: each speaks for itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import doctor
from tests.support import oom_texts
from tests.support.verdicts import Clinic

# tables ---------------------------------------------------------------------------------------------------------------
CLOCKS = "| SM clock (MHz) | requests/s | GPU util |\n|---|---|---|\n| 1980 | 11.2 | 58% |\n| 900 | {} | 71% |\n"
FLAGS = (
    '{{"backend": "vllm", "variant": "--enforce-eager", "output_tokens_per_s": {}, "batch_size": 1}}\n'
    '{{"backend": "vllm", "variant": "default", "output_tokens_per_s": 45.9, "batch_size": 1}}\n'
)
EXPERTS = (
    "| EPLB | redundant experts | throughput (req/s) |\n|---|---|---|\n| off | 0 | 6.48 |\n| on | 0 | {} |\n"
    "| on | 64 | {} |\n"
)
LAYOUTS = (
    "$ trtllm-build --checkpoint_dir ./llama13b --pp_size 4 --tp_size 1\n"
    "tp,pp,req_rate,latency_p90_s,throughput_req_s\n4,1,3,6.4,3.0\n2,2,3,{},2.9\n1,4,3,{},{}\n"
)
PROFILES = "machine;with nsys;wall time\nH100;no;5m29s\nH100;yes;{}\nA100;no;3m51s\nA100;yes;{}\n"
RULES = {"host-dispatch-bound", "cudagraph-off", "moe-expert-imbalance", "pp-bubble", "profiler-distorted"}


def test_tables_of_five_cases_are_read_whatever_their_columns_are_called(clinic: Clinic) -> None:
    verdicts = clinic.told(
        CLOCKS.format(10.1),
        FLAGS.format(11.2),
        EXPERTS.format(7.56, 8.68),
        LAYOUTS.format(10.2, 41.7, 1.9),
        PROFILES.format("23m16s", "7m49s"),
    )
    assert verdicts.found == RULES
    assert "takes 6.5 times as long" in verdicts.finding("pp-bubble")["summary"]


def test_the_same_tables_turn_where_both_ways_are_equal(clinic: Clinic) -> None:
    verdicts = clinic.told(
        CLOCKS.format(5.2),
        FLAGS.format(45.0),
        EXPERTS.format(6.5, 6.6),
        LAYOUTS.format(6.5, 6.9, 2.9),
        PROFILES.format("5m40s", "3m59s"),
    )
    assert not verdicts.found & RULES


OTHERS = (
    "| load | tokens/s (A100, batch 1) |\n|---|---|\n| bf16 | 25.1 |\n| load_in_8bit=True | {} |\n",
    "| cpu offload (GiB) | output tok/s |\n|---|---|\n| 0 | 41.0 |\n| 20 | {} |\n",
    "config, output tok/s\nenable_prefix_caching=False, {}\nenable_prefix_caching=True, 81.8\n",
    '{{"output_throughput": 600, "median_itl_ms": 18, "p99_itl_ms": {}, "concurrency": 64, "random_input_len": 16000}}',
    "timestamp,pid,rss_mb\n",
)
OTHER_RULES = {
    "quant-kernel-legacy", "offload-bandwidth-bound", "prefix-cache-off", "prefill-blocks-decode", "host-memory-leak",
}  # fmt: skip


def resident(growth_mb: int) -> str:
    """A process' resident memory, a row a minute."""
    return "".join(f"{60 * minute},4412,{9000 + growth_mb * minute}\n" for minute in range(48))


def test_more_tables_of_two_ways_and_their_equals(clinic: Clinic) -> None:
    worse = (5.2, 5.9, 46.5, 610, "")
    told = [text.format(value) for text, value in zip(OTHERS, worse, strict=True)]
    assert clinic.told(*told[:-1], told[-1] + resident(85)).found >= OTHER_RULES
    equal = (24.0, 38.0, 80.0, 40, "")
    told = [text.format(value) for text, value in zip(OTHERS, equal, strict=True)]
    assert not clinic.told(*told[:-1], told[-1] + resident(1)).found & OTHER_RULES


@pytest.mark.parametrize(
    "text",
    [
        "tp\tbatch\ttok/s\n1\t8\t100.5\n2\t8\t110.0\n",
        "  tp   batch size   tokens per second\n  --   ----------   ------\n   1           8   100.5\n   2   8   110\n",
        "results below\ntp;batch;throughput (tok/s)\n1;8;100.5\n2;8;110\n\nthat is all\n",
        "TP batch tok/s\n1 8 100.5\n2 8 110\n",
    ],
    ids=["tabs", "columns", "semicolons", "single spaces"],
)
def test_cells_may_be_parted_by_anything(text: str, tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_text(f"$ cat results\n{text}")
    with doctor.load(path) as case:
        rows = case.execute(
            "SELECT tensor_parallel_count, batch_count, output_token_hz FROM bench_row ORDER BY row_id"
        ).fetchall()
    assert rows == [(1, 8, 100.5), (2, 8, 110)]


def test_c28_a_model_that_one_device_holds_blames_the_width_before_the_link(clinic: Clinic) -> None:
    table = "| GPUs (TP) | requests/s | GPU util |\n|---|---|---|\n| 1 | 5.1 | 96 % |\n| 2 | 5.3 | 50 % |\n"
    links = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPHB\t0-31\t0\nGPU1\tPHB\t X \t0-31\t0\n"
    started = "$ trtllm-serve mistral-7b --tp_size 2 --backend pytorch\n"
    verdicts = clinic.told(started, table, links)
    assert verdicts.first == "tp-too-wide"
    assert verdicts.finding("interconnect-slow")["severity"] == "medium"
    assert clinic.told(started, links).first == "interconnect-slow"


# C16 ------------------------------------------------------------------------------------------------------------------
SERVED = (
    "$ cat extra.yml\nscheduler_config:\n  capacity_scheduler_policy: {policy}\n"
    "============ Serving Benchmark Result ============\n"
    "Successful requests:                     1000\nMaximum request concurrency:             256\n"
    "Output token throughput (tok/s):         95.70\nMean TTFT (ms):                          2204.11\n"
    "Median TPOT (ms):                        100.00\nP99 TPOT (ms):                           1111.00\n"
    "==================================================\n"
)


def test_c16_a_tail_of_tokens_under_the_policy_is_a_suspicion_and_under_the_other_none(clinic: Clinic) -> None:
    finding = clinic.told(SERVED.format(policy="MAX_UTILIZATION")).finding("kv-preemption-thrash")
    assert (finding["severity"], finding["confidence"]) == ("medium", 0.5)
    assert "kv-preemption-thrash" not in clinic.told(SERVED.format(policy="GUARANTEED_NO_EVICT")).found


# C34 ------------------------------------------------------------------------------------------------------------------
COLUMNS = (
    "index, name, utilization.gpu [%], clocks.sm [MHz], clocks.max.sm [MHz], temperature.gpu, power.draw [W],"
    " power.limit [W], clocks_event_reasons.sw_thermal_slowdown, clocks_event_reasons.hw_thermal_slowdown,"
    " clocks_event_reasons.sw_power_cap\n"
)


def test_c34_clocks_that_only_heat_or_a_limit_explains_though_no_reason_is_active(clinic: Clinic) -> None:
    devices = ((0, 92, 80.0, 140), (1, 61, 99.5, 100), (2, 58, 60.0, 140))
    rows = [
        f"{index}, NVIDIA RTX A4000, 99 %, {600 + 20 * look + index} MHz, 2100 MHz, {celsius}, {watts} W, {limit} W,"
        " Not Active, Not Active, Not Active\n"
        for look in range(6)
        for index, celsius, watts, limit in devices
    ]
    verdicts = clinic.told(COLUMNS + "".join(rows))
    assert verdicts.found == {"thermal-throttle", "power-capped"}
    assert "the driver names no reason" in verdicts.finding("thermal-throttle")["summary"]
    assert verdicts.finding("thermal-throttle")["title"].endswith("GPU 0")
    assert verdicts.finding("power-capped")["title"].endswith("GPU 1")


# memory ---------------------------------------------------------------------------------------------------------------
def guarded(after: str) -> str:
    """A server that watches its own memory, and what it says of it afterwards."""
    return (
        "2026-02-11 09:14:05,910 - omlx.scheduler - INFO - Prefill chunk 2048 tokens, active memory 24.6 GB\n"
        "2026-02-11 09:14:09,122 - omlx.memory - ERROR - Memory guard: active memory 42.8 GB exceeds ceiling 42.0 GB"
        " during prefill, aborting request\n"
        f"2026-02-11 09:14:09,480 - omlx.memory - INFO - Active memory after abort: {after}\n"
    )


def test_c12_a_servers_own_limit_is_a_peak_where_memory_falls_back(clinic: Clinic) -> None:
    assert clinic.told(guarded("24.6 GB")).first == "prefill-activation-peak"
    assert "prefill-activation-peak" not in clinic.told(guarded("41.9 GB")).found


def test_c14_levels_in_a_table_of_a_training_log(clinic: Clinic) -> None:
    rows = "".join(f"| {step} | {2 - step / 100:.2f} | {34.2 + 0.41 * step:.2f} |\n" for step in range(48))
    assert clinic.told(f"| step | loss | cuda_alloc_gb |\n|---|---|---|\n{rows}").first == "memory-leak-growth"


TASK_MANAGER = "Dedicated GPU memory usage: 11.8 / 12.0 GB\nShared GPU memory usage: {} / 15.9 GB\n"


def test_c15_shared_memory_in_task_manager_is_what_has_spilled(clinic: Clinic) -> None:
    assert clinic.told(TASK_MANAGER.format("6.3")).first == "wddm-sysmem-fallback"
    assert "wddm-sysmem-fallback" not in clinic.told(TASK_MANAGER.format("0.3")).found


def test_c05_the_engines_size_stands_in_a_line_that_complains_of_nothing(clinic: Clinic) -> None:
    started = (
        "INFO 05-07 11:02:31 [gpu_worker.py:205] Free memory on device (39.10/39.39 GiB) on startup. Desired GPU memory"
        " utilization is (0.9, 35.45 GiB).\n"
    )
    failed = oom_texts.of_today(
        tried="1.12 GiB",
        total="19.50 GiB",
        free="310.00 MiB",
        own="19.10 GiB",
        allocated="18.20 GiB",
        unallocated="210.00 MiB",
    )
    assert clinic.told(started + failed).first == "mig-memory-misread"


REPORT = """==============NVSMI LOG==============

Timestamp                                 : Tue May 14 10:11:12 2024
Attached GPUs                             : 1
GPU 00000000:3B:00.0
    Product Name                          : NVIDIA GeForce GTX 1080 Ti
    FB Memory Usage
        Total                             : 11178 MiB
        Used                              : 814 MiB
        Free                              : 10280 MiB
    Utilization
        Gpu                               : 78 %
    Processes
        Process ID                        : 24711
            Type                          : C
            Name                          :
            Used GPU Memory               : 811 MiB
"""


def test_c04_a_process_that_a_whole_list_does_not_hold_is_not_visible_from_here(clinic: Clinic) -> None:
    inside = "    PID    PPID STAT COMMAND\n      1       0 Ss   bash\n     62       1 R+   ps\n"
    assert "hidden-owner-pid-namespace" in clinic.told(REPORT, inside).found
    part = inside.replace("      1       0 Ss   bash\n", "")
    assert "hidden-owner-pid-namespace" not in clinic.told(REPORT, part).found
