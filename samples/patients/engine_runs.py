"""Conditions of this project's engine (`python -m engine conditions`), sick and cured."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers

from engine import LLM, EngineConfig
from engine.benchmark import Workload, measure, timed_requests
from engine.conditions import find_condition
from samples.patients.patient import Build, Job, Patient, Recorder, Workshop

DENSE: dict[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "max_position_embeddings": 16384,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SMALL = DENSE | {
    "vocab_size": 500,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
EXPERTS: dict[str, Any] = {"num_local_experts": 32, "num_experts_per_tok": 4}
LAUNCH_GROUP = ("cudagraph-off", "tiny-kernels")


def checkpoint(workshop: Workshop, kind: str) -> Path:
    """Folder of a random model, made once: `dense` (0.85 B parameters) or `experts` (8 layers of 32 experts)."""
    folder = workshop.folder / f"{kind}-{'small' if workshop.is_small else 'large'}"
    if (folder / "config.json").exists():
        return folder
    sizes = SMALL if workshop.is_small else DENSE
    if kind == "experts":
        layers = 2 if workshop.is_small else 8
        width = 48 if workshop.is_small else 1024
        sizes = sizes | EXPERTS | {"num_hidden_layers": layers, "intermediate_size": width}
    config = (transformers.MixtralConfig if kind == "experts" else transformers.LlamaConfig)(**sizes)
    torch.manual_seed(0)
    with torch.device(workshop.device):
        model: Any = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    for name, parameter in model.named_parameters():
        if "norm" not in name:
            parameter.data.normal_(0, 0.02)
    model.save_pretrained(folder)
    del model
    gc.collect()
    return folder


class EngineJob:
    """A batch of requests through the engine; a recording holds a steady window of its steps."""

    def __init__(self, config: EngineConfig, workload: Workload, skip: int, length: int) -> None:
        self._llm = LLM.from_config(config)
        self._requests = timed_requests(workload, self._llm.core.vocabulary.size)
        self._skip, self._length = skip, length
        self._facts: dict[str, object] = {}

    def run(self) -> None:
        """Serve all requests."""
        found = measure(self._llm, self._requests).as_json()
        self._facts = {
            "output_tokens_per_s": found["output_tokens_per_s"],
            "peak_memory_bytes": found["peak_memory_bytes"],
            "itl_s": found["itl_s"],
            **{name: count for name, count in found["counters"].items() if count},
        }

    def record(self, recorder: Recorder) -> None:
        """Serve all requests; `length` steps after the first `skip` are recorded."""
        measure(self._llm, self._requests, _window(self._llm, recorder, self._skip, self._length))

    def facts(self) -> dict[str, object]:
        """Counters of the last run."""
        return self._facts


@contextmanager
def _window(llm: LLM, recorder: Recorder, skip: int, length: int) -> Iterator[None]:
    place, open_capture = 0, None

    def before_step() -> None:
        nonlocal place, open_capture
        if place == skip:
            torch.cuda.synchronize() if torch.cuda.is_available() else None
            open_capture = recorder.around()
            open_capture.__enter__()
        elif place == skip + length and open_capture is not None:
            _closed(open_capture)
            open_capture = None
        place += 1

    llm.core.loop.before_step = before_step
    try:
        yield
    finally:
        llm.core.loop.before_step = None
        if open_capture is not None:
            _closed(open_capture)


def _closed(capture: Any) -> None:
    torch.cuda.synchronize() if torch.cuda.is_available() else None
    capture.__exit__(None, None, None)


def engine_job(
    condition: str | None,
    *,
    cured: bool = False,
    kind: str = "dense",
    workload: Workload | None = None,
    window: tuple[int, int] = (8, 12),
    **options: Any,
) -> Build:
    """A job of the engine under a condition or its cure.

    Args:
        condition: name; None runs the engine as it is.
        cured: the cure in place of the condition.
        kind: checkpoint.
        workload: requests; 16 of 64 prompt tokens and 48 answer tokens where None.
        window: steps to skip and to record.
        options: more options of the engine.
    """

    def build(workshop: Workshop) -> Job:
        chosen = {"max_model_len": 1024, "max_num_seqs": 16, "prefix_caching": False, "device": workshop.device}
        if workshop.device == "cuda":
            chosen["num_blocks"] = 4096
        config = EngineConfig(str(checkpoint(workshop, kind)), **(chosen | options))
        if condition is not None:
            config = find_condition(condition).apply(config, cured)
        return EngineJob(config, workload or Workload(16, (64, 64), (48, 48)), *window)

    return build


def _both(condition: str, **choices: Any) -> dict[str, Build]:
    return {"sick": engine_job(condition, **choices), "cured": engine_job(condition, cured=True, **choices)}


LONG_PROMPTS = Workload(4, (4000, 4000), (6, 6))
MANY_PROMPT_TOKENS = Workload(16, (1000, 1000), (3, 3))

PATIENTS = (
    Patient(
        "engine-eager-decode",
        "decode launches its kernels one by one, 16 sequences",
        **_both("no-cuda-graphs"),
        first="host-dispatch-bound",
        allowed=LAUNCH_GROUP,
        half="fit",
    ),
    Patient(
        "engine-small-micro-batches",
        "each step is cut into 16 passes of one sequence",
        **_both("micro-batch-small", window=(8, 5)),
        first="micro-batch-too-small",
        allowed=(*LAUNCH_GROUP, "host-dispatch-bound", "step-gap-scheduler", "sync-in-step"),
        half="fit",
    ),
    Patient(
        "engine-sync-every-layer",
        "the host waits after every layer of an eager step: the launches hold the run up, the waits next to nothing",
        **_both("sync-every-layer"),
        first="host-dispatch-bound",
        cures="sync-in-step",
        allowed=(*LAUNCH_GROUP, "sync-in-step"),
    ),
    Patient(
        "engine-pageable-offload",
        "half of the weights come from pageable memory in each step",
        **_both("pageable-copies", window=(8, 8)),
        first="pageable-copies",
        allowed=(*LAUNCH_GROUP, "host-dispatch-bound", "offload-bandwidth-bound", "sync-in-step"),
        half="fit",
    ),
    Patient(
        "engine-streamed-weights",
        "half of the weights stream from pinned memory in each step",
        sick=engine_job(None, weight_offload=0.5, weight_copies="prefetch", cuda_graphs=False),
        cured=engine_job(None, cuda_graphs=False),
        first="offload-bandwidth-bound",
        allowed=(*LAUNCH_GROUP, "host-dispatch-bound"),
    ),
    Patient(
        "engine-empty-cache",
        "the allocator's cache is emptied after every replayed step: a habit that costs next to nothing here",
        **_both("empty-cache-every-step"),
        first=None,
        cures="alloc-in-hot-loop",
    ),
    Patient(
        "engine-eager-attention",
        "attention over prompts of 4,000 tokens writes its scores to memory",
        **_both(
            "eager-attention", workload=LONG_PROMPTS, window=(0, 6), max_model_len=4096, max_num_batched_tokens=4096
        ),
        first="attention-not-fused",
        allowed=(*LAUNCH_GROUP, "host-dispatch-bound", "lazy-module-load", "step-gap-scheduler"),
    ),
    Patient(
        "engine-fp32-prompts",
        "prompts are computed in fp32, where the matrix units would be sixteen times as fast in bf16",
        **_both("fp32", workload=MANY_PROMPT_TOKENS, window=(0, 10), max_model_len=1100, max_num_batched_tokens=2048),
        first="wrong-dtype-fp32",
        allowed=("tf32-off", "lazy-module-load", "attention-not-fused"),
    ),
    Patient(
        "engine-slow-scheduler",
        "the scheduler checks every block of the pool between two steps",
        **_both("slow-scheduler", num_blocks=30000),
        first="step-gap-scheduler",
        allowed=(*LAUNCH_GROUP, "host-dispatch-bound"),
    ),
    Patient(
        "engine-growing-kv",
        "the KV cache of each request grows by concatenation",
        **_both("unpaged-kv", workload=Workload(8, (256, 256), (24, 24)), window=(8, 6)),
        first="host-dispatch-bound",  # 892 launches a step, and copies of 2 us: corrected after the first diagnosis
        compound=True,
        allowed=(
            *LAUNCH_GROUP,
            "host-dispatch-bound",
            "lazy-module-load",
            "attention-not-fused",
            "kv-unpaged-contiguous",
            "sync-in-step",
        ),
    ),
    Patient(
        "engine-expert-loop",
        "a Python loop visits 32 experts one after another",
        **_both("moe-expert-loop", kind="experts", window=(8, 3)),
        first="moe-expert-loop",
        allowed=(*LAUNCH_GROUP, "host-dispatch-bound", "sync-in-step"),
        half="fit",
    ),
    Patient(
        "engine-slow-gating",
        "the experts of a token are chosen in rounds of softmax, maximum and mask",
        **_both("slow-gating", kind="experts", window=(8, 6)),
        first="moe-gating-cost",
        allowed=(*LAUNCH_GROUP, "host-dispatch-bound"),
    ),
    Patient(
        "engine-ragged-static-batch",
        "a static batch shrinks until its longest request is done, while others wait",
        **_both("static-batching", workload=Workload(160, (16, 64), (8, 512)), window=(400, 12)),
        first=None,  # the cure won 6 %, within its spread: corrected after it was measured
        cures="batch-too-small-static",
        log_only=True,
    ),
    Patient(
        "engine-prompts-between-decodes",
        "whole prompts of 1,500 to 3,000 tokens run in one step while others wait for their next token",
        **_both(
            "prefill-blocks-decode",
            workload=Workload(48, (1500, 3000), (32, 64), requests_per_s=40),
            window=(40, 60),
            max_model_len=8192,
            num_blocks=16000,
        ),
        first="host-dispatch-bound",  # 14 ms of launches for 5 ms of device work: corrected after the first diagnosis
        compound=True,  # smaller pieces are launched one by one just as well
        allowed=(*LAUNCH_GROUP, "prefill-blocks-decode", "step-gap-scheduler", "lazy-module-load"),
    ),
    Patient(
        "engine-poor-draft",
        "drafts of 16 tokens on thin evidence, nearly all rejected",
        **_both("low-acceptance-draft", workload=Workload(32, (64, 64), (300, 300)), window=(8, 12)),
        first="spec-not-paying",
        log_only=True,
    ),
    Patient(
        "engine-int8-weights",
        "INT8 weights are widened in kernels of their own before each product",
        sick=engine_job(None, window=(8, 6), quantization="int8", cuda_graphs=False),
        cured=engine_job(None, cuda_graphs=False),
        first="host-dispatch-bound",  # an eager step of a small batch: corrected after the first diagnosis
        cures="quant-kernel-legacy",
        allowed=(*LAUNCH_GROUP, "host-dispatch-bound", "quant-kernel-legacy"),
    ),
    Patient(
        "healthy-engine-decode",
        "decode steps of 16 sequences, each one CUDA graph",
        sick=engine_job(None),
        cured=None,
        first=None,
    ),
    Patient(
        "healthy-engine-prompts",
        "prompts of 4,000 tokens in bf16: the matrix units are busy",
        sick=engine_job(
            None,
            workload=Workload(8, (4000, 4000), (2, 2)),
            window=(0, 8),
            max_model_len=4096,
            max_num_batched_tokens=4096,
        ),
        cured=None,
        first=None,
    ),
)
