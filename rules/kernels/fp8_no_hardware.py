"""FP8 weights on a device or a backend that does not multiply in FP8: they are widened first.

What happens: matrix units for FP8 exist from compute capability 8.9 on. Below it, or where an engine's FP8 product does not
fit the device, weights stay FP8 in memory and are widened to 16 bits on the way. That saves memory and half the weight
traffic of decode, but a long prompt pays for the widening and gets no FP8 rate.

How it is detected: FP8 Marlin products, by name, in at least 20 % of the time of matrix products; or, on a device below
compute capability 8.9, kernels that widen FP8 in at least 5 % of the device's time. The win is the run replayed with such
products at six tenths of their time and separate widening gone. It counts for at most medium: low where the products are
short, as in decode, where weights in FP8 are a gain by themselves.

When it is not this: FP8 caches of keys and values are widened inside attention kernels. Slow 4-bit kernels are
`quant-kernel-legacy`.
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
    id="fp8-no-hardware",
    title="FP8 weights without FP8 arithmetic",
    stage=Stage.SPECIFIC,
    reads=("device_op", "kernel"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_product_share": Threshold(
        0.2, "share of matrix-product time", source="huggingface/text-generation-inference#2388"
    ),
    "min_widening_share": Threshold(0.05, "share of device time", source="rule of thumb"),
    "min_capability": Threshold(
        8.9, "compute capability", source="NVIDIA: FP8 matrix units from Ada (8.9) and Hopper (9.0) on"
    ),
    "long_ns": Threshold(100_000, "ns", source="products of a prompt; reading a layer's weights for decode takes less"),
    "product_left": Threshold(
        0.6,
        "of the products' time",
        source="INT8 on compute capability 8 has twice the 16-bit rate; 0.8 of it is reached",
    ),
}

NAMED = """
    SELECT name_id, family,
        regexp_matches(lower(name), 'marlin') AND regexp_matches(lower(name), 'fp8|e4m3|float8') AS is_weight_only,
        family <> 'attention' AND NOT regexp_matches(lower(name), 'marlin|kv_?cache|reshape_and_cache')
            AND (regexp_matches(lower(name), '(fp8|e4m3|e5m2|float8).*(dequant|upcast|unpack)|(dequant|upcast|unpack).*(fp8|e4m3|e5m2|float8)')
                OR (family IN ('elementwise', 'quantise') AND regexp_matches(lower(name), 'float8|e4m3|e5m2'))) AS is_widening
    FROM kernel_name
"""

CAPABILITY = "(SELECT max(compute_major + compute_minor / 10.0) FROM device WHERE vendor = 'nvidia')"

SQL = f"""
WITH timed AS (
    SELECT op.start_ns, op.end_ns, named.family, is_weight_only, is_widening
    FROM device_op AS op JOIN ({NAMED}) AS named USING (name_id), steady_window
    WHERE op.start_ns >= from_ns AND op.start_ns < until_ns
)
SELECT {CAPABILITY}::DOUBLE AS capability, count(*) FILTER (is_weight_only) AS product_count,
    coalesce(sum(end_ns - start_ns) FILTER (is_weight_only), 0)::BIGINT AS product_ns,
    coalesce(sum(end_ns - start_ns) FILTER (is_widening), 0)::BIGINT AS widening_ns,
    coalesce(sum(end_ns - start_ns) FILTER (family = 'gemm'), 0)::BIGINT AS gemm_ns,
    (SELECT sum(busy_ns)::BIGINT FROM device_busy) AS busy_ns,
    coalesce(sum(end_ns - start_ns) FILTER (is_weight_only AND end_ns - start_ns >= $long_ns), 0)::BIGINT AS long_ns,
    arg_max(start_ns, end_ns - start_ns) FILTER (is_weight_only OR is_widening) AS longest_start_ns,
    arg_max(end_ns, end_ns - start_ns) FILTER (is_weight_only OR is_widening) AS longest_end_ns
FROM timed
"""

KERNELS = f"""
    SELECT device_op_id FROM device_op AS op JOIN ({NAMED}) AS named USING (name_id), steady_window
    WHERE op.start_ns >= from_ns AND op.start_ns < until_ns
"""

PRODUCTS_FASTER = CureStep(
    Target.DEVICE_OP, Act.SCALE, f"{KERNELS} AND is_weight_only", value=THRESHOLDS["product_left"].value
)
WIDENING_GONE = CureStep(
    Target.DEVICE_OP,
    Act.REMOVE,
    f"{KERNELS} AND is_widening AND {CAPABILITY} < $min_capability",
    values={"min_capability": THRESHOLDS["min_capability"].value},
)


class Widened(NamedTuple):
    """FP8 weights that are widened before they are multiplied."""

    capability: float | None
    product_count: int
    product_ns: int
    widening_ns: int
    gemm_ns: int
    busy_ns: int | None
    long_ns: int
    longest_start_ns: int | None
    longest_end_ns: int | None


def judge(row: Widened) -> Verdict:
    """Weight-only products, or widening on a device without FP8 units."""
    if not row.busy_ns:
        return None
    product_share = row.product_ns / max(row.gemm_ns, 1)
    widening_share = row.widening_ns / row.busy_ns
    lacks_units = row.capability is not None and row.capability < THRESHOLDS["min_capability"].value - 0.01
    by_products = product_share >= THRESHOLDS["min_product_share"].value
    by_widening = lacks_units and widening_share >= THRESHOLDS["min_widening_share"].value
    if not by_products and not by_widening:
        return None
    device = f"compute capability {row.capability:.1f}" if row.capability is not None else "this device"
    is_prompt = row.long_ns >= 0.5 * max(row.product_ns, 1) or by_widening
    what = (
        f"weight-only FP8 products take {product_share:.0%} of the matrix-product time"
        if by_products
        else f"widening FP8 takes {widening_share:.0%} of the device's time"
    )
    return Finding(
        summary=f"{what} on {device}" + ("" if lacks_units else ", which has FP8 units"),
        evidence=(
            Evidence(
                "weight-only FP8 products",
                product_share,
                "share of matrix-product time",
                Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns),
            ),
            Evidence("kernels that widen FP8", widening_share, "share of device time"),
        ),
        cure=Cure(steps=(PRODUCTS_FASTER, WIDENING_GONE), is_host_work=False, spread=1.5),
        confidence=0.7,
        cleared=f"{what}, but other things hold the run up",
        max_severity=Severity.MEDIUM if is_prompt else Severity.LOW,
    )


LOG_SQL = """
SELECT (SELECT count(*) FROM engine_event WHERE event = 'fp8_weight_only') AS line_count,
    (SELECT count(*) FROM engine_event WHERE event = 'fp8_weight_only_chosen') AS chosen_count,
    (SELECT max(told) FROM engine_choice WHERE setting = 'fp8_marlin_forced' AND told NOT IN ('0', 'false')) AS forced,
    (SELECT max(told) FROM engine_choice WHERE setting = 'quantisation' AND told LIKE 'fp8%') AS asked,
    (SELECT max(quantisation) FROM model_shape WHERE quantisation LIKE '%fp8%') AS stored,
    (SELECT min(compute_major + compute_minor / 10.0) FROM gpu_model)::DOUBLE AS capability, (SELECT any_value(product_name) FROM gpu_model) AS product,
    (SELECT max(running_median_count) FROM engine_queue) AS running_median,
    (SELECT sum(prompt_token_hz) / nullif(sum(output_token_hz), 0) FROM engine_load WHERE is_steady) AS prompt_ratio
"""


class SaidWeightOnly(NamedTuple):
    """The engine's own words, and what it is used for."""

    line_count: int
    chosen_count: int
    forced: str | None
    asked: str | None
    stored: str | None
    capability: float | None
    product: str | None
    running_median: float | None
    prompt_ratio: float | None


def judge_log(row: SaidWeightOnly) -> Verdict:
    """The engine says that it widens FP8."""
    if not row.line_count and row.chosen_count:
        return Cleared("the engine widens FP8 by choice on a device that has FP8 units: faster at small batches")
    lacks_units = row.capability is not None and row.capability < THRESHOLDS["min_capability"].value - 0.01
    by_sheet = lacks_units and (row.asked or row.stored) is not None
    if not row.line_count and not by_sheet:
        return None
    is_prompt = (row.prompt_ratio or 0) >= 10 or (row.running_median or 0) > 64
    says = (
        "the engine says that it has no FP8 arithmetic here"
        if row.line_count
        else f"{row.product} has compute capability {row.capability:.1f} and no FP8 arithmetic"
    )
    return Finding(
        summary=f"{says}: FP8 weights are widened before each product"
        + (f", forced by {row.forced}" if row.forced else ""),
        evidence=(
            Evidence("lines about weight-only FP8", float(row.line_count), "lines"),
            *((Evidence("prompt tokens against generated", row.prompt_ratio, "x"),) if row.prompt_ratio else ()),
            *(
                (Evidence("requests running", row.running_median, "requests at the median"),)
                if row.running_median
                else ()
            ),
        ),
        severity=Severity.MEDIUM if is_prompt else Severity.LOW,
        confidence=0.85 if row.line_count else 0.7,
    )


FIXES = (
    Fix(
        "vllm",
        "below 8.9: an INT8 W8A8 checkpoint (llm-compressor) for large batches, 4-bit weights with Marlin for small ones; from 8.9 on:"
        " unset VLLM_TEST_FORCE_FP8_MARLIN",
        "INT8 units exist from 7.5 on; FP8 products need 8.9",
        source="https://docs.vllm.ai/en/latest/features/quantization/supported_hardware.html",
    ),
    Fix(
        "sglang",
        "below 8.9: --quantization w8a8_int8; from 8.9 on: unset SGLANG_FORCE_FP8_MARLIN",
        "INT8 units exist from 7.5 on",
        source="https://docs.sglang.ai/advanced_features/quantization.html",
    ),
    Fix(
        "tensorrt-llm",
        "QuantConfig(quant_algo=QuantAlgo.W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN) or W4A16_AWQ below 8.9",
        "INT8 or 4-bit products in place of FP8",
        source="https://nvidia.github.io/TensorRT-LLM/features/quantization.html",
    ),
    Fix(
        "pytorch",
        "torchao Int8DynamicActivationInt8WeightConfig() in place of Float8DynamicActivationFloat8WeightConfig() below 8.9",
        "INT8 products run on the matrix units",
        source="https://docs.pytorch.org/ao/stable/workflows/inference.html",
    ),
    Fix(
        "transformers",
        "FineGrainedFP8Config(dequantize=True) on load, or a 4-bit checkpoint",
        "weights are widened once in place of in every step",
        source="https://huggingface.co/docs/transformers/quantization/finegrained_fp8",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Widened,
    judge=judge,
    fixes=FIXES,
    verify="record again: products say e4m3 without marlin, or int8; no kernel widens FP8.",
    doc=__doc__,
    also=(Sign(("engine_evidence",), ("engine-log",), LOG_SQL, SaidWeightOnly, judge_log),),
)
