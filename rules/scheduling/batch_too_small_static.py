"""The device multiplies one row at a time: small or static batches.

What happens: decoding reads all weights once a step, for one sequence or for sixty-four. With a batch of one or two the
library picks matrix-vector kernels, the device is busy and almost all of its arithmetic stands idle. Until the batch
reaches the point where arithmetic costs as much as reading, every further sequence is nearly free.

How it is detected: matrix-vector kernels (gemv, dot) take at least half of the time of matrix products in usual steps, at
least twenty a step, on a device that is busy for at least half of the window. The recording does not say whether more
requests were there to be served; this is an opportunity, with little confidence and no promised speed-up.

When it is not this: a device that waits for launches is `host-dispatch-bound` first. A few matrix-vector products in a
batch (a router, a classifier head) are nothing. One user's chat has one sequence, and latency is all it wants.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict, Where

ABOUT = About(
    id="batch-too-small-static",
    title="The batch is too small for the device",
    stage=Stage.OPPORTUNITY,
    reads=("device_op", "kernel", "usual_step"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_share": Threshold(
        0.5, "share of matrix-product time", source="rule of thumb: most of a decode step's products"
    ),
    "min_per_step": Threshold(20, "kernels a step", source="rule of thumb: one a layer"),
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
)
