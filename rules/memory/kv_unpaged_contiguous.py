"""The KV cache is one piece that is copied to grow: every step concatenates what is already there.

What happens: a cache kept as one tensor a layer has no room for the next token. Concatenation allocates a new tensor, reads
all old keys and values and writes them again, twice their bytes for one token's worth, and the copy grows with the
sequence. While it runs, two copies are in memory.

How it is detected: concatenation kernels take at least 5 % of the device's time in usual steps, and their time rises from
step to step: over at least five steps it goes with the step's place (correlation 0.8 or more) and by at least 0.1 % a
step. The win is the run replayed with 3 us for each, what writing one token into a paged cache takes.

When it is not this: rotary embeddings and fused inputs are concatenated too, but their time does not rise. Reserved and
unused memory of contiguous caches shows in logs and memory snapshots, not here. New shapes in every step may also be
planned anew: `lazy-module-load`.
"""

from typing import NamedTuple

from doctor.rule import (
    About,
    Act,
    Cure,
    CureStep,
    Evidence,
    Finding,
    Fix,
    Rule,
    Stage,
    Target,
    Threshold,
    Verdict,
    Where,
)

ABOUT = About(
    id="kv-unpaged-contiguous",
    title="The KV cache is copied to grow",
    stage=Stage.SPECIFIC,
    reads=("device_op", "step_work", "usual_step"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_share": Threshold(
        0.05, "share of the device's time in usual steps", source="rule of thumb: below this other work leads"
    ),
    "min_steps": Threshold(5, "steps", source="fewer make no trend"),
    "min_correlation": Threshold(
        0.8, "correlation with the step's place", source="rule of thumb: noise stays under a half"
    ),
    "min_growth": Threshold(0.001, "of the first step's time, a step", source="one token in a thousand"),
    "paged_ns": Threshold(
        3_000, "ns", source="own H200 recordings: writing one token into cache blocks takes 2 to 3 us"
    ),
}

SQL = """
WITH concatenated AS (
    SELECT step_id, usual_step.pid, device_ns, step_work.op_count, usual_step.start_ns, usual_step.end_ns,
        row_number() OVER (PARTITION BY usual_step.source_id, usual_step.pid ORDER BY usual_step.start_ns) AS place
    FROM step_work JOIN usual_step USING (step_id)
    WHERE family = 'concat'
),
spent AS (
    SELECT sum(device_ns)::BIGINT AS device_ns FROM step_work JOIN usual_step USING (step_id)
)
SELECT count(*) AS step_count, coalesce(sum(concatenated.device_ns), 0)::BIGINT AS concat_ns, any_value(spent.device_ns) AS device_ns,
    median(op_count) AS per_step, corr(concatenated.device_ns, place) AS correlation,
    regr_slope(concatenated.device_ns, place) AS slope_ns, regr_intercept(concatenated.device_ns, place) AS first_ns,
    max(concatenated.start_ns) AS last_start_ns, max(concatenated.end_ns) AS last_end_ns
FROM concatenated, spent
"""

CURE = Cure(
    steps=(
        CureStep(
            Target.DEVICE_OP,
            Act.SET_DURATION_NS,
            """SELECT device_op_id FROM device_op, steady_window
            WHERE family = 'concat' AND start_ns >= from_ns AND start_ns < until_ns""",
            value=THRESHOLDS["paged_ns"].value,
        ),
    ),
    is_host_work=False,
    spread=1.5,
)


class Concatenations(NamedTuple):
    """Concatenation kernels of the usual steps, and their trend."""

    step_count: int
    concat_ns: int
    device_ns: int | None
    per_step: float | None
    correlation: float | None
    slope_ns: float | None
    first_ns: float | None
    last_start_ns: int | None
    last_end_ns: int | None


def judge(row: Concatenations) -> Verdict:
    """A visible share that rises step by step."""
    if row.step_count < THRESHOLDS["min_steps"].value or not row.device_ns or row.correlation is None:
        return None
    share = row.concat_ns / row.device_ns
    growth = (row.slope_ns or 0) / max(row.first_ns or 0, 1.0)
    if share < THRESHOLDS["min_share"].value or row.correlation < THRESHOLDS["min_correlation"].value:
        return None
    if growth < THRESHOLDS["min_growth"].value:
        return None
    return Finding(
        summary=f"{row.per_step or 0:.0f} concatenations a step take {share:.0%} of the device's time and rise by {growth:.1%} a step:"
        f" the whole cache is copied for one token",
        evidence=(
            Evidence(
                "concatenations",
                share,
                "share of device time",
                Where(start_ns=row.last_start_ns, end_ns=row.last_end_ns),
            ),
            Evidence("rise a step", growth, "share of the first step's"),
            Evidence("correlation with the step's place", row.correlation, "0 to 1"),
            Evidence("concatenations per step", row.per_step or 0.0, "kernels"),
        ),
        cure=CURE,
        confidence=0.75,
        cleared=f"the cache is copied to grow, {share:.0%} of the device's time, but other things hold the run up",
    )


FIXES = (
    Fix(
        "pytorch",
        "a preallocated cache written in place (index_copy_ at the position), or torch.nn.attention.flex_attention with paged blocks",
        "one token's worth is written a step",
        source="https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html",
    ),
    Fix(
        "vllm",
        "serve the model with vllm serve; --block-size 16",
        "the cache is paged: a step writes one slot a sequence",
        source="https://docs.vllm.ai/en/latest/design/paged_attention.html",
    ),
    Fix(
        "sglang",
        "serve the model with sglang.launch_server; --page-size 1 or 64",
        "the cache is a pool of pages",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "kv_cache_config: {tokens_per_block: 32}; paged_kv_cache enabled in older builds",
        "the cache is paged",
        source="https://nvidia.github.io/TensorRT-LLM/features/kvcache.html",
    ),
    Fix(
        "transformers",
        'cache_implementation="static", or generate_batch() (continuous batching with paged attention)',
        "the cache is written in place",
        source="https://huggingface.co/docs/transformers/kv_cache",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Concatenations,
    judge=judge,
    fixes=FIXES,
    verify="record again: no concatenation in the attention of a step; memory stays level.",
    doc=__doc__,
)
