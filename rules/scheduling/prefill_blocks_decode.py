"""Long prefills run between decode steps: everybody waits for one prompt.

What happens: a prompt that is computed in one piece takes as long as dozens of decode steps, and the sequences that were
being decoded get no token meanwhile. The mean hardly shows it; the 99th percentile of the time between tokens does.

How it is detected: at least three steps, or runs of steps, each directly behind a usual decode step, that take at least
five times the median step, hold at least three times its device work, and keep the device busy for at least half of their
length. The finding states what it does to the time between tokens; no work would go away, so no speed-up is promised.

When it is not this: a long step without device work is a pause: `step-gap-scheduler`. A program that answers one request
after another has the same picture and nobody who waits: look at whether sequences were running. The first prefill of a
recording stands behind no decode step.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict, Where

ABOUT = About(
    id="prefill-blocks-decode",
    title="Long prefills hold up decode steps",
    stage=Stage.SPECIFIC,
    reads=("device_op", "step_work", "usual_step"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_ratio": Threshold(5, "x the median step", source="sgl-project/sglang PR#14050: between-token p99 over p50"),
    "min_runs": Threshold(3, "runs of long steps", source="sgl-project/sglang PR#14050: prefill after prefill"),
    "min_work_ratio": Threshold(3, "x the median step's device work", source="a prompt is more work than a token"),
    "min_busy": Threshold(0.5, "share of a long step", source="a step that mostly idles is a pause"),
    "min_share": Threshold(0.1, "share of the window", source="rule of thumb: below this one token in ten waits"),
}

SQL = """
WITH worked AS (
    SELECT step_id, sum(device_ns)::BIGINT AS device_ns FROM step_work GROUP BY step_id
),
usual AS (
    SELECT source_id, pid, median(length_ns) AS length_ns, median(device_ns) AS device_ns
    FROM (SELECT step_id, source_id, pid, end_ns - start_ns AS length_ns FROM step) JOIN worked USING (step_id)
    GROUP BY source_id, pid
),
sorted AS (
    SELECT step.source_id, step.pid, step.start_ns, step.end_ns, worked.device_ns,
        step.end_ns - step.start_ns >= $min_ratio * usual.length_ns AND worked.device_ns >= $min_work_ratio * usual.device_ns
            AND worked.device_ns >= $min_busy * (step.end_ns - step.start_ns) AS is_long,
        step.end_ns - step.start_ns < 2 * usual.length_ns AS is_usual, usual.length_ns AS usual_ns
    FROM step JOIN worked USING (step_id) JOIN usual ON usual.source_id = step.source_id AND usual.pid = step.pid
),
opened AS (
    SELECT *, is_long AND coalesce(lag(is_usual) OVER (PARTITION BY source_id, pid ORDER BY start_ns), false) AS is_run_start FROM sorted
)
SELECT count(*) AS step_count, count(*) FILTER (is_long) AS long_count, count(*) FILTER (is_run_start) AS run_count,
    coalesce(sum(end_ns - start_ns) FILTER (is_long), 0)::BIGINT AS long_ns, median(usual_ns) AS usual_ns,
    quantile_cont(end_ns - start_ns, 0.99) AS p99_ns, max(end_ns - start_ns) FILTER (is_long) AS longest_ns,
    arg_max(start_ns, end_ns - start_ns) FILTER (is_long) AS longest_start_ns, arg_max(end_ns, end_ns - start_ns) FILTER (is_long) AS longest_end_ns,
    max(start_ns) FILTER (is_usual) > max(start_ns) FILTER (is_long) AS decodes_afterwards,
    (SELECT until_ns - from_ns FROM steady_window) AS window_ns
FROM opened
"""


class LongSteps(NamedTuple):
    """Steps of the window, the long ones among them."""

    step_count: int
    long_count: int
    run_count: int
    long_ns: int
    usual_ns: float | None
    p99_ns: float | None
    longest_ns: int | None
    longest_start_ns: int | None
    longest_end_ns: int | None
    decodes_afterwards: bool | None
    window_ns: int


def judge(row: LongSteps) -> Verdict:
    """Long steps that come back between usual ones."""
    if row.run_count < THRESHOLDS["min_runs"].value or not row.decodes_afterwards:
        return None
    if not row.usual_ns or row.longest_ns is None or row.long_count > 0.5 * row.step_count:
        return None
    ratio, share = (row.p99_ns or 0) / row.usual_ns, row.long_ns / row.window_ns
    return Finding(
        summary=f"{row.long_count} steps of up to {row.longest_ns / 1e6:.0f} ms, between usual steps of {row.usual_ns / 1e6:.1f} ms:"
        f" sequences that are being decoded wait for prompts during {share:.0%} of the window",
        evidence=(
            Evidence(
                "longest step against the median",
                row.longest_ns / row.usual_ns,
                "x",
                Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns),
            ),
            Evidence("99th percentile of steps against the median", ratio, "x"),
            Evidence("time in long steps", share, "share of window"),
            Evidence("runs of long steps", float(row.run_count), "runs"),
        ),
        # the trace alone does not say whether anybody was waiting
        severity=Severity.MEDIUM if share >= THRESHOLDS["min_share"].value else Severity.LOW,
        confidence=0.6,
    )


FIXES = (
    Fix(
        "vllm",
        "--enable-chunked-prefill --max-num-batched-tokens 2048 (to 8192); --long-prefill-token-threshold",
        "a prompt runs in pieces, each together with the decode tokens",
        source="https://docs.vllm.ai/en/latest/configuration/optimization.html",
    ),
    Fix(
        "sglang",
        "--chunked-prefill-size 2048 (to 8192) --enable-mixed-chunk; or prefill and decode on separate servers"
        " (--disaggregation-mode)",
        "pieces of a prompt share a step with decode",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "enable_chunked_prefill: true, max_num_tokens: 2048 (to 8192)",
        "pieces of a prompt share a step with decode",
        source="https://nvidia.github.io/TensorRT-LLM/features/paged-attention-ifb-scheduler.html",
    ),
    Fix(
        "transformers",
        "generate_batch() with ContinuousBatchingConfig(max_batch_tokens=2048)",
        "prompts are cut to what fits beside the running sequences",
        source="https://huggingface.co/docs/transformers/continuous_batching",
    ),
    Fix(
        "pytorch",
        "cut prompts into pieces of 512 to 2,048 tokens and pack each with the decode tokens of the step",
        "the longest step is bounded",
        source="https://arxiv.org/abs/2403.02310",
    ),
    Fix(
        "engine",
        "--max-num-batched-tokens 512",
        "a long prompt is computed in chunks between the tokens of others",
        source="python -m engine bench --help",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=LongSteps,
    judge=judge,
    fixes=FIXES,
    verify="record again under the same load: the 99th percentile of the step is under three medians.",
    doc=__doc__,
)
