"""The device multiplies one row at a time: small or static batches.

What happens: decoding reads all weights once a step, for one sequence or for sixty-four. With a batch of one or two the
library picks matrix-vector kernels, the device is busy and almost all of its arithmetic stands idle. Until the batch
reaches the point where arithmetic costs as much as reading, every further sequence is nearly free.

How it is detected: matrix-vector kernels (gemv, dot) take at least half of the time of matrix products in usual steps, at
least twenty a step, on a device that is busy for at least half of the window. The recording does not say whether more
requests were there to be served; this is an opportunity, with little confidence and no promised speed-up. A log does say it:
in at least a fifth of its lines requests wait while the batch stands at its limit and less than half of the KV cache is used.

When it is not this: a device that waits for launches is `host-dispatch-bound` first. A few matrix-vector products in a
batch (a router, a classifier head) are nothing. One user's chat has one sequence, and latency is all it wants.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict, Where

ABOUT = About(
    id="batch-too-small-static",
    title="The batch is too small for the device",
    stage=Stage.SPECIFIC,
    reads=("device_op", "kernel", "usual_step"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_share": Threshold(
        0.5, "share of matrix-product time", source="rule of thumb: most of a decode step's products"
    ),
    "min_per_step": Threshold(20, "kernels a step", source="rule of thumb: one a layer"),
    "min_waiting": Threshold(0.2, "share of lines", source="rule of thumb: not a passing peak"),
    "max_kv": Threshold(0.5, "share of the KV cache", source="rule of thumb: as many again would fit"),
    "small_batch": Threshold(4, "requests", source="rule of thumb: any device serves more at the price of one"),
    "min_busy": Threshold(0.5, "share of the window", source="below this the launches lead, not the weights"),
}

SQL = """
WITH named AS (
    SELECT name_id, regexp_matches(lower(name), 'gemv|gemmk1|dot_kernel') AS is_vector FROM kernel_name WHERE family = 'gemm'
),
product AS (
    SELECT op.start_ns, op.end_ns, is_vector FROM device_op AS op JOIN named USING (name_id), steady_window
    WHERE op.start_ns >= from_ns AND op.start_ns < until_ns
)
SELECT count(*) FILTER (is_vector) AS vector_count, coalesce(sum(end_ns - start_ns) FILTER (is_vector), 0)::BIGINT AS vector_ns,
    coalesce(sum(end_ns - start_ns), 0)::BIGINT AS product_ns, median(end_ns - start_ns) FILTER (is_vector) AS median_ns,
    arg_max(start_ns, end_ns - start_ns) FILTER (is_vector) AS longest_start_ns,
    arg_max(end_ns, end_ns - start_ns) FILTER (is_vector) AS longest_end_ns, (SELECT count(*) FROM usual_step) AS step_count,
    (SELECT avg(busy_ns / (busy_ns + idle_ns)) FROM device_busy WHERE busy_ns + idle_ns > 0) AS busy_share
FROM product
"""


class VectorProducts(NamedTuple):
    """Matrix-vector kernels of the window against all products."""

    vector_count: int
    vector_ns: int
    product_ns: int
    median_ns: float | None
    longest_start_ns: int | None
    longest_end_ns: int | None
    step_count: int
    busy_share: float | None


def judge(row: VectorProducts) -> Verdict:
    """Half of the products are with vectors, and the device is busy with them."""
    if not row.vector_count or not row.product_ns or not row.step_count:
        return None
    share, per_step = row.vector_ns / row.product_ns, row.vector_count / row.step_count
    if share < THRESHOLDS["min_share"].value or per_step < THRESHOLDS["min_per_step"].value:
        return None
    if (row.busy_share or 0) < THRESHOLDS["min_busy"].value:
        return None
    return Finding(
        summary=f"{share:.0%} of the matrix-product time is spent on single rows, {per_step:.0f} such kernels a step: a second sequence"
        f" would cost next to nothing",
        evidence=(
            Evidence(
                "matrix-vector kernels",
                share,
                "share of matrix-product time",
                Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns),
            ),
            Evidence("matrix-vector kernels per step", per_step, "kernels"),
            Evidence("median of them", (row.median_ns or 0) / 1e3, "us"),
        ),
        severity=Severity.LOW,
        confidence=0.4,
    )


LOG_SQL = """
SELECT queue.engine, busy_count, waiting_sample_count, running_median_count, running_p95_count, running_max_count, waiting_median_count, kv_median_share,
    (SELECT max(told_count) FROM engine_choice WHERE setting = 'running_limit' AND engine_choice.engine = queue.engine) AS running_limit,
    (SELECT max(told) FROM engine_choice WHERE setting = 'batching' AND engine_choice.engine = queue.engine) AS batching
FROM engine_queue AS queue WHERE busy_count >= 5
ORDER BY waiting_sample_count / busy_count DESC, queue.engine LIMIT 1
"""


class Batch(NamedTuple):
    """How many run, how many wait, and how full the cache is."""

    engine: str
    busy_count: int
    waiting_sample_count: int
    running_median: float | None
    running_p95: float | None
    running_max: float | None
    waiting_median: float | None
    kv_median_share: float | None
    running_limit: float | None
    batching: str | None


def judge_log(row: Batch) -> Verdict:
    """Waiting beside an empty cache."""
    waiting = row.waiting_sample_count / row.busy_count
    running = row.running_median or 0.0
    has_room = row.kv_median_share is None or row.kv_median_share < THRESHOLDS["max_kv"].value
    if waiting < THRESHOLDS["min_waiting"].value or not has_room or not running:
        return None
    limit = row.running_limit if row.running_limit is not None else row.running_max
    at_limit = limit is not None and running >= 0.9 * limit
    is_static = row.batching in {"single", "static"}
    if not at_limit and not is_static and running > THRESHOLDS["small_batch"].value:
        return None
    room = 0.9 / row.kv_median_share if row.kv_median_share else 8.0
    bound = max(1.0, min((running + (row.waiting_median or 0)) / running, room, 16.0))
    why = (
        f"batching is {row.batching}"
        if is_static
        else f"the limit is {limit:.0f}"
        if at_limit
        else "the batch stays small"
    )
    return Finding(
        summary=f"{running:.0f} requests run while {row.waiting_median or 0:.0f} wait at the median, and {why}"
        + (f"; the KV cache is {row.kv_median_share:.0%} full" if row.kv_median_share is not None else ""),
        evidence=(
            Evidence("requests wait", waiting, "share of lines with running requests"),
            Evidence("requests running", running, "requests at the median"),
            *((Evidence("limit of running requests", row.running_limit, "requests"),) if row.running_limit else ()),
            *(
                (Evidence("KV cache in use", row.kv_median_share, "share at the median"),)
                if row.kv_median_share is not None
                else ()
            ),
        ),
        severity=min(Severity.HIGH, Severity.of_share(1 - 1 / bound)),
        confidence=0.8 if at_limit or is_static else 0.6,
        speedup_bound=bound,
    )


FIXES = (
    Fix(
        "vllm",
        "send requests at the same time (the server batches them); --max-num-seqs 64 or more",
        "weights are read once for all running sequences",
        source="https://docs.vllm.ai/en/latest/configuration/optimization.html",
    ),
    Fix(
        "sglang",
        "send requests at the same time; --max-running-requests 64 or more",
        "weights are read once for all running sequences",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "max_batch_size: 64 or more, with in-flight batching",
        "weights are read once for all running sequences",
        source="https://nvidia.github.io/TensorRT-LLM/performance/performance-tuning-guide/tuning-max-batch-size-and-max-num-tokens.html",
    ),
    Fix(
        "transformers",
        "generate() on a padded batch of prompts, or generate_batch()",
        "one forward pass a token for all sequences",
        source="https://huggingface.co/docs/transformers/continuous_batching",
    ),
    Fix(
        "pytorch",
        "stack the inputs of independent sequences before calling the model; speculative decoding where there is only one",
        "more rows for the same weights",
        source="https://github.com/meta-pytorch/gpt-fast",
    ),
    Fix(
        "engine",
        "--batching continuous",
        "waiting requests fill the batch as others end",
        source="python -m engine bench --help",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=VectorProducts,
    judge=judge,
    fixes=FIXES,
    verify="serve more sequences at once: the step takes little longer, tokens a second follow the batch.",
    doc=__doc__,
    also=(Sign(("engine_queue",), ("engine-log", "metrics"), LOG_SQL, Batch, judge_log),),
)
