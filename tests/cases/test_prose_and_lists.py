"""Public cases as people write them into a chat: sentences, lists of figures, a table of replicas, half of a session.

Evidence is reconstructed from the figures of C05 vllm-project/vllm PR#41776, C10 InternLM/lmdeploy#722, C12
jundot/omlx#1522, C25 huggingface/transformers#21681, C28 vllm-project/vllm#4238, C30 vllm-project/vllm PR#30492, C32
ROCm/ATOM PR#1210, C36 NVIDIA/Isaac-GR00T#379, C37 vllm-project/vllm#54607, C40 NVIDIA/DeepLearningExamples#1336, S07
vllm-project/vllm#9113 and S11 EleutherAI/lm-evaluation-harness#1468. Each stands beside the same words with other
figures, whose verdict must turn.
"""

from __future__ import annotations

import pytest

from doctor.readers.text import new_scanners
from tests.support import oom_texts
from tests.support.verdicts import Clinic

FULL = oom_texts.of_2020(
    tried="4.00 GiB", total="23.69 GiB", allocated="21.10 GiB", free="2.01 GiB", reserved="21.20 GiB"
)
SLOTS = "session_len 8200, max_batch_size 10, 32 layers, 32 kv heads, head dim 128, ten users x (50 in, 128 out); {}\n"
SLICE = (
    "{} vLLM thinks it has 139.8 GiB and wants 125.\n>>> torch.cuda.mem_get_info()\n(16642998272, {})\n"
    "INFO 11-12 [worker.py:298] total memory 139.80 GiB, gpu_memory_utilization 0.90\n"
)
KILLED = (
    "[08:11:05] {} mem 36.8 GB\n[08:11:08] {} mem 40.0 GB\n"
    "[08:11:11] ABORT memory 42.8 GB over the ceiling 42.0 GB\n[08:11:12] after abort: mem {} GB\n"
)
NODES = (
    "vllm serve m --cpu-offload-gb 8\nThe worker of GPU 4 is bound to NUMA node {}, but GPU 4 hangs on NUMA node 1.\n"
)
BUS = (
    "        GPU0    GPU4    CPU Affinity    NUMA Affinity\n"
    "GPU0     X      NV18    0-55    0\nGPU4    NV18     X      56-111  1\n"
    "$ nvidia-smi --query-compute-apps=pid,gpu_bus_id,used_memory --format=csv,noheader    # the worker on GPU4\n"
    "411873, 00000000:9B:00.0, 61022 MiB\npid 411873's current affinity list: {}\n"
)
LATENCIES = "Latency log (ms), pause before each request in brackets:\n" + "".join(
    f"req {place} [{pause} s] {{{kind}}}\n"
    for place, (pause, kind) in enumerate([(12.0, "a"), (0.1, "b"), (0.1, "b"), (11.5, "a"), (0.1, "b"), (13.1, "a")])
)
HITS = "prefix cache: 812,344 tokens queried, 0 hits. KV block size resolved to {} tokens. Everybody has {}.\n"
REPLICAS = (
    "replica | running | waiting | kv usage\n"
    "r0 | 64 | {0} | {1}\nr1 | 64 | {0} | {1}\nr2 | {2} | 0 | {3}\nr3 | {2} | 0 | {3}\n"
)
RANKS = "rank 0: 1250 requests, mean prompt {} tokens, {}\nrank 1: 1250 requests, mean prompt 212 tokens, 4m01s\n"
POOL = "pod has {} CPUs, node has 128.\n>>> torch.get_num_threads()\n64\n"
WIDTHS = (
    "Two RTX 3090 (no NVLink bridge), 7B fp16. tensor_parallel_size=1: 38 tok/s. tensor_parallel_size=2: {} tok/s.\n"
)
TYPE = "print(next(model.parameters()).dtype) -> torch.{}\n"
EXPERTS = "EP4, 500 steps. tokens per rank: 512k, 498k, {}, 505k\n"
RECORDED = "H100: 5m29s without nsys, {} with nsys\n"

CASES = {
    "C05": (SLICE.format("On a MIG slice", 17179869184), "mig-memory-misread"),
    "C10": (SLOTS.format("the cache is kept per slot, not paged") + FULL, "kv-unpaged-contiguous"),
    "C12": (KILLED.format("prefill chunk 8/29", "prefill chunk 9/29", 24.6), "prefill-activation-peak"),
    "C25": (TYPE.format("float32"), "wrong-dtype-fp32"),
    "C28": (WIDTHS.format(41), "tp-too-wide"),
    "C30 in words": (NODES.format(0), "numa-misplaced"),
    "C30 by bus id": (BUS.format("0-55"), "numa-misplaced"),
    "C32": (EXPERTS.format("1.61M"), "moe-expert-imbalance"),
    "C36": (LATENCIES.format(a=181.2, b=60.4), "idle-clock-ramp"),
    "C37": (HITS.format(784, "a system prompt of 240 tokens"), "prefix-below-block"),
    "C37 behind an id": (
        HITS.format(16, "their own uuid first and then the same 3,000 tokens of system prompt"),
        "prefix-miss",
    ),
    "C40": (RECORDED.format("23m16s"), "profiler-distorted"),
    "S07": (POOL.format(4), "cpu-quota-throttle"),
    "S11": (RANKS.format(3811, "31m02s"), "dp-imbalance"),
    "replicas": (REPLICAS.format(112, 0.93, 3, 0.04), "dp-imbalance"),
}
TURNED = {
    "C05": SLICE.format("MIG is off:", 150115926016),
    "C10": SLOTS.format("kv is paged by a block manager, nothing is kept per slot") + FULL,
    "C12": KILLED.format("turn 8", "turn 9", 41.9),
    "C30 in words": NODES.format(1),
    "C30 by bus id": BUS.format("56-111"),
    "C36": LATENCIES.format(a=61.2, b=60.4),
    "C37": HITS.format(16, "a system prompt of 240 tokens"),
    "S07": POOL.format(64),
    "S11": RANKS.format(220, "4m20s"),
    "replicas": REPLICAS.format(0, 0.5, 61, 0.5),
}


@pytest.mark.parametrize("name", CASES)
def test_a_case_told_in_words_has_its_cause_first(name: str, clinic: Clinic) -> None:
    text, rule = CASES[name]
    assert clinic.told(text).first == rule


@pytest.mark.parametrize("name", TURNED)
def test_the_same_words_with_other_figures_turn(name: str, clinic: Clinic) -> None:
    beside = "GPU1    X\nINFO 08-24 14:00:00 [api_server.py:1] vLLM API server version 0.9.1\n"
    assert CASES[name][1] not in clinic.told(beside + TURNED[name]).found


def test_a_product_in_words_is_no_evidence_alone_and_two_are_none_at_all(clinic: Clinic) -> None:
    scanners = [scanner for scanner in new_scanners() if type(scanner).__name__ == "CardNameScanner"]
    for scanner, text in zip(scanners, ("an H100 beside an A100",), strict=True):
        scanner.line(1, text)
        assert scanner.facts() is None
    with pytest.raises(AssertionError, match="not known as evidence"):
        clinic.told("we bought an RTX 4090\n")
