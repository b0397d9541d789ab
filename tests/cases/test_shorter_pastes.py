"""Public cases told anew: with fewer figures, in another order, in the form of another version, or without the engine's own configuration.

Evidence is reconstructed from the figures of C10 InternLM/lmdeploy#722, C16 NVIDIA/TensorRT-LLM#16827, C25
huggingface/transformers#21681, C37 vllm-project/vllm#54607, S01 xorbitsai/inference#1212 and S04
vllm-project/vllm#55827. Each has a look-alike beside it that must stay silent, or turn.
"""

from __future__ import annotations

import json

import pytest

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
STARTED = "python3 -m lmdeploy.serve.openai.api_server ./workspace 0.0.0.0 23333 --instance_num 10 --tp 1\n"
OLD_ENGINE = {
    "its INI file": (TURBOMIND_INI, DRIVER_FAILED),
    "its YAML file": (TURBOMIND_YAML, DRIVER_FAILED),
    "the INI file printed in the log, the failure first": (DRIVER_FAILED + "model_config:\n\n" + TURBOMIND_INI,),
    "its manager of whole sequences": (MANAGER + "session_len = 8200\nmax_batch_size = 10\n" + DRIVER_FAILED,),
    "the command, the length and the version": (f"lmdeploy==0.0.14\n{STARTED}session_len = 8200\n{DRIVER_FAILED}",),
    "figures of PyTorch": (
        TURBOMIND_INI,
        oom_texts.of_today(
            tried="2.00 GiB",
            total="22.19 GiB",
            free="1.10 GiB",
            own="21.05 GiB",
            allocated="20.60 GiB",
            unallocated=None,
        ),
    ),
}


@pytest.mark.parametrize("pieces", OLD_ENGINE.values(), ids=OLD_ENGINE)
def test_c10_a_cache_of_whole_sessions_is_told_by(pieces: tuple[str, ...], clinic: Clinic) -> None:
    verdicts = clinic.told(*pieces)
    assert verdicts.first == "kv-unpaged-contiguous"
    fix = verdicts.finding("kv-unpaged-contiguous")["fixes"][0]
    assert fix["target"] == "lmdeploy"


@pytest.mark.parametrize(
    "text",
    [
        f"lmdeploy==0.4.2\n{STARTED}session_len = 8200\n{DRIVER_FAILED}",
        TURBOMIND_INI.replace("entry_count = 48", "entry_count = 0.8").replace(
            "cache_chunk_size = 8", "cache_block_seq_len = 64"
        )
        + DRIVER_FAILED,
        "[TM][INFO] [BlockManager] block_size = 64 MB\n[TM][INFO] [BlockManager] max_block_count = 150\nsession_len = 8200\n"
        "max_batch_size = 10\n" + DRIVER_FAILED,
    ],
    ids=["a later version", "a share and blocks", "a manager of blocks"],
)
def test_c10_later_versions_keep_blocks(text: str, clinic: Clinic) -> None:
    assert "kv-unpaged-contiguous" not in clinic.told(text).found


def test_c10_a_build_of_tensorrt_llm_without_its_paged_cache(clinic: Clinic) -> None:
    build = {
        "pretrained_config": {
            "architecture": "LlamaForCausalLM", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
            "num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 32000, "dtype": "float16",
        },
        "build_config": {"max_batch_size": 16, "max_seq_len": 8192, "kv_cache_type": "CONTINUOUS"},
    }  # fmt: skip
    failed = "[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, stream): out of memory\n"
    assert clinic.told(json.dumps(build), failed).first == "kv-unpaged-contiguous"
    build["build_config"]["kv_cache_type"] = "PAGED"
    assert "kv-unpaged-contiguous" not in clinic.told(json.dumps(build), failed).found


# C25 -----------------------------------------------------------------------------------------------------------------
def opt_13b(dtype: str) -> str:
    """The configuration of a model of 12.9 G parameters."""
    return json.dumps(
        {
            "architectures": ["OPTForCausalLM"], "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40,
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


@pytest.mark.parametrize(
    "told",
    [
        'model = AutoModelForCausalLM.from_pretrained("facebook/opt-13b", torch_dtype=torch.float32)\n',
        "$ vllm serve facebook/opt-13b --dtype float32 --max-model-len 2048\n",
        ">>> model.dtype\ntorch.float32\n",
    ],
    ids=["a call", "a command", "a session"],
)
def test_c25_the_type_is_told_beside_the_failure(told: str, clinic: Clinic) -> None:
    verdicts = clinic.told(told + full_while_loading(), opt_13b("float16"))
    assert verdicts.first == "wrong-dtype-fp32"


def test_c25_a_checkpoint_in_float32_that_nothing_narrows(clinic: Clinic) -> None:
    assert clinic.told(opt_13b("float32"), full_while_loading()).first == "wrong-dtype-fp32"


def test_c25_turns_when_the_model_in_16_bits_is_what_does_not_fit(clinic: Clinic) -> None:
    small = full_while_loading("23.70 GiB").replace("39.56 GiB", "24.00 GiB").replace("39.43 GiB", "23.90 GiB")
    verdicts = clinic.told(opt_13b("float16"), small)
    assert verdicts.first == "weights-overcommit"
    assert verdicts.finding("weights-overcommit")["severity"] == "critical"
    assert "wrong-dtype-fp32" not in verdicts.found


def test_c25_the_size_of_a_session_tells_the_type(clinic: Clinic) -> None:
    session = ">>> model.get_memory_footprint()\n51400000000\n"
    assert clinic.told(opt_13b("float16"), session).first == "wrong-dtype-fp32"
    assert "wrong-dtype-fp32" not in clinic.told(opt_13b("float16"), session.replace("514", "257")).found


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


@pytest.mark.parametrize(
    "line",
    [
        "2026-01-01 10:00:00,000 xinference.core.worker WARNING Process 3312 is down, create model again.",
        "[2026-01-01 10:00:00 +0000] [1] [ERROR] Worker (pid:3312) was sent SIGKILL! Perhaps out of memory?",
        "ERROR engine process 3312 died unexpectedly, restarting it",
        "+ kill -9 3312",
        "[70011.1] Out of memory: Killed process 3312 (python) total-vm:90000000kB, anon-rss:61000000kB",
    ],
)
def test_s01_a_process_of_the_run_that_its_log_calls_down_is_no_stranger(line: str, clinic: Clinic) -> None:
    verdicts = clinic.told(f"{line}\n{HELD}")
    assert verdicts.first == "orphan-or-zombie-memory"
    assert "foreign-gpu-process" not in verdicts.found


def test_s01_a_start_again_without_a_process_id_leaves_it_open_whose_the_memory_is(clinic: Clinic) -> None:
    again = (
        "2026-01-01 10:00:00,000 - xinference.core.worker - WARNING - Process 127.0.0.1:45761 is down, create model.\n"
    )
    finding = clinic.told(again + HELD).finding("foreign-gpu-process")
    assert finding["confidence"] <= 0.5
    assert "left over" in finding["summary"]
    assert "ps -o pid,ppid" in finding["fixes"][0]["setting"]


@pytest.mark.parametrize(
    "line", ["", "Process 77 is down\n", "INFO Killing 4 idle connections\n", "Restarted at 10:00\n"]
)
def test_s01_turns_when_the_log_says_nothing_of_that_process(line: str, clinic: Clinic) -> None:
    verdicts = clinic.told(line + HELD)
    assert verdicts.first == "foreign-gpu-process"
    assert verdicts.finding("foreign-gpu-process")["confidence"] == pytest.approx(0.95)


def test_s01_a_line_behind_the_failure_is_its_consequence(clinic: Clinic) -> None:
    assert (
        clinic.told(f"{HELD}ERROR engine crashed, restarting engine\n").finding("foreign-gpu-process")["confidence"]
        > 0.9
    )


# S04 -----------------------------------------------------------------------------------------------------------------
NO_ROOM = (
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the"
    " engine.\n"
)
REFUSED = {
    "vLLM V1, both lines": "INFO 11-20 20:00:40 [gpu_worker.py:276] Available KV cache memory: -3.21 GiB\n" + NO_ROOM,
    "vLLM V1, the figure alone": "INFO 11-20 20:00:40 [gpu_worker.py:276] Available KV cache memory: -3.21 GiB\n",
    "vLLM, the words alone": NO_ROOM,
    "vLLM V0, its blocks": "INFO 03-01 12:00:00 gpu_executor.py:102] # GPU blocks: 0, # CPU blocks: 2048\n" + NO_ROOM,
    "SGLang": "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n",
    "lmdeploy, PyTorch engine": "RuntimeError: No enough gpu memory for kv cache.\n",
    "lmdeploy, older": "RuntimeError: No enough gpu memory for runtime.\n",
    "TensorRT-LLM": "AssertionError: Impossible to fit in any sequence in kvCache\n",
    "TensorRT-LLM, what was free": "[TRT-LLM] [RANK 0] [I] Peak memory during memory usage profiling (torch + non-torch): 81.20 GiB,"
    " available KV cache memory when calculating max tokens: -3.10 GiB, fraction is set 0.9, kv size is 131072\n",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_s04_a_start_that_was_left_nothing_for_its_cache_is_told(text: str, clinic: Clinic) -> None:
    verdicts = clinic.told(text)
    assert verdicts.first == "weights-overcommit"
    finding = verdicts.finding("weights-overcommit")
    assert finding["severity"] == "critical"
    assert "nvidia-smi before the start" in finding["fixes"][0]["setting"]


def v0_budget(weights: float, non_torch: float, activation: float) -> str:
    """vLLM V0's own account of a card of 24 GB, of which it may take 0.9."""
    left = 21.6 - weights - non_torch - activation
    return (
        "INFO 03-01 12:00:00 worker.py:267] the current vLLM instance can use total_gpu_memory (24.00GiB) x"
        " gpu_memory_utilization (0.90) = 21.60GiB\n"
        f"INFO 03-01 12:00:00 worker.py:267] model weights take {weights:.2f}GiB; non_torch_memory takes {non_torch:.2f}GiB;"
        f" PyTorch activation peak memory takes {activation:.2f}GiB; the rest of the memory reserved for KV Cache is"
        f" {left:.2f}GiB.\n"
    )


@pytest.mark.parametrize(
    ("parts", "rule"),
    [
        ((19.0, 0.2, 2.9), "weights-overcommit"),
        ((9.0, 0.2, 13.0), "prefill-activation-peak"),
        ((15.0, 7.5, 1.0), "non-torch-memory-high"),
    ],
)
def test_s04_the_part_that_takes_the_room_is_named(
    parts: tuple[float, float, float], rule: str, clinic: Clinic
) -> None:
    verdicts = clinic.told(v0_budget(*parts) + NO_ROOM)
    assert verdicts.first == rule


def test_s04_a_budget_that_leaves_room_is_no_fault(clinic: Clinic) -> None:
    assert not clinic.told(v0_budget(13.0, 0.2, 2.0)).found


def test_s04_two_sizes_in_one_log_within_seconds_are_two_engines(clinic: Clinic) -> None:
    log = "".join(
        f"INFO 11-20 20:00:{second:02d} [gpu_worker.py:276] Available KV cache memory: {left} GiB\n"
        for second, left in ((0, "1.84"), (2, "-3.21"))
    )
    assert clinic.told(log + NO_ROOM).first == "shared-gpu-start-race"
    later = log.replace("20:00:02", "20:09:02")
    assert clinic.told(later + NO_ROOM).first == "weights-overcommit"


def test_s04_the_component_that_an_executor_could_not_make(clinic: Clinic) -> None:
    text = (
        "[07/08/2025-19:47:15] [TRT-LLM] [RANK 1] [E] Failed to initialize executor on rank 1: Executor creation failed due to"
        " insufficient GPU memory.\n\nThe following component could not be created: KV cache\nTotal GPU memory (GiB): 140.06\n"
        "Free GPU memory before component creation attempt (GiB): {free}\n"
    )
    roomy = clinic.told(text.format(free="108.86"))
    assert roomy.first == "headroom-thin"
    assert "108.9 GiB of 140" in roomy.finding("headroom-thin")["summary"]
    assert clinic.told(text.format(free="1.10")).first == "weights-overcommit"


# C37 and C16, from metrics -------------------------------------------------------------------------------------------
def scrape(block: int, hits: int) -> str:
    """One look at vLLM's metrics."""
    return (
        "# TYPE vllm:prefix_cache_queries_total counter\n"
        'vllm:prefix_cache_queries_total{engine="0",model_name="x"} 1.843e+06\n'
        f'vllm:prefix_cache_hits_total{{engine="0",model_name="x"}} {hits}.0\n'
        f'vllm:cache_config_info{{block_size="{block}",enable_prefix_caching="True",gpu_memory_utilization="0.9",engine="0"}} 1.0\n'
    )


def test_c37_metrics_alone_say_that_no_block_was_filled_or_nothing_is_shared(clinic: Clinic) -> None:
    verdicts = clinic.told(scrape(784, 0))
    assert verdicts.first == "prefix-below-block"
    assert "784 tokens, or nothing" in verdicts.finding("prefix-below-block")["summary"]


@pytest.mark.parametrize("text", [scrape(16, 0), scrape(784, 900_000)], ids=["small blocks", "hits"])
def test_c37_small_blocks_or_hits_are_no_fault(text: str, clinic: Clinic) -> None:
    assert not clinic.told(text).found


def test_c37_pages_of_sglang_count_too(clinic: Clinic) -> None:
    text = (
        'sglang:cache_config_info{page_size="1024",num_pages="300"} 1.0\nsglang:prompt_tokens_total{model_name="m"} 184000.0\n'
        'sglang:cached_tokens_total{model_name="m"} 0.0\n'
    )
    assert clinic.told(text).first == "prefix-below-block"


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


@pytest.mark.parametrize(
    "pieces",
    [
        (POLICY_YAML, SERVED.format(usage=0.99, waiting=300)),
        (POLICY_YAML, SERVED.format(usage=0.99, waiting=300) + 'trtllm_num_paused_requests{model_name="x"} 31\n'),
        (POLICY_PBTXT, TRITON),
    ],
    ids=["trtllm-serve", "with paused requests", "Triton"],
)
def test_c16_the_policy_and_a_scrape_under_pressure(pieces: tuple[str, ...], clinic: Clinic) -> None:
    verdicts = clinic.told(*pieces)
    assert verdicts.first == "kv-preemption-thrash"
    assert verdicts.finding("kv-preemption-thrash")["fixes"][0]["target"] == "tensorrt-llm"


@pytest.mark.parametrize(
    "pieces",
    [
        (POLICY_YAML, SERVED.format(usage=0.99, waiting=0)),
        (POLICY_YAML, SERVED.format(usage=0.6, waiting=300)),
        (POLICY_YAML.replace("MAX_UTILIZATION", "GUARANTEED_NO_EVICT"), SERVED.format(usage=0.99, waiting=300)),
    ],
    ids=["nobody waits", "room", "never evicts"],
)
def test_c16_without_pressure_or_the_policy_nobody_is_paused(pieces: tuple[str, ...], clinic: Clinic) -> None:
    assert "kv-preemption-thrash" not in clinic.told(*pieces).found
