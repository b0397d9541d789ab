"""There is no room left for CUDA graphs: the run fails while they are captured.

What happens: graphs are captured after weights and KV cache have been placed, one for each batch size, each with buffers of its own in
a private pool. Engines that give the cache everything up to the last percent leave too little, above all at a share of 0.95 and more.

How it is detected: the failing frames are those of the capture, or the engine had begun to capture and had not finished. What the
graphs took, or would take, is given where the engine says so.

When it is not this: memory that another process took meanwhile: `foreign-gpu-process` is looked at first. A failure in the sampler's
warm-up just before: `logits-logprob-peak`.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict, Where
from doctor.units import format_bytes

ABOUT = About(
    id="cudagraph-capture-oom",
    title="No room for CUDA graphs",
    stage=Stage.MEMORY,
    reads=("oom_event",),
    needs=("oom-text", "engine-log"),
)

THRESHOLDS = {
    "least_ratio": Threshold(
        2, "x what the graphs take", source="vllm#57475: fails at a share of 0.98, starts at 0.97; graphs take 0.46 GiB"
    ),
}

SQL = """
SELECT tried_bytes, total_bytes, allocated_bytes, free_bytes, private_pool_bytes, device_id, stack,
    (SELECT max(amount_bytes) FROM engine_figure WHERE figure IN ('graph_memory', 'graph_estimate')) AS graph_bytes,
    (SELECT max(told_count) FROM engine_choice WHERE setting = 'memory_share') AS memory_share
FROM oom_cause WHERE cause = 'capture' ORDER BY (total_bytes IS NULL), source_id, oom_event_id LIMIT 1
"""


class Failure(NamedTuple):
    """A failure while graphs were captured."""

    tried_bytes: int | None
    total_bytes: int | None
    allocated_bytes: int | None
    free_bytes: int | None
    private_pool_bytes: int | None
    device_id: int | None
    stack: str | None
    graph_bytes: int | None
    memory_share: float | None


def judge(row: Failure) -> Verdict:
    """It fails in the capture, and nobody else is to blame."""
    evidence: list[Evidence] = []
    if row.tried_bytes is not None:
        evidence.append(Evidence("allocation that failed", row.tried_bytes, "bytes", Where(device_id=row.device_id)))
    if row.free_bytes is not None:
        evidence.append(Evidence("free", row.free_bytes, "bytes"))
    graphs = row.graph_bytes or row.private_pool_bytes
    if graphs:
        evidence.append(Evidence("memory of the graphs", graphs, "bytes"))
    if row.memory_share is not None:
        evidence.append(Evidence("share of the device that the engine takes", row.memory_share, "share"))
    if row.stack is not None:
        evidence.append(Evidence("where", row.stack, ""))
    numbers = (
        f": {format_bytes(row.tried_bytes)} asked for, {format_bytes(row.free_bytes)} of {format_bytes(row.total_bytes)} free"
        if row.tried_bytes is not None and row.free_bytes is not None and row.total_bytes is not None
        else ""
    )
    return Finding(
        summary=f"memory ran out while CUDA graphs were captured{numbers}",
        evidence=tuple(evidence) or (Evidence("phase", "capture", "of the failure"),),
        severity=Severity.CRITICAL,
        bytes=max(int((graphs or 0) * THRESHOLDS["least_ratio"].value), row.tried_bytes or 0) or None,
        confidence=0.9 if row.stack is not None else 0.75,
    )


FIXES = (
    Fix(
        "vllm",
        "--gpu-memory-utilization lower by 0.02 to 0.05",
        "the cache leaves room for the graphs; the log names the equivalent share where graphs are counted in",
        source="https://github.com/vllm-project/vllm/issues/57475",
    ),
    Fix(
        "vllm",
        "--cudagraph-capture-sizes with fewer sizes, --max-cudagraph-capture-size N (before 0.11: --cuda-graph-sizes); --max-num-seqs lower",
        "fewer graphs are made",
        source="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html (checked on main of 2026)",
    ),
    Fix(
        "sglang",
        "--cuda-graph-max-bs N (since 0.5.20: --cuda-graph-max-bs-decode), --mem-fraction-static lower",
        "fewer graphs are made, and there is room for them",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html (checked on main of 2026, both names)",
    ),
    Fix(
        "tensorrt-llm",
        "cuda_graph_config: {max_batch_size: N}; kv_cache_config: {free_gpu_memory_fraction: 0.85}",
        "fewer graphs are made, and there is room for them",
        source="https://nvidia.github.io/TensorRT-LLM/ (checked on llm_args.py of main)",
    ),
    Fix(
        "vllm",
        "--enforce-eager, last of all",
        "no graphs: small models then decode several times slower",
        source="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html (checked on main of 2026)",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Failure,
    judge=judge,
    fixes=FIXES,
    verify="the capture ends, and the log says what the graphs took.",
    doc=__doc__,
)
