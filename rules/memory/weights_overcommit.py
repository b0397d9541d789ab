"""The model, with a margin, does not fit into the device.

What happens: weights are loaded first and fill the device before anything else has room: a type of four bytes where two were meant, a
model for two devices on one, no quantisation, or a second copy while the first is being moved.

How it is detected: an allocation fails while weights are loaded (the traceback ends in the loader, or the engine's last line was about
loading), and neither other processes nor fragmentation explain it; or the engine says what its weights take and that is over 92 % of
the device; or nothing is left for the KV cache and weights take most of what the engine may use. A start that is refused with less than
nothing for its cache is told here too where neither another process, a second start, the trial run nor memory outside PyTorch stands out:
then the budget as such is too small, and the finding says what would settle which part of it.

When it is not this: `foreign-gpu-process` first: the same model may have fitted yesterday. Failures after loading belong to what runs
then: `prefill-activation-peak`, `cudagraph-capture-oom`, `kv-unpaged-contiguous`.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict, Where
from doctor.units import format_bytes

ABOUT = About(
    id="weights-overcommit",
    title="The model does not fit",
    stage=Stage.MEMORY,
    reads=("oom_event",),
    needs=("oom-text",),
)

THRESHOLDS = {
    "most_share": Threshold(0.92, "share of the device", source="what engines take by default leaves 8 to 10 %"),
    "most_of_requested": Threshold(
        0.8, "share of what the engine may take", source="activations and context take 5 to 15 %"
    ),
}

SQL = """
SELECT tried_bytes, total_bytes, allocated_bytes, free_bytes, device_id, stack,
    EXISTS (SELECT 1 FROM weight_type WHERE is_fp32 OR is_wide OR is_stored_wide) AS is_fp32
FROM oom_cause WHERE cause = 'weights' ORDER BY source_id, oom_event_id LIMIT 1
"""


class Failure(NamedTuple):
    """A failure while weights were loaded."""

    tried_bytes: int | None
    total_bytes: int | None
    allocated_bytes: int | None
    free_bytes: int | None
    device_id: int | None
    stack: str | None
    is_fp32: bool


def judge(row: Failure) -> Verdict:
    """It fails while loading, and nobody else is to blame."""
    if row.allocated_bytes is None or not row.total_bytes:
        summary = "the device was full while the model was loaded"
        evidence: tuple[Evidence, ...] = (Evidence("phase", "load", "of the failure"),)
    else:
        summary = (
            f"{format_bytes(row.allocated_bytes)} of {format_bytes(row.total_bytes)} were filled while the model was still being loaded,"
            f" and {format_bytes(row.tried_bytes or 0)} more did not fit"
        )
        evidence = (
            Evidence("loaded so far", row.allocated_bytes, "bytes", Where(device_id=row.device_id)),
            Evidence("share of the device", row.allocated_bytes / row.total_bytes, "share"),
        )
    if row.stack is not None:
        evidence += (Evidence("where", row.stack, ""),)
    return Finding(
        summary=summary,
        evidence=evidence,
        severity=Severity.MEDIUM
        if row.is_fp32
        else Severity.CRITICAL,  # half of it would do: wrong-dtype-fp32 stands before this
        bytes=row.tried_bytes,
        confidence=0.85,
    )


FIGURE_SQL = """
WITH figure AS (
    SELECT source_id, replica_id, max(amount_bytes) FILTER (figure = 'weights') AS weight_bytes, max(amount_bytes) FILTER (figure = 'total_memory') AS total_bytes,
        max(amount_bytes) FILTER (figure = 'requested_memory') AS requested_bytes, min(amount_bytes) FILTER (figure = 'kv_memory') AS kv_bytes
    FROM engine_figure GROUP BY ALL
)
SELECT weight_bytes, coalesce(figure.total_bytes, (SELECT max(card_bytes) FROM refusal), (SELECT max(memory_total_bytes) FROM gpu_sample),
        (SELECT max(total_bytes) FROM oom)) AS total_bytes,
    requested_bytes, kv_bytes, EXISTS (SELECT 1 FROM refusal WHERE refusal = 'no_kv_room') AS is_refused,
    EXISTS (SELECT 1 FROM refusal WHERE is_shared) OR EXISTS (SELECT 1 FROM oom_cause WHERE cause <> 'weights') AS is_explained,
    (SELECT max(utilization_share) FROM refusal) AS utilization_share
FROM figure WHERE weight_bytes IS NOT NULL AND NOT EXISTS (SELECT 1 FROM starved_start WHERE cause IN ('weights', 'budget'))
ORDER BY weight_bytes DESC LIMIT 1
"""


class Figures(NamedTuple):
    """What the engine says of its weights."""

    weight_bytes: int
    total_bytes: int | None
    requested_bytes: int | None
    kv_bytes: int | None
    is_refused: bool
    is_explained: bool
    utilization_share: float | None


def judge_figures(row: Figures) -> Verdict:
    """Weights take the device, or all that the engine may take."""
    if not row.total_bytes or row.is_explained:
        return None
    share = row.weight_bytes / row.total_bytes
    may_take = row.requested_bytes or row.total_bytes * (row.utilization_share or 0.9)
    is_starved = (row.is_refused or (row.kv_bytes is not None and row.kv_bytes <= 0)) and (
        row.weight_bytes >= THRESHOLDS["most_of_requested"].value * may_take
    )
    if share <= THRESHOLDS["most_share"].value and not is_starved:
        return None
    return Finding(
        summary=f"weights take {format_bytes(row.weight_bytes)} of {format_bytes(row.total_bytes)} ({share:.0%}):"
        f" {'nothing is left for the KV cache' if is_starved else 'next to nothing is left for cache and activations'}",
        evidence=(
            Evidence("weights", row.weight_bytes, "bytes"),
            Evidence("share of the device", share, "share"),
        ),
        severity=Severity.CRITICAL,
        bytes=row.weight_bytes,
        confidence=0.85,
    )


STARVED_SQL = """
SELECT engine, refusal_count, kv_bytes, weight_bytes, activation_bytes, non_torch_bytes, total_bytes, budget_bytes, told_share,
    CASE WHEN cause = 'weights' AND is_share_low THEN 'share' ELSE cause END AS cause
FROM starved_start
WHERE cause IN ('budget', 'weights') AND NOT EXISTS (SELECT 1 FROM oom WHERE total_bytes IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM refusal WHERE refusal = 'startup_free')
"""


class Starved(NamedTuple):
    """A start that was left nothing for the KV cache, and the parts of its budget that are known."""

    engine: str | None
    refusal_count: int
    kv_bytes: int | None
    weight_bytes: int | None
    activation_bytes: int | None
    non_torch_bytes: int | None
    total_bytes: int | None
    budget_bytes: int | None
    told_share: float | None
    cause: str


def judge_starved(row: Starved) -> Verdict:
    """The engine's own word, with its figures where it gives some."""
    parts = tuple(
        (name, size)
        for name, size in (
            ("weights", row.weight_bytes),
            ("activations of the trial run", row.activation_bytes),
            ("memory outside PyTorch", row.non_torch_bytes),
        )
        if size is not None
    )
    told = ", ".join(f"{name} {format_bytes(size)}" for name, size in parts)
    may_take = row.budget_bytes if row.total_bytes else None
    budget = f" of the {format_bytes(may_take)} that it may take" if may_take else " of what the engine may take"
    left = f" ({format_bytes(row.kv_bytes)})" if row.kv_bytes is not None else ""
    is_weights = row.cause == "weights"
    low = (
        f"; a share of {row.told_share:.2f} of the device is too small for this model"
        if row.cause == "share" and row.told_share
        else ""
    )
    share = (
        f", {row.weight_bytes / row.total_bytes:.0%} of the device"
        if is_weights and row.weight_bytes and row.total_bytes
        else ""
    )
    return Finding(
        summary=f"nothing is left for the KV cache{left}{budget}: "
        + (
            told
            or "weights, the activations of its trial run and what others hold take all of it; which of them, the text does not say"
        )
        + share
        + low,
        evidence=(
            *((Evidence("left for the KV cache", row.kv_bytes, "bytes"),) if row.kv_bytes is not None else ()),
            *((Evidence("what the engine may take", may_take, "bytes"),) if may_take else ()),
            *(Evidence(name, size, "bytes") for name, size in parts),
            *((Evidence("starts refused", row.refusal_count, "starts"),) if row.refusal_count else ()),
        ),
        severity=Severity.CRITICAL,
        bytes=-row.kv_bytes if row.kv_bytes is not None else None,
        confidence=0.85 if is_weights or low else 0.7 if parts and may_take else 0.55,
        label="" if is_weights else "into what the engine may take",
        fixes=FIXES if is_weights else (SETTLES, *STARVED_FIXES, *FIXES[:2]),
    )


SETTLES = Fix(
    "system",
    "nvidia-smi before the start: nothing else may hold the device; then the start's own lines on weights, activation peak and memory outside"
    " PyTorch, diagnosed together with this",
    "they say which part takes the room: the model, its trial run, or somebody else",
    source="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html (checked on main of 2026)",
)
STARVED_FIXES = (
    Fix(
        "vllm",
        "--gpu-memory-utilization up, to free / total - 0.02 at most; --max-num-batched-tokens 2048 and fewer --max-num-seqs; --limit-mm-per-prompt"
        " for models that see images",
        "the trial run computes the largest batch that these allow, and its peak is taken off the cache",
        source="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html (checked on main of 2026)",
    ),
    Fix(
        "sglang",
        "--mem-fraction-static up: weights and KV pool together must fit into it",
        "what is not in it is kept for activations",
        source="https://docs.sglang.ai/advanced_features/hyperparameter_tuning.html (checked with 0.5.9 to 0.5.18)",
    ),
    Fix(
        "tensorrt-llm",
        "max_num_tokens and max_batch_size lower; kv_cache_config: {free_gpu_memory_fraction: 0.9}",
        "the cache gets a share of what is left behind model and trial run",
        source="https://nvidia.github.io/TensorRT-LLM/features/kvcache.html (checked on llm_args.py of main)",
    ),
    Fix(
        "lmdeploy",
        "--cache-max-entry-count up, max_prefill_token_num lower",
        "the cache gets a share of what is free once the weights are loaded",
        source="https://lmdeploy.readthedocs.io/en/latest/inference/turbomind_config.html",
    ),
)
FIXES = (
    Fix(
        "vllm",
        "--tensor-parallel-size N; --quantization or a quantised checkpoint; --cpu-offload-gb N as the last resort",
        "each device then holds a part, or fewer bytes a weight",
        source="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html (checked on main of 2026)",
    ),
    Fix(
        "sglang",
        "--tp-size N; --quantization fp8 or a quantised checkpoint; --cpu-offload-gb N",
        "each device then holds a part, or fewer bytes a weight",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html (checked on main of 2026)",
    ),
    Fix(
        "tensorrt-llm",
        "tensor_parallel_size: N; quant_config with FP8 or NVFP4",
        "each device then holds a part, or fewer bytes a weight",
        source="https://nvidia.github.io/TensorRT-LLM/features/quantization.html (checked on llm_args.py of main)",
    ),
    Fix(
        "tgi",
        "--num-shard N; --quantize with a quantised checkpoint, or fp8",
        "each device then holds a part, or fewer bytes a weight",
        source="https://huggingface.co/docs/text-generation-inference/reference/launcher",
    ),
    Fix(
        "transformers",
        'dtype="auto" (before 4.56: torch_dtype); device_map="auto" with max_memory 5 to 10 % below the card; quantization_config',
        "weights load in the type they are stored in, and some layers go elsewhere",
        source="https://huggingface.co/docs/transformers/models, https://huggingface.co/docs/accelerate/concept_guides/big_model_inference",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Failure,
    judge=judge,
    fixes=FIXES,
    verify="it loads with at least 5 % of the device free.",
    doc=__doc__,
    also=(
        Sign(("engine_figure",), ("engine-log",), FIGURE_SQL, Figures, judge_figures),
        Sign(("starved_start",), ("engine-log", "oom-text"), STARVED_SQL, Starved, judge_starved),
    ),
)
