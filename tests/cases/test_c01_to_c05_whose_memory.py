"""Public cases in which the memory is somebody else's, or the wrong device's.

Evidence is reconstructed from their figures: C01 hiyouga/LlamaFactory#182, C02 ostris/ai-toolkit#277, C03 a post on
memory without an owner, C04 NVIDIA/nvidia-docker#1460, C05 vllm-project/vllm PR#41776, S01 xorbitsai/inference#1212,
S02 vllm-project/vllm#34643, S03 vllm-project/vllm-omni PR#3768, S04 vllm-project/vllm#55827. Each also runs with its
tempting cause made true, which must turn the verdict.
"""

from __future__ import annotations

from tests.support import oom_texts
from tests.support.verdicts import Clinic

FULL_TABLE = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
{gpus}
|-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
{processes}
+-----------------------------------------------------------------------------------------+
"""
NONE_RUNNING = "|  No running processes found                                                             |"


def table(gpus: list[tuple[int, int, int]], processes: list[tuple[int, int, str, int]] | str) -> str:
    """A screen of `nvidia-smi`: used MiB, total MiB, busy % of each GPU; GPU, pid, name, MiB of each process."""
    rows = [
        f"|   {index}  NVIDIA A100-SXM4-80GB          On  |   00000000:0{index}:00.0 Off |                    0 |\n"
        f"| N/A   41C    P0             80W /  400W |{used:>7}MiB /{total:>7}MiB |{busy:>7}%      Default |\n"
        "|                                         |                        |             Disabled |\n"
        "+-----------------------------------------+------------------------+----------------------+"
        for index, (used, total, busy) in enumerate(gpus)
    ]
    if isinstance(processes, str):
        listed = processes
    else:
        listed = "\n".join(
            f"|    {gpu}   N/A  N/A {pid:>10}      C   {name:<42}{size:>8}MiB |" for gpu, pid, name, size in processes
        )
    return FULL_TABLE.format(gpus="\n".join(rows), processes=listed)


def ps(*rows: tuple[int, int, str, str]) -> str:
    """A table of ps: pid, parent, state, name."""
    return "    PID    PPID STAT COMMAND\n" + "".join(
        f"{pid:>7} {parent:>7} {state:<4} {name}\n" for pid, parent, state, name in rows
    )


# C01 -----------------------------------------------------------------------------------------------------------------
def wrong_device(reserved: str) -> str:
    """The failure of a run that has allocated 5.22 GiB of a card of 31.75."""
    return oom_texts.of_2020(
        tried="50.00 MiB", total="31.75 GiB", free="44.69 MiB", allocated="5.22 GiB", reserved=reserved
    )


def test_c01_the_job_ran_on_a_gpu_that_others_fill(clinic: Clinic) -> None:
    verdicts = clinic.told(wrong_device("5.22 GiB"))
    assert verdicts.first == "foreign-gpu-process"
    assert verdicts.found == {"foreign-gpu-process"}
    assert "probably" in verdicts.finding("foreign-gpu-process")["summary"]
    assert "0 B are reserved and unallocated, less than the 50.0 MiB" in verdicts.ruled_out["fragmentation"]


def test_c01_turns_when_the_allocator_holds_the_room_itself(clinic: Clinic) -> None:
    verdicts = clinic.told(wrong_device("30.50 GiB"))
    assert verdicts.first == "fragmentation"
    assert "foreign-gpu-process" in verdicts.ruled_out


# C02 -----------------------------------------------------------------------------------------------------------------
def test_c02_the_default_device_served_another_job(clinic: Clinic) -> None:
    verdicts = clinic.told(
        oom_texts.of_today(
            tried="24.00 MiB",
            total="39.38 GiB",
            free="3.81 MiB",
            others={12345: "38.88 GiB"},
            own="494.00 MiB",
            allocated="62.50 MiB",
            unallocated="17.50 MiB",
        )
    )
    assert verdicts.first == "foreign-gpu-process"
    assert verdicts.finding("foreign-gpu-process")["severity"] == "critical"
    assert verdicts.evidence("foreign-gpu-process", "share of the device held by others") > 0.98
    assert verdicts.ruled_out["fragmentation"] == (
        "17.5 MiB are reserved and unallocated, less than the 24.0 MiB that were asked for"
    )


def test_c02_turns_when_the_message_is_right_about_fragmentation(clinic: Clinic) -> None:
    verdicts = clinic.told(
        oom_texts.of_today(
            tried="24.00 MiB",
            total="39.38 GiB",
            free="3.81 MiB",
            own="39.37 GiB",
            allocated="32.50 GiB",
            unallocated="6.20 GiB",
        )
    )
    assert verdicts.first == "fragmentation"
    assert "foreign-gpu-process" not in verdicts.found


# C03 -----------------------------------------------------------------------------------------------------------------
def test_c03_threads_that_cannot_end_keep_the_memory(clinic: Clinic) -> None:
    stuck = ps((4711, 4700, "D", "python3"), (4712, 4700, "Dl", "python3"), (1, 0, "Ss", "systemd"))
    verdicts = clinic.told(table([(71000, 81920, 0)], NONE_RUNNING), stuck)
    assert verdicts.first == "orphan-or-zombie-memory"
    assert "hidden-owner-pid-namespace" not in verdicts.found


def test_c03_turns_in_a_container_that_cannot_see_the_owner(clinic: Clinic) -> None:
    verdicts = clinic.told(table([(71000, 81920, 97)], "|" + " " * 89 + "|"))
    assert "hidden-owner-pid-namespace" in verdicts.found
    assert "orphan-or-zombie-memory" not in verdicts.found


# C04 -----------------------------------------------------------------------------------------------------------------
def test_c04_the_owner_is_not_visible_from_inside_the_container(clinic: Clinic) -> None:
    verdicts = clinic.told(table([(814, 11178, 78)], "|" + " " * 89 + "|"))
    assert verdicts.first == "hidden-owner-pid-namespace"
    assert verdicts.finding("hidden-owner-pid-namespace")["severity"] == "info"


def test_c04_turns_when_nobody_runs_and_the_memory_is_held(clinic: Clinic) -> None:
    verdicts = clinic.told(table([(8140, 11178, 0)], NONE_RUNNING))
    assert verdicts.first == "orphan-or-zombie-memory"


def test_c04_own_process_is_no_foreign_one(clinic: Clinic) -> None:
    text = oom_texts.of_today(
        tried="1.00 GiB",
        total="22.06 GiB",
        free="0.60 GiB",
        others={77: "21.20 GiB"},
        allocated="20.10 GiB",
        unallocated="300.00 MiB",
    )
    assert "foreign-gpu-process" not in clinic.told(text).found


# C05 -----------------------------------------------------------------------------------------------------------------
def test_c05_the_id_of_a_slice_is_read_as_a_number(clinic: Clinic) -> None:
    text = (
        "INFO 04-02 10:00:00 [__init__.py:239] Automatically detected platform cuda.\n"
        + oom_texts.traceback(
            (
                "/usr/lib/python3/dist-packages/vllm/platforms/cuda.py",
                "device_id_to_physical_device_id",
                "return int(x)",
            )
        )
        + "ValueError: invalid literal for int() with base 10: 'MIG-0f1d2c3b-aaaa-bbbb-cccc-0123456789ab'\n"
    )
    assert clinic.told(text).first == "mig-memory-misread"


def started_on(total: str, capacity: str) -> str:
    """An engine's word on the size of its device, then CUDA's."""
    return (
        "INFO 04-02 10:00:00 [worker.py:267] the current vLLM instance can use total_gpu_memory"
        f" ({total}GiB) x gpu_memory_utilization (0.90) = {float(total) * 0.9:.2f}GiB\n"
    ) + oom_texts.of_today(
        tried="512.00 MiB",
        total=capacity,
        free="102.00 MiB",
        own="19.20 GiB",
        allocated="18.40 GiB",
        unallocated="120.00 MiB",
    )


def test_c05_the_engine_counts_with_the_parent_gpu(clinic: Clinic) -> None:
    verdicts = clinic.told(started_on("39.39", "19.50 GiB"))
    assert "mig-memory-misread" in verdicts.found
    assert verdicts.evidence("mig-memory-misread", "too large by") > 1.9


def test_c05_turns_when_the_sizes_agree(clinic: Clinic) -> None:
    assert "mig-memory-misread" not in clinic.told(started_on("19.50", "19.50 GiB")).found


# S01 -----------------------------------------------------------------------------------------------------------------
RESTARTED = oom_texts.of_today(
    tried="224.00 MiB",
    total="79.15 GiB",
    free="120.00 MiB",
    others={501: "52.00 GiB"},
    own="26.90 GiB",
    allocated="26.20 GiB",
    unallocated="40.00 MiB",
)
LEFT_OVER = table([(80900, 81920, 0)], [(0, 501, "python", 53248), (0, 900, "python", 27546)])


def test_s01_workers_of_the_last_run_keep_the_memory(clinic: Clinic) -> None:
    verdicts = clinic.told(RESTARTED, LEFT_OVER, ps((501, 1, "Sl", "python"), (900, 890, "Rl", "python")))
    assert verdicts.first == "orphan-or-zombie-memory"
    assert verdicts.finding("orphan-or-zombie-memory")["severity"] == "critical"
    assert "foreign-gpu-process" not in verdicts.found


def test_s01_turns_when_the_other_process_has_its_parent(clinic: Clinic) -> None:
    verdicts = clinic.told(RESTARTED, LEFT_OVER, ps((501, 480, "Sl", "python"), (900, 890, "Rl", "python")))
    assert verdicts.first == "foreign-gpu-process"
    assert "orphan-or-zombie-memory" not in verdicts.found


def test_s01_a_start_that_is_refused_for_what_the_last_run_left(clinic: Clinic) -> None:
    refused = (
        "(EngineCore pid=900) ValueError: Free memory on device cuda:0 (2.02/79.15 GiB) on startup is less than desired"
        " GPU memory utilization (0.92, 72.82 GiB). Decrease GPU memory utilization.\n"
    )
    orphan, child = ps((501, 1, "Sl", "VLLM::EngineCore")), ps((501, 480, "Sl", "VLLM::EngineCore"))
    screen = table([(78900, 81920, 0)], [(0, 501, "VLLM::EngineCore", 78848)])
    assert clinic.told(refused, screen, orphan).first == "orphan-or-zombie-memory"
    assert clinic.told(refused, screen, child).first == "foreign-gpu-process"


# S02 -----------------------------------------------------------------------------------------------------------------
SAMPLER = oom_texts.traceback(
    (
        "/opt/vllm/vllm/v1/worker/gpu_model_runner.py",
        "_get_prompt_logprobs_dict",
        "logprobs = self.sampler.compute_logprobs(logits)",
    ),
    (
        "/opt/vllm/vllm/v1/sample/sampler.py",
        "compute_logprobs",
        "return logits.log_softmax(dim=-1, dtype=torch.float32)",
    ),
)


def test_s02_the_named_process_is_the_run_itself(clinic: Clinic) -> None:
    verdicts = clinic.told(
        SAMPLER
        + oom_texts.of_today(
            tried="1.71 GiB",
            total="22.03 GiB",
            free="1.21 GiB",
            others={11: "248.00 MiB", 12: "248.00 MiB", 13: "20.28 GiB"},
            allocated="19.55 GiB",
            unallocated="180.00 MiB",
        )
    )
    assert verdicts.first == "logits-logprob-peak"
    assert verdicts.finding("own-pid-in-container")["severity"] == "info"
    assert "foreign-gpu-process" not in verdicts.found
    assert "extra-context-on-gpu0" not in verdicts.found


def test_s02_turns_when_the_process_is_another(clinic: Clinic) -> None:
    verdicts = clinic.told(
        SAMPLER
        + oom_texts.of_today(
            tried="1.71 GiB",
            total="22.03 GiB",
            free="0.21 GiB",
            others={11: "248.00 MiB", 13: "17.10 GiB"},
            allocated="3.55 GiB",
            unallocated="80.00 MiB",
        )
    )
    assert verdicts.first == "foreign-gpu-process"
    assert "own-pid-in-container" not in verdicts.found


# S03 -----------------------------------------------------------------------------------------------------------------
def test_s03_the_other_ranks_hold_a_context_on_gpu_0(clinic: Clinic) -> None:
    screen = table(
        [(41500, 81920, 95), (40000, 81920, 95), (40000, 81920, 95)],
        [
            (0, 10, "python", 40000),
            (0, 11, "python", 508),
            (0, 12, "python", 508),
            (1, 11, "python", 39900),
            (2, 12, "python", 39900),
        ],
    )
    verdicts = clinic.told(screen)
    assert verdicts.first == "extra-context-on-gpu0"
    assert verdicts.evidence("extra-context-on-gpu0", "processes") == 2


def test_s03_turns_when_each_rank_is_on_its_own_gpu(clinic: Clinic) -> None:
    screen = table([(40500, 81920, 95), (40000, 81920, 95)], [(0, 10, "python", 40000), (1, 11, "python", 39900)])
    assert "extra-context-on-gpu0" not in clinic.told(screen).found


# S04 -----------------------------------------------------------------------------------------------------------------
def start(minute: int, weights: str, kv: str) -> str:
    """The log of one start of vLLM, at a minute past eight."""
    return (
        f"INFO 11-20 20:{minute:02d}:00 [gpu_model_runner.py:1800] Starting to load model /models/m...\n"
        f"INFO 11-20 20:{minute:02d}:10 [gpu_model_runner.py:1850] Model loading took {weights} GiB and 8.1 seconds\n"
        f"INFO 11-20 20:{minute:02d}:40 [gpu_worker.py:276] Available KV cache memory: {kv} GiB\n"
    )


def test_s04_two_engines_were_sized_at_the_same_time(clinic: Clinic) -> None:
    verdicts = clinic.told(
        start(0, "5.80", "4.72"), start(10, "7.60", "2.82"), start(20, "5.80", "1.84"), start(20, "7.60", "-3.21")
    )
    assert verdicts.first == "shared-gpu-start-race"
    assert verdicts.evidence("shared-gpu-start-race", "lost") / 2**30 > 6


def test_s04_turns_when_they_start_one_after_the_other(clinic: Clinic) -> None:
    verdicts = clinic.told(start(0, "5.80", "4.72"), start(10, "7.60", "2.82"))
    assert "shared-gpu-start-race" not in verdicts.found


def test_s04_free_memory_that_grows_ends_the_start(clinic: Clinic) -> None:
    text = (
        "AssertionError: Error in memory profiling. Initial free memory 82.94 GiB, current free memory 90.17 GiB."
        " This happens when other processes sharing the same container release GPU memory while vLLM is profiling"
        " during initialization.\n"
    )
    assert clinic.told(text).first == "shared-gpu-start-race"
