"""Public cases told anew: fewer figures, another order, another version, no configuration of the engine.

Evidence is reconstructed from the figures of C10 InternLM/lmdeploy#722, C16 NVIDIA/TensorRT-LLM#16827, C25
huggingface/transformers#21681, C37 vllm-project/vllm#54607, S01 xorbitsai/inference#1212 and S04
vllm-project/vllm#55827. Each has a look-alike beside it that must stay silent, or turn.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import doctor
from doctor.case.derive import derive
from tests.support import oom_texts
from tests.support.verdicts import Clinic

DRIVER_FAILED = "[TM][ERROR] CUDA runtime error: out of memory /lmdeploy/src/turbomind/utils/allocator.h:231\n"

# C10 -----------------------------------------------------------------------------------------------------------------
TURBOMIND_INI = """[llama]
model_name = llama2
tensor_para_size = 1
head_num = 32
kv_head_num = 32
vocab_size = 32000
num_layer = 32
inter_size = 11008
norm_eps = 1e-05
size_per_head = 128
max_batch_size = 10
cache_max_entry_count = 48
cache_chunk_size = 8
session_len = 8200
"""
TURBOMIND_YAML = """model: llama-2-7b
tm_config:
  session_len: 8200
  max_batch_size: 10
  cache_max_entry_count: 48
  num_layer: 32
  kv_head_num: 32
  size_per_head: 128
"""
MANAGER = "[TM][INFO] [LlamaCacheManager] max_entry_count = 48\n[TM][INFO] [LlamaCacheManager] chunk_size = 8\n"


@pytest.mark.parametrize(
    "pieces",
    [(TURBOMIND_INI, DRIVER_FAILED), (DRIVER_FAILED + MANAGER + "session_len = 8200\nmax_batch_size = 10\n",)],
    ids=["its INI file", "its manager of whole sequences, behind the failure"],
)
def test_c10_a_cache_of_whole_sessions_is_told_by(pieces: tuple[str, ...], clinic: Clinic) -> None:
    verdicts = clinic.told(*pieces)
    assert verdicts.first == "kv-unpaged-contiguous"
    assert verdicts.finding("kv-unpaged-contiguous")["fixes"][0]["target"] == "lmdeploy"


def test_c10_later_versions_keep_blocks(clinic: Clinic) -> None:
    blocks = "[TM][INFO] [BlockManager] block_size = 64 MB\n[TM][INFO] [BlockManager] max_block_count = 150\n"
    text = blocks + "session_len = 8200\nmax_batch_size = 10\n" + DRIVER_FAILED
    assert "kv-unpaged-contiguous" not in clinic.told(text).found


RESERVED = "SELECT length_count, slot_count, token_bytes, is_sure FROM reserved_setting"
STARTED = "python3 -m lmdeploy.serve.openai.api_server ./workspace 0.0.0.0 23333 --instance_num 10 --tp 1\n"
TENSORRT = {
    "pretrained_config": {
        "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 32,
        "intermediate_size": 11008, "vocab_size": 32000, "dtype": "float16",
    },
    "build_config": {"max_batch_size": 10, "max_seq_len": 8200, "kv_cache_type": "CONTINUOUS"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TURBOMIND_YAML, [(8200, 10, 524_288, True)]),
        ("lmdeploy - INFO - model_config:\n\n" + TURBOMIND_INI, [(8200, 10, 524_288, True)]),
        (f"{STARTED}session_len = 8200\n", [(8200, 10, None, False)]),
        (TURBOMIND_INI.replace("entry_count = 48", "entry_count = 0.8").replace("chunk_size", "block_seq_len"), []),
        (json.dumps(TENSORRT), [(8200, 10, 524_288, True)]),
        (json.dumps(TENSORRT).replace("CONTINUOUS", "PAGED"), []),
    ],
    ids=["YAML", "printed", "a hint", "a share and blocks", "TensorRT-LLM", "paged"],
)
def test_c10_what_is_reserved_is_read_from_each_form(
    text: str, expected: list[tuple[object, ...]], tmp_path: Path
) -> None:
    path = tmp_path / "evidence"
    path.write_text(text)
    with doctor.load(path) as case:
        derive(case)
        assert case.execute(RESERVED).fetchall() == expected


# C25 -----------------------------------------------------------------------------------------------------------------
def opt_13b(dtype: str) -> str:
    """The configuration of a model of 12.9 G parameters."""
    return json.dumps(
        {
            "architectures": ["OPTForCausalLM"], "hidden_size": 5120, "num_hidden_layers": 40,
            "num_attention_heads": 40,
            "ffn_dim": 20480, "vocab_size": 50272, "torch_dtype": dtype,
        }
    )  # fmt: skip


def full_while_loading(allocated: str = "38.70 GiB") -> str:
    """A load that fails on a card of 40 GB."""
    return oom_texts.traceback(
        ("run.py", "<module>", 'model = AutoModelForCausalLM.from_pretrained("facebook/opt-13b").to("cuda")'),
        ("/site-packages/torch/nn/modules/module.py", "convert", "return t.to(device, dtype, non_blocking)"),
    ) + oom_texts.of_today(
        tried="400.00 MiB",
        total="39.56 GiB",
        free="120.00 MiB",
        own="39.43 GiB",
        allocated=allocated,
        unallocated="40.00 MiB",
    )


def test_c25_a_load_wider_than_the_checkpoint_is_told_by_the_configuration_alone(clinic: Clinic) -> None:
    verdicts = clinic.told(opt_13b("float16"), full_while_loading())
    assert verdicts.first == "wrong-dtype-fp32"
    assert verdicts.finding("wrong-dtype-fp32")["severity"] == "critical"
    assert verdicts.finding("weights-overcommit")["severity"] == "medium"


def test_c25_the_type_is_told_by_a_command_beside_the_failure(clinic: Clinic) -> None:
    command = "$ vllm serve facebook/opt-13b --dtype float32 --max-model-len 2048\n"
    assert clinic.told(command + full_while_loading()).first == "wrong-dtype-fp32"


def test_c25_turns_when_the_model_in_16_bits_is_what_does_not_fit(clinic: Clinic) -> None:
    small = full_while_loading("23.70 GiB").replace("39.56 GiB", "24.00 GiB").replace("39.43 GiB", "23.90 GiB")
    verdicts = clinic.told(opt_13b("float16"), small)
    assert verdicts.first == "weights-overcommit"
    assert verdicts.finding("weights-overcommit")["severity"] == "critical"
    assert "wrong-dtype-fp32" not in verdicts.found


def test_c25_a_session_that_asks_the_model_is_read(tmp_path: Path) -> None:
    path = tmp_path / "session"
    path.write_text(
        ">>> model.dtype\ntorch.float32\n>>> model.get_memory_footprint() / 2**30\n47.9\n>>> x.dtype\ntorch.int64\n"
    )
    with doctor.load(path) as case:
        assert case.execute("SELECT setting, told FROM engine_setting").fetchall() == [("dtype", "float32")]
        [(weights,)] = case.execute("SELECT amount_bytes / 2 ** 30 FROM engine_figure").fetchall()
        assert weights == pytest.approx(47.9)


# S01 -----------------------------------------------------------------------------------------------------------------
HELD = oom_texts.of_today(
    tried="1.16 GiB",
    total="79.15 GiB",
    free="410.00 MiB",
    others={3312: "70.10 GiB"},
    own="8.60 GiB",
    allocated="7.90 GiB",
    unallocated="120.00 MiB",
)


def test_s01_a_process_of_the_run_that_its_log_calls_down_is_no_stranger(clinic: Clinic) -> None:
    verdicts = clinic.told("10:00:00 xinference.core.worker WARNING Process 3312 is down, create model again.\n" + HELD)
    assert verdicts.first == "orphan-or-zombie-memory"
    assert "foreign-gpu-process" not in verdicts.found


def test_s01_a_start_again_without_a_process_id_leaves_it_open_whose_the_memory_is(clinic: Clinic) -> None:
    again = "2026-01-01 10:00:00 - xinference.core.worker - WARNING - Process 127.0.0.1:45761 is down, create model.\n"
    finding = clinic.told(again + HELD).finding("foreign-gpu-process")
    assert finding["confidence"] <= 0.5
    assert "left over" in finding["summary"]
    assert "ps -o pid,ppid" in finding["fixes"][0]["setting"]


def test_s01_turns_when_the_log_says_nothing_of_that_process(clinic: Clinic) -> None:
    text = "Process 77 is down\nINFO Killing 4 idle connections\n" + HELD + "ERROR engine crashed, restarting engine\n"
    verdicts = clinic.told(text)
    assert verdicts.first == "foreign-gpu-process"
    assert verdicts.finding("foreign-gpu-process")["confidence"] == pytest.approx(0.95)


# S04 -----------------------------------------------------------------------------------------------------------------
NO_ROOM = (
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing"
    " the engine.\n"
)


def test_s04_a_start_that_was_left_nothing_for_its_cache_is_told(clinic: Clinic) -> None:
    verdicts = clinic.told(NO_ROOM)
    assert verdicts.first == "weights-overcommit"
    finding = verdicts.finding("weights-overcommit")
    assert finding["severity"] == "critical"
    assert "nvidia-smi before the start" in finding["fixes"][0]["setting"]


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        (NO_ROOM, "vllm"),
        ("INFO 11-20 20:00:40 [gpu_worker.py:276] Available KV cache memory: -3.21 GiB\n", "vllm"),
        ("INFO 03-01 12:00:00 gpu_executor.py:102] # GPU blocks: 0, # CPU blocks: 2048\n", "vllm"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n", "sglang"),
        ("RuntimeError: No enough gpu memory for kv cache.\n", "lmdeploy"),
        ("RuntimeError: No enough gpu memory for runtime.\n", "lmdeploy"),
        ("AssertionError: Impossible to fit in any sequence in kvCache\n", "tensorrt-llm"),
        (
            "[TRT-LLM] [RANK 0] [I] Peak memory during memory usage profiling (torch + non-torch): 81.20 GiB, available"
            " KV cache memory when calculating max tokens: -3.10 GiB, fraction is set 0.9, kv size is 131072\n",
            "tensorrt-llm",
        ),
    ],
)
def test_s04_each_engine_has_its_own_words_for_it(text: str, engine: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    told = "SELECT framework FROM memory_refusal WHERE refusal = 'no_kv_room' UNION SELECT engine FROM engine_figure"
    with doctor.load(path) as case:
        assert case.execute(told).fetchall() == [(engine,)]


def v0_budget(weights: float, non_torch: float, activation: float) -> str:
    """vLLM V0's own account of a card of 24 GB, of which it may take 0.9."""
    left = 21.6 - weights - non_torch - activation
    return (
        "INFO 03-01 12:00:00 worker.py:267] the current vLLM instance can use total_gpu_memory (24.00GiB) x"
        " gpu_memory_utilization (0.90) = 21.60GiB\n"
        f"INFO 03-01 12:00:00 worker.py:267] model weights take {weights:.2f}GiB; non_torch_memory takes"
        f" {non_torch:.2f}GiB; PyTorch activation peak memory takes {activation:.2f}GiB; the rest of the memory"
        " reserved for KV Cache is"
        f" {left:.2f}GiB.\n"
    )


def test_s04_the_part_that_takes_the_room_is_named(clinic: Clinic) -> None:
    assert clinic.told(v0_budget(9.0, 0.2, 13.0) + NO_ROOM).first == "prefill-activation-peak"


def test_s04_a_share_that_is_too_small_for_the_model_is_told_as_such(clinic: Clinic) -> None:
    log = (
        "INFO 11-20 20:00:10 [gpu_model_runner.py:1850] Model loading took 14.99 GiB and 8.1 seconds\n"
        "INFO 11-20 20:00:40 [gpu_worker.py:276] Available KV cache memory: -9.81 GiB\n"
        "$ vllm serve m --gpu-memory-utilization 0.3\n"
    )
    screen = "index, name, memory.used [MiB], memory.total [MiB]\n0, NVIDIA RTX 4090, 600 MiB, 24564 MiB\n"
    finding = clinic.told(log, screen).finding("weights-overcommit")
    assert "a share of 0.30 of the device is too small" in finding["summary"]


def test_s04_a_start_that_failed_before_one_that_did_not_is_history(clinic: Clinic) -> None:
    later = "INFO 11-20 20:10:40 [gpu_worker.py:276] Available KV cache memory: 3.00 GiB\n"
    failed = "INFO 11-20 20:00:40 [gpu_worker.py:276] Available KV cache memory: -1.00 GiB\n" + NO_ROOM
    assert not clinic.told(failed + later).found


def test_s04_two_sizes_in_one_log_within_seconds_are_two_engines(clinic: Clinic) -> None:
    log = "".join(
        f"INFO 11-20 20:00:{second:02d} [gpu_worker.py:276] Available KV cache memory: {left} GiB\n"
        for second, left in ((0, "1.84"), (2, "-3.21"))
    )
    assert clinic.told(log + NO_ROOM).first == "shared-gpu-start-race"


def test_s04_the_component_that_an_executor_could_not_make(clinic: Clinic) -> None:
    text = (
        "[07/08/2025-19:47:15] [TRT-LLM] [RANK 1] [E] Failed to initialize executor on rank 1: Executor creation failed"
        " due to insufficient GPU memory.\n\nThe following component could not be created: KV cache\n"
        "Total GPU memory (GiB): 140.06\n"
        "Free GPU memory before component creation attempt (GiB): 108.86\n"
    )
    verdicts = clinic.told(text)
    assert verdicts.first == "headroom-thin"
    assert "109 GiB of 140 GiB free" in verdicts.finding("headroom-thin")["summary"]


# C03, from queries ---------------------------------------------------------------------------------------------------
def queried(busy: int, processes: str = "") -> str:
    """A device that is nearly full, and its list of processes."""
    return (
        "index, memory.used [MiB], memory.total [MiB], utilization.gpu [%]\n"
        f"0, 71234 MiB, 81559 MiB, {busy} %\n1, 3 MiB, 81559 MiB, 0 %\n"
        f"$ nvidia-smi --query-compute-apps=pid,used_memory --format=csv\npid, used_gpu_memory [MiB]\n{processes}"
    )


def test_c03_a_full_device_and_an_empty_list_of_processes(clinic: Clinic) -> None:
    rule = "orphan-or-zombie-memory"
    assert clinic.told(queried(0)).first == rule
    assert rule not in clinic.told(queried(90)).found
    assert rule not in clinic.told(queried(0, "48122, 71000 MiB\n")).found


# C37 and C16, from metrics -------------------------------------------------------------------------------------------
def scrape(block: int, hits: int) -> str:
    """One look at vLLM's metrics."""
    return (
        "# TYPE vllm:prefix_cache_queries_total counter\n"
        'vllm:prefix_cache_queries_total{engine="0",model_name="x"} 1.843e+06\n'
        f'vllm:prefix_cache_hits_total{{engine="0",model_name="x"}} {hits}.0\n'
        f'vllm:cache_config_info{{block_size="{block}",enable_prefix_caching="True",engine="0"}} 1.0\n'
    )


@pytest.mark.parametrize(
    "told",
    [
        "all requests share a system prompt of 2400 tokens\n",
        "shared prefix: 2,400 tokens\n",
        "$ vllm bench serve --prefix-repetition-prefix-len 2400 --prefix-repetition-suffix-len 100\n",
    ],
)
def test_c37_a_note_that_prompts_share_more_than_a_block_rules_out_that_they_share_less(
    clinic: Clinic, told: str
) -> None:
    verdicts = clinic.told(scrape(784, 0) + told)
    assert verdicts.first == "prefix-miss"
    assert "prefix-below-block" not in verdicts.found


def test_c37_a_note_that_prompts_share_less_than_a_block_names_both_lengths(clinic: Clinic) -> None:
    verdicts = clinic.told(scrape(784, 0) + "every request starts with the same 240-token system prompt\n")
    assert "share 240 tokens, a block holds 784" in verdicts.finding("prefix-below-block")["summary"]


def test_c37_metrics_alone_say_that_no_block_was_filled_or_nothing_is_shared(clinic: Clinic) -> None:
    verdicts = clinic.told(scrape(784, 0))
    assert verdicts.first == "prefix-below-block"
    assert "784 tokens, or nothing" in verdicts.finding("prefix-below-block")["summary"]


POLICY_YAML = "scheduler_config:\n  capacity_scheduler_policy: MAX_UTILIZATION\nmax_batch_size: 256\n"
POLICY_PBTXT = (
    'parameters: {\n  key: "batch_scheduler_policy"\n  value: {\n    string_value: "max_utilization"\n  }\n}\n'
    'parameters: {\n  key: "max_queue_size"\n  value: { string_value: "0" }\n}\n'
)
SERVED = (
    'trtllm_kv_cache_utilization{{model_name="x"}} {usage}\ntrtllm_num_requests_running{{model_name="x"}} 120\n'
    'trtllm_num_requests_waiting{{model_name="x"}} {waiting}\n'
)
TRITON = (
    'nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 210\n'
    'nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"} 64\n'
    'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"} 6220\n'
    'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="tensorrt_llm",version="1"} 6239\n'
)


@pytest.mark.parametrize("pieces", [(POLICY_YAML, SERVED.format(usage=0.99, waiting=300)), (POLICY_PBTXT, TRITON)])
def test_c16_the_policy_and_a_scrape_under_pressure(pieces: tuple[str, ...], clinic: Clinic) -> None:
    verdicts = clinic.told(*pieces)
    assert verdicts.first == "kv-preemption-thrash"
    assert verdicts.finding("kv-preemption-thrash")["fixes"][0]["target"] == "tensorrt-llm"


def test_c16_and_c37_turn_when_nobody_waits_and_blocks_are_small(clinic: Clinic) -> None:
    assert not clinic.told(POLICY_YAML, SERVED.format(usage=0.99, waiting=0), scrape(16, 0)).found
