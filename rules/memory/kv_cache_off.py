"""Every step computes the whole sequence again: no KV cache, or one that is not handed on.

What happens: without keys and values of earlier tokens a step must run all of them through all layers to get one token. Each
step is a prefill and costs a little more than the last; a thousand tokens cost a thousand prefills.

How it is detected: at least five usual steps in which the work of activations and norms (thread blocks, which follow the
number of rows) rises steadily by the same small amount, while matrix products hold 30 % of the device's time, rise a
third as fast at least (within twice the error of that slope), stay within 30 % of each other and are no shorter than
those of any other step. Rows in a step with a cache do not follow the length. In a configuration: use_cache is false,
and no engine that ignores it runs the model. The win is the run replayed with compute kernels at 1/5.2 of their time,
what a public measurement on one device reports for 1,000 tokens; the longer the sequence, the more.

When it is not this: attention and concatenation grow with a cache too: `kv-unpaged-contiguous`. A server that takes up one
request after another has growing batches; its products hardly grow. Chunked prefill has steps of one length.
"""

from typing import NamedTuple

from doctor.rule import (
    About,
    Act,
    Cleared,
    Cure,
    CureStep,
    Evidence,
    Finding,
    Fix,
    Rule,
    Severity,
    Sign,
    Stage,
    Target,
    Threshold,
    Verdict,
    Where,
)

ABOUT = About(
    id="kv-cache-off",
    title="Every step computes the whole sequence again",
    stage=Stage.SPECIFIC,
    reads=("device_op", "step_work", "usual_step"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_steps": Threshold(5, "steps", source="rule of thumb: a steady rise over five steps is no chance"),
    "min_product_share": Threshold(
        0.3, "share of the steps' device time", source="rule of thumb: a prefill is mostly products"
    ),
    "min_likeness": Threshold(
        0.7, "shortest against longest step's products", source="rule of thumb: each step is a prefill"
    ),
    "min_steadiness": Threshold(
        0.98, "correlation of rows with the step's place", source="one token a step and sequence"
    ),
    "max_rise": Threshold(
        1 / 16, "of the rows, a step", source="shorter sequences than sixteen tokens cost little to repeat"
    ),
    "cached_left": Threshold(
        1 / 5.2,
        "of compute time",
        source="huggingface.co/blog/not-lain/kv-caching: 61 s against 11.7 s for 1,000 tokens",
    ),
    "long_ns": Threshold(5_000, "ns", source="own H200 recordings: below this a kernel's time does not depend on rows"),
}

SQL = """
WITH worked AS (
    SELECT step_id, source_id, pid, sum(device_ns) AS device_ns, coalesce(sum(device_ns) FILTER (family = 'gemm'), 0) AS product_ns,
        coalesce(sum(rows_blocks) FILTER (family IN ('activation', 'norm')), 0) AS row_blocks
    FROM step_work GROUP BY step_id, source_id, pid
),
placed AS (
    SELECT worked.*, usual_step.start_ns, usual_step.end_ns,
        row_number() OVER (PARTITION BY worked.source_id, worked.pid ORDER BY usual_step.start_ns) AS place
    FROM worked JOIN usual_step USING (step_id)
),
trend AS (
    SELECT source_id, pid, count(*) AS step_count, (sum(product_ns) / greatest(sum(device_ns), 1))::DOUBLE AS product_share,
        (min(product_ns) / greatest(max(product_ns), 1))::DOUBLE AS likeness, max(product_ns)::BIGINT AS product_ns,
        corr(row_blocks, place) AS steadiness, regr_slope(row_blocks, place) / nullif(min(row_blocks), 0) AS row_rise,
        regr_slope(product_ns, place) / nullif(min(product_ns), 0) AS product_rise,
        sqrt(greatest(regr_syy(product_ns, place) - regr_sxy(product_ns, place) ** 2 / nullif(regr_sxx(product_ns, place), 0), 0)
            / nullif((count(*) - 2) * regr_sxx(product_ns, place), 0)) / nullif(min(product_ns), 0) AS product_rise_error,
        min(start_ns) AS first_start_ns, max(end_ns) AS last_end_ns
    FROM placed GROUP BY source_id, pid
),
longest AS (
    SELECT source_id, pid, max(product_ns)::BIGINT AS any_product_ns FROM worked GROUP BY source_id, pid
)
SELECT step_count, product_share, likeness, product_ns, any_product_ns, steadiness, row_rise, product_rise, product_rise_error, first_start_ns, last_end_ns
FROM trend JOIN longest USING (source_id, pid), program
WHERE program.kind NOT IN ('vision', 'training')
ORDER BY product_ns DESC LIMIT 1
"""

CURE = Cure(
    steps=(
        CureStep(
            Target.DEVICE_OP,
            Act.SCALE,
            """SELECT device_op_id FROM device_op, steady_window
            WHERE kind = 'kernel' AND family IN ('gemm', 'attention', 'softmax', 'norm', 'activation', 'rope', 'elementwise', 'reduction')
                AND end_ns - start_ns >= $long_ns AND start_ns >= from_ns AND start_ns < until_ns""",
            values={"long_ns": THRESHOLDS["long_ns"].value},
            value=THRESHOLDS["cached_left"].value,
        ),
    ),
    is_host_work=False,
    spread=2.0,
)


class StepTrend(NamedTuple):
    """How products and rows of the usual steps of the process with most work change from step to step."""

    step_count: int
    product_share: float | None
    likeness: float | None
    product_ns: int | None
    any_product_ns: int | None
    steadiness: float | None
    row_rise: float | None
    product_rise: float | None
    product_rise_error: float | None
    first_start_ns: int | None
    last_end_ns: int | None


def rises_like_a_sequence(row: StepTrend) -> bool:
    """Rows rise steadily and slowly, and the products follow them."""
    if row.steadiness is None or row.row_rise is None or row.product_rise is None:
        return False
    if row.steadiness < THRESHOLDS["min_steadiness"].value or not 0 < row.row_rise <= THRESHOLDS["max_rise"].value:
        return False
    # products grow by whole tiles, and from step to step by less than they vary
    return row.product_rise + 2 * (row.product_rise_error or 0) >= row.row_rise / 3


def judge(row: StepTrend) -> Verdict:
    """Each step a prefill, each a little longer."""
    if row.step_count < THRESHOLDS["min_steps"].value or not rises_like_a_sequence(row):
        return None
    if (row.product_share or 0) < THRESHOLDS["min_product_share"].value:
        return None
    if (row.likeness or 0) < THRESHOLDS["min_likeness"].value or (row.any_product_ns or 0) > 1.2 * (
        row.product_ns or 0
    ):
        return None
    length = 1 / (row.row_rise or 1)
    return Finding(
        summary=f"the rows of {row.step_count} steps in a row rise steadily by {row.row_rise or 0:.2%} a step, as if each computed about"
        f" {length:,.0f} tokens again for the next one",
        evidence=(
            Evidence(
                "rise of rows a step",
                row.row_rise or 0.0,
                "share",
                Where(start_ns=row.first_start_ns, end_ns=row.last_end_ns),
            ),
            Evidence("rise of matrix products a step", row.product_rise or 0.0, "share"),
            Evidence("tokens computed again a step", length, "tokens a sequence, estimated"),
            Evidence("matrix products", row.product_share or 0.0, "share of device time"),
        ),
        cure=CURE,
        confidence=0.65,
        cleared="the rows of the steps rise steadily, but the device is not what holds the run up",
    )


SETTING_SQL = """
SELECT (SELECT max(spelled) FROM engine_choice WHERE setting = 'cache' AND told = 'false') AS spelled,
    (SELECT bool_and(said_by = 'file') FROM engine_choice WHERE setting = 'cache' AND told = 'false') AS is_in_file_only,
    (SELECT max(engine) FROM (SELECT engine FROM engine_choice UNION SELECT engine FROM engine_load) WHERE engine <> 'transformers') AS other_engine
"""


class SwitchedOff(NamedTuple):
    """The setting, and whether an engine that ignores it runs the model."""

    spelled: str | None
    is_in_file_only: bool | None
    other_engine: str | None


def judge_setting(row: SwitchedOff) -> Verdict:
    """Off, in a program that listens to it."""
    if row.spelled is None:
        return None
    if row.other_engine is not None:
        return Cleared(
            f"{row.spelled} is false in the model's configuration, which {row.other_engine} does not look at"
        )
    return Finding(
        summary=f"{row.spelled} is false: every token computes the whole sequence again",
        evidence=(Evidence(row.spelled, "false", ""),),
        # generation_config.json may say otherwise
        severity=Severity.MEDIUM if row.is_in_file_only else Severity.HIGH,
        confidence=0.5 if row.is_in_file_only else 0.85,
    )


FIXES = (
    Fix(
        "transformers",
        "use_cache=True in generate() and in the model's config; hand past_key_values on in a loop of your own",
        "a step computes one token a sequence",
        source="https://huggingface.co/docs/transformers/kv_cache",
    ),
    Fix(
        "pytorch",
        "keep keys and values of each layer and pass only the last token to the model",
        "a step computes one token a sequence",
        source="https://github.com/meta-pytorch/gpt-fast",
    ),
    Fix(
        "vllm",
        "vllm serve in place of a loop over model calls; keep one request for a whole answer (max_tokens > 1)",
        "the engine always caches within a request",
        source="https://docs.vllm.ai/en/latest/design/paged_attention.html",
    ),
    Fix(
        "sglang",
        "one request for a whole answer (max_new_tokens > 1); keep the radix cache on (drop --disable-radix-cache)",
        "repeated prefixes are found in the cache",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "kv_cache_config: {enable_block_reuse: true}; builds without kv_cache_type=disabled",
        "keys and values are kept",
        source="https://nvidia.github.io/TensorRT-LLM/features/kvcache.html",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=StepTrend,
    judge=judge,
    fixes=FIXES,
    verify="record again: the first step is the longest and the others have the rows of one token a sequence.",
    doc=__doc__,
    also=(Sign(("engine_choice",), ("engine-config",), SETTING_SQL, SwitchedOff, judge_setting),),
)
