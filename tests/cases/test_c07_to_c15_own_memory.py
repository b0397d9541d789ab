"""Public cases in which the run's own memory is the matter.

Evidence is reconstructed from their figures: C07 NovaSky-AI/SkyRL PR#1768, C08 pytorch/pytorch#35901, C09
BatsResearch/bonito#7, C10 InternLM/lmdeploy#722, C11 vllm-project/vllm#5907, C12 jundot/omlx#1522, C13
vllm-project/vllm#57475, C14 ndif-team/nnsight#169, C15 AUTOMATIC1111/stable-diffusion-webui#11063, S05
huggingface/transformers PR#30536. Each also runs with its tempting cause made true, which must turn the verdict.
"""

from __future__ import annotations

import json
import random

import pytest

from tests.support import oom_texts
from tests.support.allocator_snapshots import GIB, MIB, SnapshotBuilder
from tests.support.verdicts import Clinic

SITE = "/usr/local/lib/python3.12/site-packages"


# C07 -----------------------------------------------------------------------------------------------------------------
def colocated(own: str, allocated: str, unallocated: str) -> str:
    """A trainer's failure on a B200 at step 2."""
    return oom_texts.of_today(
        tried="7.50 GiB", total="178.35 GiB", free="2.10 GiB", own=own, allocated=allocated, unallocated=unallocated
    )


def test_c07_free_memory_lies_in_pieces(clinic: Clinic) -> None:
    verdicts = clinic.told(colocated("176.20 GiB", "154.00 GiB", "20.10 GiB"))
    assert verdicts.first == "fragmentation"
    assert verdicts.finding("fragmentation")["gain"]["bytes"] == pytest.approx(20.1 * GIB, rel=0.01)


def test_c07_turns_when_the_slack_is_that_of_a_full_card(clinic: Clinic) -> None:
    verdicts = clinic.told(colocated("176.20 GiB", "173.60 GiB", "0.51 GiB"))
    assert "fragmentation" in verdicts.ruled_out
    assert verdicts.first == "headroom-thin"


# C08 -----------------------------------------------------------------------------------------------------------------
def large_segment(*, is_carved: bool, is_expandable: bool = False) -> bytes:
    """11.64 GB in one segment: one free block, or 499 MB of live blocks of 11 to 18 MB among holes."""
    dice = random.Random(8)
    total, builder = 11_640_000_000, SnapshotBuilder()
    if not is_carved:
        builder.segment([(total, False)], is_expandable=is_expandable)
        return builder.pickled()
    sizes = [dice.randrange(11, 18) * 10**6 for _ in range(34)]
    hole = (total - sum(sizes)) // len(sizes)
    builder.segment([block for size in sizes for block in ((size, True), (hole, False))], is_expandable=is_expandable)
    return builder.pickled()


def test_c08_small_blocks_hold_a_large_segment(clinic: Clinic) -> None:
    verdicts = clinic.told(large_segment(is_carved=True))
    assert verdicts.first == "fragmentation"
    assert verdicts.evidence("fragmentation", "share of what is reserved") > 0.9


@pytest.mark.parametrize("content", [large_segment(is_carved=False), large_segment(is_carved=True, is_expandable=True)])
def test_c08_turns_when_the_segment_can_be_given_back_or_grows_in_place(clinic: Clinic, content: bytes) -> None:
    assert "fragmentation" not in clinic.told(content).found


# C09 -----------------------------------------------------------------------------------------------------------------
TOO_LONG = (
    "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV"
    " cache (16816). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the"
    " engine.\n"
)
LISTED = (
    "index, name, memory.total [MiB], memory.used [MiB], utilization.gpu [%]\n"
    "0, NVIDIA A10G, 23028 MiB, {used} MiB, 0 %\n"
)
APPS = "pid, process_name, used_gpu_memory [MiB]\n4242, python3, {used} MiB\n"


def test_c09_the_longest_sequence_does_not_fit(clinic: Clinic) -> None:
    verdicts = clinic.told(TOO_LONG)
    assert verdicts.first == "max-model-len-too-high"
    assert verdicts.evidence("max-model-len-too-high", "ratio") == pytest.approx(32768 / 16816)
    assert "--max-model-len 16816" in [fix["setting"] for fix in verdicts.finding("max-model-len-too-high")["fixes"]]


def test_c09_names_others_where_the_size_of_the_device_is_not_told(clinic: Clinic) -> None:
    engine = "4410, python -m vllm.entrypoints.openai.api_server, 8000 MiB\n"
    finding = clinic.told(TOO_LONG, APPS.format(used=14210) + engine).finding("foreign-gpu-process")
    assert finding["severity"] == "medium"
    assert finding["gain"]["bytes"] == 14210 * 2**20
    assert "unless that is the engine itself" not in finding["summary"]
    alone = clinic.told(TOO_LONG, APPS.format(used=14210))
    assert alone.found == {"foreign-gpu-process", "max-model-len-too-high"}
    assert "unless that is the engine itself" in alone.finding("foreign-gpu-process")["summary"]


@pytest.mark.parametrize("name", ["VLLM::EngineCore", "/opt/venv/bin/python3 -m vllm.entrypoints.openai.api_server"])
def test_c09_the_engine_itself_is_no_other(clinic: Clinic, name: str) -> None:
    verdicts = clinic.told(TOO_LONG, APPS.replace("python3", name).format(used=20100))
    assert verdicts.found == {"max-model-len-too-high"}


def test_c09_turns_when_others_took_the_room(clinic: Clinic) -> None:
    verdicts = clinic.told(TOO_LONG, LISTED.format(used=9000), APPS.format(used=8990))
    assert verdicts.first == "foreign-gpu-process"
    assert "other processes hold 8.78 GiB" in verdicts.ruled_out["max-model-len-too-high"]


def test_c09_warns_where_fewer_than_two_fit(clinic: Clinic) -> None:
    log = (
        "INFO 11-20 20:00:40 [kv_cache_utils.py:864] GPU KV cache size: 40,000 tokens\n"
        "INFO 11-20 20:00:40 [kv_cache_utils.py:868] Maximum concurrency for 32,768 tokens per request: 1.22x\n"
    )
    verdicts = clinic.told(log)
    assert verdicts.finding("max-model-len-too-high")["severity"] == "medium"
    assert "max-model-len-too-high" not in clinic.told(log.replace("40,000", "400,000").replace("1.22", "12.2")).found


# C10 -----------------------------------------------------------------------------------------------------------------
MODEL_7B = json.dumps(
    {
        "architectures": ["InternLMForCausalLM"],
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "intermediate_size": 11008,
        "vocab_size": 103168,
        "torch_dtype": "float16",
    }
)
TURBOMIND = (
    "2023-11-20 10:00:00,000 - lmdeploy - INFO - backend_config=TurbomindEngineConfig(session_len=8200,"
    " max_batch_size=10, cache_max_entry_count=10, tp=1{blocks})\n"
    "[TM][ERROR] CUDA runtime error: out of memory /lmdeploy/src/turbomind/utils/allocator.h:246\n"
)
CARD_23 = (
    "index, name, memory.total [MiB], memory.used [MiB], utilization.gpu [%]\n0, NVIDIA L4, 23034 MiB, 22800 MiB, 0 %\n"
)


def test_c10_a_whole_session_is_reserved_for_each_instance(clinic: Clinic) -> None:
    verdicts = clinic.told(TURBOMIND.format(blocks=""), MODEL_7B, CARD_23)
    assert verdicts.first == "kv-unpaged-contiguous"
    reserved = 10 * 8200 * 32 * 32 * 128 * 2 * 2
    assert verdicts.evidence("kv-unpaged-contiguous", "reserved for the KV cache") == reserved


def test_c10_turns_when_the_cache_is_made_of_blocks(clinic: Clinic) -> None:
    paged = TURBOMIND.format(blocks=", cache_block_seq_len=64").replace("entry_count=10", "entry_count=0.8")
    assert "kv-unpaged-contiguous" not in clinic.told(paged, MODEL_7B, CARD_23).found


# C11 -----------------------------------------------------------------------------------------------------------------
VLLM = f"{SITE}/vllm"
RUN = (f"{VLLM}/worker/model_runner.py", "execute_model", "output = self.model.sample(logits, sampling_metadata)")
LOG_SOFTMAX = (
    f"{VLLM}/model_executor/layers/sampler.py",
    "forward",
    "logprobs = torch.log_softmax(logits, dim=-1)",
)
MLP = (f"{VLLM}/model_executor/models/llama.py", "forward", "gate_up, _ = self.gate_up_proj(x)")
EVALUATED = oom_texts.of_today(
    tried="3.91 GiB", total="79.15 GiB", free="2.20 GiB", own="76.90 GiB", allocated="74.80 GiB", unallocated="1.10 GiB"
)


def test_c11_log_probabilities_of_a_prompt_fill_the_card(clinic: Clinic) -> None:
    verdicts = clinic.told(oom_texts.traceback(RUN, LOG_SOFTMAX) + EVALUATED)
    assert verdicts.first == "logits-logprob-peak"
    assert verdicts.found == {"logits-logprob-peak"}


def test_c11_turns_when_the_layers_of_a_long_prompt_fail(clinic: Clinic) -> None:
    verdicts = clinic.told(oom_texts.traceback(RUN, MLP) + EVALUATED)
    assert verdicts.first == "prefill-activation-peak"
    assert "logits-logprob-peak" not in verdicts.found


def test_c11_a_size_alone_says_nothing(clinic: Clinic) -> None:
    assert "logits-logprob-peak" not in clinic.told(EVALUATED).found


# C12 -----------------------------------------------------------------------------------------------------------------
ATTENTION = (("scaled_dot_product", "/srv/omlx/attention.py"), ("prefill", "/srv/omlx/engine.py"))


def long_prefill(*, falls_back: bool) -> bytes:
    """24.6 GB, then up to 42.8 within a few per cent of the steps; back again, or not."""
    builder = SnapshotBuilder()
    builder.segment([(24_600_000_000, True)])
    for number in range(400):
        builder.step("alloc", 50 * MIB, number << 32, ATTENTION[1])
        builder.step("free_completed", 50 * MIB, number << 32, ATTENTION[1])
    scores = 18_200_000_000 // 14
    for number in range(14):
        builder.step("alloc", scores, (1000 + number) << 32, *ATTENTION)
    if falls_back:
        for number in range(14):
            builder.step("free_completed", scores, (1000 + number) << 32, *ATTENTION)
    else:
        builder.segment([(scores, True)] * 14, stack=ATTENTION)
    for number in range(200 if falls_back else 400):
        builder.step("alloc", 50 * MIB, (2000 + number) << 32, ATTENTION[1])
        builder.step("free_completed", 50 * MIB, (2000 + number) << 32, ATTENTION[1])
    return builder.pickled()


def test_c12_attention_writes_its_scores_out_for_a_moment(clinic: Clinic) -> None:
    verdicts = clinic.told(long_prefill(falls_back=True))
    assert verdicts.first == "prefill-activation-peak"
    assert verdicts.evidence("prefill-activation-peak", "spike") == pytest.approx(18.2e9, rel=0.01)


def test_c12_turns_when_what_was_made_stays(clinic: Clinic) -> None:
    assert "prefill-activation-peak" not in clinic.told(long_prefill(falls_back=False)).found


# C13 -----------------------------------------------------------------------------------------------------------------
SIZED = (
    "INFO 11-20 20:00:30 [gpu_worker.py:276] Available KV cache memory: 2.97 GiB\n"
    "INFO 11-20 20:00:31 [kv_cache_utils.py:864] GPU KV cache size: 150,745 tokens\n"
)
CAPTURING = "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  43%|####      | 22/51 [00:03<00:04,  6.58it/s]\n"


def captured(free: str, own: str, others: dict[int, str] | None = None) -> str:
    """The failure with 22.36 GiB in all."""
    return oom_texts.of_today(
        tried="136.00 MiB",
        total="22.36 GiB",
        free=free,
        own=own,
        others=others,
        allocated="21.10 GiB" if others is None else "12.10 GiB",
        unallocated="90.00 MiB",
        pools="40.00 MiB",
    )


def test_c13_there_is_no_room_for_the_graphs(clinic: Clinic) -> None:
    verdicts = clinic.told(SIZED + CAPTURING + captured("120.90 MiB", "22.20 GiB"))
    assert verdicts.first == "cudagraph-capture-oom"
    assert "fragmentation" in verdicts.ruled_out


def test_c13_turns_when_another_process_grew_meanwhile(clinic: Clinic) -> None:
    verdicts = clinic.told(SIZED + CAPTURING + captured("120.90 MiB", "12.60 GiB", {31337: "9.60 GiB"}))
    assert verdicts.first == "foreign-gpu-process"
    assert "cudagraph-capture-oom" not in verdicts.found


def test_c13_turns_when_the_capture_was_over(clinic: Clinic) -> None:
    done = "INFO 11-20 20:00:40 [gpu_model_runner.py:2600] Graph capturing finished in 9 secs, took 0.46 GiB\n"
    verdicts = clinic.told(SIZED + CAPTURING + done + captured("120.90 MiB", "22.20 GiB"))
    assert "cudagraph-capture-oom" not in verdicts.found


# C14 -----------------------------------------------------------------------------------------------------------------
KEPT = (("attribute", "/srv/attribution.py"), ("main", "/srv/attribution.py"))
STEP = (("forward", "/srv/model.py"), ("main", "/srv/attribution.py"))


def loop(*, kept_a_step: int) -> bytes:
    """60 steps that make and free 2 GiB each; some bytes of every step stay."""
    builder = SnapshotBuilder()
    builder.segment([(30 * GIB, True)])
    for number in range(60):
        for part in range(8):
            builder.step("alloc", 256 * MIB, (number * 100 + part) << 32, *STEP)
        if kept_a_step:
            address = builder.next_address
            builder.segment([(kept_a_step, True)], stack=KEPT)
            builder.step("alloc", kept_a_step, address, *KEPT)
        for part in range(8):
            builder.step("free_completed", 256 * MIB, (number * 100 + part) << 32, *STEP)
    return builder.pickled()


def test_c14_every_iteration_keeps_something(clinic: Clinic) -> None:
    verdicts = clinic.told(loop(kept_a_step=300 * MIB))
    assert verdicts.first == "memory-leak-growth"
    (stack,) = [
        one["value"] for one in verdicts.finding("memory-leak-growth")["evidence"] if one["name"].startswith("stack")
    ]
    assert stack.startswith("attribute (attribution.py")


def test_c14_turns_when_what_is_allocated_stays_level(clinic: Clinic) -> None:
    assert "memory-leak-growth" not in clinic.told(loop(kept_a_step=0)).found


# C15 -----------------------------------------------------------------------------------------------------------------
WINDOWS = """\
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 536.23                 Driver Version: 536.23       CUDA Version: 12.2     |
|-----------------------------------------+----------------------+----------------------+
| GPU  Name                     TCC/WDDM  | Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |         Memory-Usage | GPU-Util  Compute M. |
|                                         |                      |               MIG M. |
|=========================================+======================+======================|
|   0  NVIDIA GeForce RTX 3060     WDDM  | 00000000:01:00.0  On |                  N/A |
| 50%   66C    P2              60W / 170W |  12100MiB / 12288MiB |     50%      Default |
|                                         |                      |                  N/A |
+-----------------------------------------+----------------------+----------------------+
"""


def test_c15_what_does_not_fit_lies_in_system_memory(clinic: Clinic) -> None:
    assert clinic.told(WINDOWS).first == "wddm-sysmem-fallback"


def test_c15_turns_where_full_is_full(clinic: Clinic) -> None:
    linux = WINDOWS.replace("TCC/WDDM ", "Persistence-M").replace("WDDM", "  On")
    verdicts = clinic.told(linux)
    assert "wddm-sysmem-fallback" not in verdicts.found


def test_c15_more_is_allocated_than_there_is(clinic: Clinic) -> None:
    text = oom_texts.of_today(
        tried="2.00 GiB",
        total="12.00 GiB",
        free="0 bytes",
        own="17179869184.00 GiB",
        allocated="18.30 GiB",
        unallocated="400.00 MiB",
    )
    assert clinic.told(text).first == "wddm-sysmem-fallback"


# S05 -----------------------------------------------------------------------------------------------------------------
GENERATE = (f"{SITE}/transformers/generation/utils.py", "_sample", "outputs = self(**model_inputs, return_dict=True)")
CONCATENATED = (
    f"{SITE}/transformers/cache_utils.py",
    "update",
    "self.keys = torch.cat([self.keys, key_states], dim=-2)",
)
FORWARD = (f"{SITE}/transformers/models/llama/modeling_llama.py", "forward", "hidden_states = self.mlp(hidden_states)")


def test_s05_the_cache_is_copied_to_grow(clinic: Clinic) -> None:
    verdicts = clinic.told(oom_texts.traceback(GENERATE, CONCATENATED) + EVALUATED)
    assert verdicts.first == "kv-unpaged-contiguous"


def test_s05_turns_when_a_layer_fails(clinic: Clinic) -> None:
    assert "kv-unpaged-contiguous" not in clinic.told(oom_texts.traceback(GENERATE, FORWARD) + EVALUATED).found
