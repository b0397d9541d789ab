"""Texts whose figures are missing, contradict each other, or come in forms that nobody reads as a whole.

Evidence is reconstructed from C12 jundot/omlx#1522, C15 AUTOMATIC1111/stable-diffusion-webui#11063, C21
sgl-project/sglang#33483, C33 NVIDIA/TensorRT-LLM#1144 and C36 NVIDIA/Isaac-GR00T#379.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import doctor
from doctor.errors import UnknownEvidenceError
from tests.support import oom_texts
from tests.support.verdicts import Clinic

CUT = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB\n"


# figures that are missing ---------------------------------------------------------------------------------------------
def test_a_message_without_a_total_says_no_zero(clinic: Clinic) -> None:
    frames = oom_texts.traceback(
        (
            "/site-packages/transformers/cache_utils.py",
            "update",
            "self.keys = torch.cat([self.keys, key_states], dim=-2)",
        )
    )
    summary = clinic.told(frames + CUT).finding("kv-unpaged-contiguous")["summary"]
    assert "1.50 GiB asked for" in summary
    assert "0 B" not in summary


def test_a_cut_message_behind_a_text_of_tgi_names_settings_of_tgi_first(clinic: Clinic) -> None:
    log = "2024-05-14T15:12:40Z ERROR text_generation_launcher: Shard 0 failed to start\n"
    fixes = clinic.told(log + CUT).finding("headroom-thin")["fixes"]
    assert [fix["target"] for fix in fixes][:2] == ["tgi", "pytorch"]


# figures that contradict each other -----------------------------------------------------------------------------------
MORE_THAN_THERE_IS = oom_texts.of_today(
    tried="2.00 GiB",
    total="23.69 GiB",
    free="0 bytes",
    own="23.50 GiB",
    allocated="26.30 GiB",
    unallocated="400.00 MiB",
)
WINDOWS_FRAME = 'Traceback (most recent call last):\n  File "C:\\Users\\u\\run.py", line 3, in <module>\n    x = f(y)\n'


def test_c15_more_than_there_is_needs_a_sign_of_windows(clinic: Clinic) -> None:
    verdicts = clinic.told(MORE_THAN_THERE_IS)
    assert "wddm-sysmem-fallback" not in verdicts.found
    assert "figures that do not belong together" in verdicts.finding("headroom-thin")["summary"]
    assert clinic.told(WINDOWS_FRAME + MORE_THAN_THERE_IS).first == "wddm-sysmem-fallback"


# one request too large for any card ----------------------------------------------------------------------------------
SCORES = oom_texts.of_today(
    tried="18.20 GiB",
    total="44.99 GiB",
    free="16.10 GiB",
    own="28.80 GiB",
    allocated="24.60 GiB",
    unallocated="3.90 GiB",
)
ATTENTION = oom_texts.traceback(
    (
        "/venv/site-packages/transformers/models/llama/modeling_llama.py",
        "eager_attention_forward",
        "attn_weights = nn.functional.softmax(attn_weights, dim=-1, dtype=torch.float32)",
    )
)


@pytest.mark.parametrize("text", [SCORES, ATTENTION + SCORES, SCORES + ATTENTION], ids=["alone", "above", "below"])
def test_c12_a_peak_is_a_peak_with_and_without_its_traceback(text: str, clinic: Clinic) -> None:
    assert clinic.told(text).found == {"prefill-activation-peak"}


def test_pieces_that_together_would_do_for_a_small_request_are_still_fragments(clinic: Clinic) -> None:
    small = SCORES.replace("18.20 GiB", "5.20 GiB").replace("16.10 GiB", "3.10 GiB").replace("28.80", "41.80")
    assert clinic.told(small.replace("24.60", "37.60")).first == "fragmentation"


# figures that are no rate ---------------------------------------------------------------------------------------------
def preempted(minute: int, count: int) -> str:
    """Two lines of vLLM V0: the state, and one preemption in fifty."""
    return (
        f"INFO 08-23 12:{minute:02d}:00 metrics.py:406] Avg prompt throughput: 100.0 tokens/s, Avg generation"
        " throughput: 50.0 tokens/s, Running: 20 reqs, Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 85.0%,"
        " CPU KV cache usage: 0.0%.\n"
        f"WARNING 08-23 12:{minute:02d}:05 scheduler.py:1481] Sequence group cmpl-f5a9-0 is preempted by"
        " PreemptionMode.RECOMPUTE mode because there is not enough KV cache space."
        f" total_num_cumulative_preemption={count}\n"
    )


def test_one_count_since_the_start_of_a_server_is_no_rate(clinic: Clinic) -> None:
    once = clinic.told(preempted(1, 51)).finding("kv-preemption-thrash")
    assert once["severity"] == "medium"
    assert "since the server started" in once["summary"]
    assert "a minute" not in once["summary"]
    twice = clinic.told(preempted(1, 51) + preempted(3, 101)).finding("kv-preemption-thrash")
    assert "25.0 a minute" in twice["summary"]


# few lines ------------------------------------------------------------------------------------------------------------
def decoding(running: int, graph: bool, count: int) -> str:
    """Decode lines of SGLang, a second apart."""
    return "".join(
        f"[2025-05-01 10:00:{second:02d} TP0] Decode batch. #running-req: {running}, #token: 2100, token usage: 0.02,"
        f" cuda graph: {graph}, gen throughput (token/s): 88.10, #queue-req: 0\n"
        for second in range(count)
    )


def test_four_decode_lines_without_a_graph_are_told_with_doubt(clinic: Clinic) -> None:
    finding = clinic.told(decoding(4, False, 4)).finding("cudagraph-off")
    assert finding["severity"] == "medium"
    assert finding["confidence"] < 0.9


def test_c21_a_batch_above_what_was_captured_is_no_sign_that_graphs_are_off(clinic: Clinic) -> None:
    settings = "server_args=ServerArgs(model_path='m', cuda_graph_max_bs=32, max_running_requests=4096)\n"
    assert clinic.told(settings + decoding(67, False, 8)).found == {"cudagraph-ceiling"}


# looks and logs -------------------------------------------------------------------------------------------------------
def looks(*used: int) -> str:
    """nvidia-smi, once a second."""
    rows = "".join(
        f"2026/01/10 10:01:{second:02d}.000, 0, {mib} MiB, 43008 MiB, 99 %\n" for second, mib in enumerate(used)
    )
    return f"timestamp, index, memory.used [MiB], memory.total [MiB], utilization.gpu [%]\n{rows}"


def test_c12_memory_that_peaks_for_one_look_and_falls_back(clinic: Clinic) -> None:
    assert clinic.told(looks(*[25190] * 9, 42900, *[25190] * 9)).first == "prefill-activation-peak"


def test_c12_turns_when_memory_stays_or_is_level(clinic: Clinic) -> None:
    grown = looks(*[25190] * 9, *[40000] * 9)
    assert not clinic.told(grown, decoding(4, True, 4)).found


def test_c36_a_log_that_says_how_long_each_request_took(clinic: Clinic) -> None:
    slow_after_silence = (
        (0, 41),
        (1, 40),
        (2, 42),
        (3, 40),
        (20, 210),
        (21, 41),
        (22, 40),
        (40, 205),
        (41, 40),
        (42, 41),
    )
    log = "".join(f"2025-05-01 10:00:{second:02d},000 inference took {ms} ms\n" for second, ms in slow_after_silence)
    verdicts = clinic.told(log, "index, pstate, persistence_mode\n0, P8, Disabled\n")
    assert verdicts.first == "idle-clock-ramp"


def test_c33_a_table_of_layouts_at_an_offered_rate(clinic: Clinic) -> None:
    table = "config,p90 latency (s),rate (req/s)\nTP4,6.4,3\nTP2PP2,10.2,3\nPP4,31.0,3\n"
    assert clinic.told(table).first == "pp-bubble"


def pipeline(running: int, waiting: int) -> str:
    """vLLM over four stages, two lines of its state."""
    return "$ vllm serve m --pipeline-parallel-size 4 --max-num-seqs 256\n" + "".join(
        f"INFO 06-01 10:00:{second:02d} [loggers.py:118] Engine 000: Avg prompt throughput: 900.0 tokens/s,"
        f" Avg generation throughput: 300.0 tokens/s, Running: {running} reqs, Waiting: {waiting} reqs,"
        " GPU KV cache usage: 40.0%, Prefix cache hit rate: 0.0%\n"
        for second in (0, 10)
    )


def test_c33_few_requests_in_four_stages_while_others_wait(clinic: Clinic) -> None:
    assert "leave the stages empty 38% of the time" in clinic.told(pipeline(5, 30)).finding("pp-bubble")["summary"]
    assert not clinic.told(pipeline(2, 0)).found


def test_c30_a_worker_called_by_its_rank_runs_beside_its_device(clinic: Clinic) -> None:
    topology = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV18\t0-71\t0\nGPU1\tNV18\t X \t72-143\t1\n"
    worker = "Name:\tVLLM::Worker_TP0\nPid:\t3312\nCpus_allowed_list:\t72-143\n"
    assert clinic.told(topology, worker).first == "numa-misplaced"


# forms ----------------------------------------------------------------------------------------------------------------
GPUSTAT = """gpu-node-7               Tue May 14 10:11:12 2024  535.129.03
[0] NVIDIA A100-SXM4-80GB | 34'C,   0 % |     3 / 81920 MB |
[1] NVIDIA A100-SXM4-80GB | 65°C,  40 %,  98 %,  310 / 400 W | 71002 / 81920 MB | alice:python/3099(70000M) bob(512M)
"""


def test_gpustat_tells_who_holds_what_and_no_owner(tmp_path: Path) -> None:
    path = tmp_path / "screen"
    path.write_text(GPUSTAT)
    with doctor.load(path) as case:
        devices = case.execute(
            "SELECT device_id, busy_share, power_watts, temperature_celsius, memory_used_bytes / 2 ** 20, process_list"
            " FROM gpu_sample ORDER BY device_id"
        ).fetchall()
        held = case.execute("SELECT device_id, pid, name, memory_bytes / 2 ** 20 FROM gpu_process").fetchall()
        everything = str([case.table(name).fetchall() for name in ("gpu_sample", "gpu_process", "source")])
    assert devices == [(0, 0.0, None, 34.0, 3, "empty"), (1, 0.98, 310.0, 65.0, 71002, "listed")]
    assert held == [(1, 3099, "python", 70000), (1, None, None, 512)]
    assert not any(secret in everything for secret in ("alice", "bob", "gpu-node-7"))


def test_processes_by_uuid_are_numbered_in_the_order_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "apps.csv"
    path.write_text(
        "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\nGPU-a, 10, python, 40000 MiB\nGPU-a, 11, python, 508 MiB\n"
        "GPU-b, 11, python, 39900 MiB\n"
    )
    with doctor.load(path) as case:
        rows = case.execute("SELECT device_id, pid FROM gpu_process ORDER BY device_id, pid").fetchall()
        [(notes,)] = case.execute("SELECT notes FROM source").fetchall()
    assert rows == [(0, 10), (0, 11), (1, 11)]
    assert "in the order" in notes


def test_the_iterations_of_tensorrt_llm_are_read_as_json(tmp_path: Path) -> None:
    iteration = json.dumps(
        {
            "iterLatencyMS": 130.5,
            "kvCacheStats": {"maxNumBlocks": 1000, "usedNumBlocks": 990},
            "inflightBatchingStats": {"numScheduledRequests": 96, "numPausedRequests": 6},
            "numQueuedRequests": 200,
        }
    )
    path = tmp_path / "metrics.json"
    path.write_text(f"[{iteration}, {iteration}, {iteration[:60]}")
    with doctor.load(path) as case:
        samples = case.execute(
            "SELECT running_count, waiting_count, kv_usage_share, preemption_count, step_ns FROM engine_sample"
        ).fetchall()
    assert samples == [(96, 200, 0.99, 6, 130_500_000)] * 2


ONLY_SUMS = {
    "nsys stats of a report without CUDA": (
        " ** CUDA API Summary (cuda_api_sum):\n\nSKIPPED: r.sqlite does not contain CUDA trace data.\n",
        "no row of them",
    ),
    "nsys stats as CSV, the headings": ("Time (%),Total Time (ns),Instances,Avg (ns),Name\n", "no row of them"),
    "nvprof of a program without kernels": (
        "==123== NVPROF is profiling process 123, command: python run.py\n==123== Profiling result:\nNo kernels.\n",
        "no row of them",
    ),
    "a query without rows": ("index, name, memory.used [MiB], memory.total [MiB]\n", "without a row"),
}


@pytest.mark.parametrize(("text", "words"), ONLY_SUMS.values(), ids=ONLY_SUMS)
def test_what_holds_nothing_to_judge_says_what_it_is_and_what_to_bring(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "evidence"
    path.write_text(text)
    with pytest.raises(UnknownEvidenceError, match=words):
        doctor.load(path)


def test_the_topology_of_one_gpu_is_read_and_says_that_it_holds_no_link(tmp_path: Path) -> None:
    path = tmp_path / "topo"
    path.write_text("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-15\t0\t\tN/A\n")
    with doctor.load(path) as case:
        assert case.execute("SELECT device_id, numa_node_id FROM gpu_affinity").fetchall() == [(0, 0)]
        [(notes,)] = case.execute("SELECT notes FROM source").fetchall()
    assert "one GPU" in notes


def test_an_empty_table_of_processes_in_a_file_of_its_own_says_that_none_runs(clinic: Clinic) -> None:
    names = "index, name, memory.total [MiB], memory.used [MiB], utilization.gpu [%]\n"
    devices = names + "0, NVIDIA A100, 81920 MiB, 69872 MiB, {} %\n"
    processes = "pid, process_name, used_gpu_memory [MiB]\n"
    assert clinic.told(devices.format(0), processes).first == "orphan-or-zombie-memory"
    assert clinic.told(devices.format(97), processes).first == "hidden-owner-pid-namespace"
    assert not clinic.told(devices.format(0), processes + "911, python, 69000 MiB\n").found
    assert not clinic.told(processes).found
