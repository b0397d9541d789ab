"""Attention is computed with its scores in memory: product, scale, mask, softmax, product.

What happens: eager attention writes a matrix of queries by keys for every head, reads it for the scale, the mask and
the softmax, and reads it again for the second product. Time and memory grow with the square of the length; a fused
kernel never writes the scores.

How it is detected: a softmax kernel on a stream with a matrix product at most twelve kernels before and six after it,
and no sampling or routing kernel between. The win is the run replayed without everything between the two products,
without the copies directly before them (a fused kernel takes strides, grouped heads and a causal mask as they are) and
without the launches of both. The products stand for the fused kernel; where scores are many, all of them at the pace
of the run's best ones, since a fused kernel works in tiles whose shape does not depend on the length, while a product
of 4,001 columns may take six times as long as one of 4,000. Products that attention alone computes in fp32, as PyTorch does
where no fused kernel takes its mask, go to the 16-bit units. How many scores a product has is told by its softmax,
which is bound by their bytes. What the fused kernel saves beyond that (writing the scores, the masked half) is not
promised: the head size is not in a recording. At most attention takes no time at all.

A fused kernel may be fed copies: where keys and values have fewer heads than queries, repeating them (repeat_interleave,
repeat_kv) writes the whole cache anew before every attention of every step. Two long copies of one size, with no third
like them, between the last product and the attention kernel, half as long as that or longer, before at least 80 % of
the attention kernels, tell that. The win is the run replayed without them and their launches; attention that is no
longer than its copies is bound by the bytes it reads, and takes half: two query heads share one of the cache at least.

When it is not this: three copies alike before an attention kernel are the layout of queries, keys and values of new
rows; rotary embeddings, casts and concatenations compute or grow something. Softmax over the vocabulary belongs to sampling, softmax before a top-k to expert routing. In
decode with short contexts the scores are small and fusing wins little; the replay says so.
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
from doctor.units import format_counted

ABOUT = About(
    id="attention-not-fused",
    title="Attention is not fused: scores go through memory",
    stage=Stage.SPECIFIC,
    reads=("device_op", "kernel"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "before": Threshold(
        12, "kernels from product to softmax", source="own H200 recordings: scale, masks and casts between"
    ),
    "after": Threshold(6, "kernels from softmax to product", source="own H200 recordings"),
    "min_share": Threshold(0.1, "share of device time", source="rule of thumb: below this other work leads"),
    "long_ns": Threshold(
        100_000, "ns", source="a softmax this long is bound by bandwidth, so that its time tells the number of scores"
    ),
    "min_copied": Threshold(0.8, "share of attention kernels", source="all layers, less the prompts' first steps"),
    "least_likeness": Threshold(0.7, "of the longest copy", source="keys and values are of one size"),
    "most_third": Threshold(
        0.5, "of the second longest copy", source="queries of as many rows are laid out beside them"
    ),
    "least_of_attention": Threshold(
        0.5,
        "x the attention kernel",
        source="own H200 recordings: 4.5; writing what is read once takes as long as that",
    ),
    "shared_left": Threshold(
        0.5, "of attention's time", source="the least grouping: two query heads for one of the cache"
    ),
    "most_shared": Threshold(1 / 8, "of that", source="16 query heads for one of the cache, as in Llama 3.1 405B"),
    "min_count": Threshold(4, "softmax kernels", source="fewer than the layers of any language model"),
}

INNER = """
    SELECT device_op_id FROM between_products
    WHERE product_op_id IN (SELECT product_op_id FROM softmax_between WHERE before_count <= 12 AND after_count <= 6)
"""

SQL = f"""
WITH inside AS ({INNER}),
inner_work AS (
    SELECT count(*) FILTER (family = 'softmax') AS softmax_count, coalesce(sum(end_ns - start_ns), 0)::BIGINT AS inner_ns,
        max(end_ns - start_ns) FILTER (family = 'softmax') AS longest_ns,
        arg_max(start_ns, end_ns - start_ns) AS longest_start_ns, arg_max(end_ns, end_ns - start_ns) AS longest_end_ns
    FROM inside JOIN device_op USING (device_op_id)
)
SELECT softmax_count, inner_ns, longest_ns, longest_start_ns, longest_end_ns,
    (SELECT sum(busy_ns)::BIGINT FROM device_busy) AS busy_ns,
    (SELECT count(*) FROM device_op WHERE family = 'attention') AS fused_count,
    (SELECT coalesce(sum(device_ns), 0)::BIGINT FROM fp32_attention) AS fp32_ns
FROM inner_work
"""

GONE = f"""
    {INNER}
    UNION SELECT device_op_id FROM before_products
    WHERE product_op_id IN (SELECT product_op_id FROM softmax_between WHERE before_count <= 12 AND after_count <= 6)
"""

PACED = """
WITH pair AS (
    SELECT product_op_id, after_op_id, sum(softmax.end_ns - softmax.start_ns) AS softmax_ns,
        any_value(product.end_ns - product.start_ns + behind.end_ns - behind.start_ns) AS pair_ns
    FROM softmax_between
    JOIN device_op AS softmax ON softmax.device_op_id = softmax_op_id
    JOIN device_op AS product ON product.device_op_id = product_op_id
    JOIN device_op AS behind ON behind.device_op_id = after_op_id
    WHERE before_count <= 12 AND after_count <= 6
    GROUP BY product_op_id, after_op_id HAVING softmax_ns >= $long_ns
),
scaled AS (
    SELECT *, (SELECT min(pair_ns / softmax_ns) FROM pair) * softmax_ns / greatest(pair_ns, 1) AS factor FROM pair
)
SELECT product_op_id, factor FROM scaled UNION ALL SELECT after_op_id, factor FROM scaled
"""

LAUNCHES = f"SELECT DISTINCT host_call_id FROM launching_call WHERE device_op_id IN ({GONE})"

PRODUCTS = """
    SELECT unnest([product_op_id, after_op_id]) AS device_op_id FROM softmax_between WHERE before_count <= 12 AND after_count <= 6
    UNION SELECT device_op_id FROM fp32_attention
"""

CURE = Cure(
    steps=(
        CureStep(Target.DEVICE_OP, Act.REMOVE, GONE),
        CureStep(Target.DEVICE_OP, Act.SCALE, PACED, values={"long_ns": THRESHOLDS["long_ns"].value}),
        CureStep(
            Target.DEVICE_OP,
            Act.SCALE,
            "SELECT device_op_id, time_share AS factor FROM fp32_attention, half_rate",
        ),
        CureStep(Target.HOST_CALL, Act.REMOVE, LAUNCHES),
        CureStep(Target.SILENCE, Act.REMOVE, f"{LAUNCHES} AND is_quick"),
    ),
    is_host_work=False,
    spread=1.5,
    at_most=(CureStep(Target.DEVICE_OP, Act.REMOVE, PRODUCTS),),  # no kernel is quicker than none
)


class UnfusedAttention(NamedTuple):
    """Softmax kernels between two matrix products, and what lies between them."""

    softmax_count: int
    inner_ns: int
    longest_ns: int | None
    longest_start_ns: int | None
    longest_end_ns: int | None
    busy_ns: int | None
    fused_count: int
    fp32_ns: int


def judge(row: UnfusedAttention) -> Verdict:
    """A tenth of the device's time between the two products of attention."""
    if row.softmax_count < THRESHOLDS["min_count"].value or not row.busy_ns:
        return None
    share, fp32_share = row.inner_ns / row.busy_ns, row.fp32_ns / row.busy_ns
    if share + fp32_share < THRESHOLDS["min_share"].value:
        return Cleared(f"attention is not fused, but its softmax and masks take {share:.1%} of the device's time")
    return Finding(
        summary=f"{format_counted(row.softmax_count, 'attention')} with scores in memory: softmax, scale and masks between the two products"
        f" take {share:.0%} of the device's time"
        + (f", and the products, computed in fp32, {fp32_share:.0%}" if row.fp32_ns else ""),
        evidence=(
            Evidence("between the two products", share, "share of device time"),
            *((Evidence("fp32 products of attention", fp32_share, "share of device time"),) if row.fp32_ns else ()),
            Evidence("softmax kernels", float(row.softmax_count), "kernels"),
            Evidence(
                "longest softmax",
                (row.longest_ns or 0) / 1e6,
                "ms",
                Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns),
            ),
            Evidence("fused attention kernels", float(row.fused_count), "kernels"),
        ),
        cure=CURE,
        confidence=0.85,
        cleared=f"{format_counted(row.softmax_count, 'attention is', 'attentions are')} not fused, but other things hold the run up",
    )


FED = """
    SELECT *, coalesce(copy_ns[2] >= $least_likeness * copy_ns[1] AND is_one_size AND coalesce(copy_ns[3], 0) < $most_third * copy_ns[2]
        AND copy_ns[1] + copy_ns[2] >= $least_of_attention * attention_ns, false) AS is_copied
    FROM attention_feed
"""

COPIED_SQL = f"""
WITH fed AS ({FED}),
copied AS (SELECT unnest(copy_op_id) AS device_op_id FROM fed WHERE is_copied)
SELECT (SELECT count(*) FROM fed) AS attention_count, (SELECT count(*) FILTER (is_copied) FROM fed) AS copied_count,
    (SELECT coalesce(sum(attention_ns) FILTER (is_copied), 0)::BIGINT FROM fed) AS attention_ns,
    coalesce(sum(end_ns - start_ns), 0)::BIGINT AS copy_ns, (SELECT sum(busy_ns)::BIGINT FROM device_busy) AS busy_ns,
    arg_max(start_ns, end_ns - start_ns) AS longest_start_ns, arg_max(end_ns, end_ns - start_ns) AS longest_end_ns
FROM copied JOIN device_op USING (device_op_id)
"""

_COPIED = f"SELECT unnest(copy_op_id) AS device_op_id FROM ({FED}) WHERE is_copied"
_READING = f"SELECT attention_op_id FROM ({FED}) WHERE is_copied"
_COPYING = f"SELECT DISTINCT host_call_id FROM launching_call WHERE device_op_id IN ({_COPIED})"
_COPIED_VALUES = {name: THRESHOLDS[name].value for name in ("least_likeness", "most_third", "least_of_attention")}

COPIED_CURE = Cure(
    steps=(
        CureStep(Target.DEVICE_OP, Act.REMOVE, _COPIED, values=_COPIED_VALUES),
        CureStep(
            Target.DEVICE_OP,
            Act.SCALE,
            f"{_READING} AND copy_ns[1] + copy_ns[2] >= attention_ns",
            values=_COPIED_VALUES,
            value=THRESHOLDS["shared_left"].value,
        ),
        CureStep(Target.HOST_CALL, Act.REMOVE, _COPYING, values=_COPIED_VALUES),
        CureStep(Target.SILENCE, Act.REMOVE, f"{_COPYING} AND is_quick", values=_COPIED_VALUES),
    ),
    is_host_work=False,
    spread=2.0,
    at_most=(
        CureStep(Target.DEVICE_OP, Act.SCALE, _READING, values=_COPIED_VALUES, value=THRESHOLDS["most_shared"].value),
    ),
)


class CopiedOperands(NamedTuple):
    """Attention kernels of the window, and the pairs of long copies directly before them."""

    attention_count: int
    copied_count: int
    attention_ns: int
    copy_ns: int
    busy_ns: int | None
    longest_start_ns: int | None
    longest_end_ns: int | None


def judge_copied(row: CopiedOperands) -> Verdict:
    """Nearly every attention kernel waits for keys and values to be written out anew."""
    if row.copied_count < max(THRESHOLDS["min_count"].value, THRESHOLDS["min_copied"].value * row.attention_count):
        return None
    share = row.copy_ns / (row.busy_ns or row.copy_ns)
    if share < THRESHOLDS["min_share"].value:
        return None
    longest = Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns)
    return Finding(
        summary=f"two long copies of one size stand before {row.copied_count:,} of {format_counted(row.attention_count, 'attention kernel')}:"
        f" {share:.0%} of the device's time, {row.copy_ns / row.attention_ns:.1f} times as long as attention itself",
        evidence=(
            Evidence("copies before attention", share, "share of device time", longest),
            Evidence("copies against attention", row.copy_ns / row.attention_ns, "x"),
            Evidence(
                "attention kernels with copies", row.copied_count / row.attention_count, "share of attention kernels"
            ),
        ),
        cure=COPIED_CURE,
        confidence=0.75,
        title="Keys and values are copied before every attention",
        fixes=COPIED_FIXES,
        verify="record again: no long copy between a product and the attention kernel behind it.",
        cleared=f"keys and values are copied before attention, {share:.0%} of the device's time, but other things hold the run up",
    )


COPIED_FIXES = (
    Fix(
        "pytorch",
        "scaled_dot_product_attention(q, k, v, enable_gqa=True) on the cache as it is, without repeat_interleave, expand and"
        " reshape, or contiguous()",
        "grouped kernels read each head of the cache once for all query heads that share it",
        source="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
    ),
    Fix(
        "transformers",
        'attn_implementation="flash_attention_2" (or a newer version, whose sdpa takes grouped heads)',
        "repeat_kv writes every head anew; flash attention takes grouped heads",
        source="https://huggingface.co/docs/transformers/attention_interface",
    ),
)

SETTING_SQL = """
SELECT (SELECT max(told) FROM engine_choice WHERE setting = 'attention' AND told IN ('eager', 'math', 'torch_native', 'manual', 'naive')) AS told,
    (SELECT max(engine) FROM engine_choice WHERE setting = 'attention') AS engine,
    (SELECT bool_or(told = 'true') FROM engine_choice WHERE setting = 'output_attentions') AS is_output_asked,
    (SELECT count(*) FROM engine_event WHERE event = 'attention_eager') AS line_count,
    (SELECT max(coalesce(amount_count, 0)) FROM engine_figure WHERE figure = 'max_model_len') AS model_len
"""


class EagerAttention(NamedTuple):
    """What settings and lines say of attention."""

    told: str | None
    engine: str | None
    is_output_asked: bool | None
    line_count: int
    model_len: float | None


def judge_setting(row: EagerAttention) -> Verdict:
    """Eager attention by name."""
    if not row.told and not row.line_count and not row.is_output_asked:
        return None
    who = (
        f"the attention implementation is {row.told}"
        if row.told
        else "attention weights are asked for, which only the eager implementation gives"
        if row.is_output_asked
        else "the log says that attention falls back to the eager implementation"
    )
    return Finding(
        summary=f"{who}: scores of every pair of tokens go through memory",
        evidence=(Evidence("attention", row.told or "eager", ""),),
        severity=Severity.HIGH if (row.model_len or 0) > 2048 else Severity.MEDIUM,
        confidence=0.8 if row.told else 0.65,
    )


FIXES = (
    Fix(
        "pytorch",
        "torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask), inputs of 16 bits; is_causal=True only in place of a causal"
        " mask. Where it is called already, torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION) says what keeps the fused kernel away",
        "one kernel that never writes the scores; masks, types and layouts that it does not take fall back to separate products",
        source="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
    ),
    Fix(
        "vllm",
        "--attention-backend FLASH_ATTN (or FLASHINFER)",
        "paged, fused attention",
        source="https://docs.vllm.ai/en/latest/configuration/engine_args.html",
    ),
    Fix(
        "sglang",
        "--attention-backend fa3 (or flashinfer, triton)",
        "paged, fused attention; torch_native is not fused",
        source="https://docs.sglang.ai/advanced_features/attention_backend.html",
    ),
    Fix(
        "tensorrt-llm",
        "attn_backend: TRTLLM",
        "fused multi-head attention",
        source="https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html",
    ),
    Fix(
        "transformers",
        'from_pretrained(..., attn_implementation="sdpa") (or "flash_attention_2"); drop output_attentions=True',
        "asking for attention weights forces the eager path",
        source="https://huggingface.co/docs/transformers/attention_interface",
    ),
    Fix(
        "engine",
        "--attention auto",
        "fused kernels keep the scores on the chip",
        source="python -m engine bench --help",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=UnfusedAttention,
    judge=judge,
    fixes=FIXES,
    verify="record again: flash or fmha kernels in place of softmax, and peak memory no longer grows with the square of the"
    " length.",
    doc=__doc__,
    also=(
        Sign(ABOUT.reads, ABOUT.needs, COPIED_SQL, CopiedOperands, judge_copied),
        Sign(("engine_evidence",), ("engine-log", "engine-config"), SETTING_SQL, EagerAttention, judge_setting),
    ),
)
