"""Quantised weights run on slow kernels: AWQ, GPTQ or bitsandbytes without Marlin or Machete, or widened before each product.

What happens: 4-bit weights are a quarter of the bytes, but the first kernels for them were written to show that the format works. They unpack weights
into memory before a plain product, or multiply with layouts that neither coalesce nor use the matrix units well. A quantised model then decodes
slower than it could in 16 bits; a public case gained 5.3 times by dropping the flag that forced such a kernel.

How it is detected: kernels of AWQ, GPTQ, ExLlama and bitsandbytes, by name, take at least 20 % of the time of matrix products and unpacking together.
The win is the run replayed with products at a third of their time and unpacking gone, which Marlin does in registers. Without such names: in front of
at least 80 % of the matrix products stands an elementwise kernel, or several, that takes longer than the product itself, as where INT8 weights are
widened outside a compiled model. The win is the run replayed without these kernels, without the scaling that follows each product, and without their
launches: the same products on 16-bit weights. In a log or a configuration: the method is forced to awq or gptq, is bitsandbytes, or the engine says
that it is not fully optimized. In a table: Marlin or Machete kernels are at least 1.5 times as fast for the same weights, or 16 bits are faster below
16 sequences at a time. The sums of a profile, where no recording is given, ask the same as a question.

When it is not this: Marlin and Machete kernels are the fast ones. Before compute capability 8.0 there is nothing faster, and the finding says so in
place of a win. Casts of activations are shorter than the product they feed. Kernels that narrow 32-bit floats before each product are autocast over
weights kept in 32 bits: `wrong-dtype-fp32`. FP8 weights on older devices are `fp8-no-hardware`.
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
    asked_of_sums,
)

ABOUT = About(
    id="quant-kernel-legacy",
    title="Quantised weights run on slow kernels",
    stage=Stage.SPECIFIC,
    reads=("device_op", "kernel"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_share": Threshold(
        0.2, "share of the time of matrix products and unpacking", source="rule of thumb: one layer type of a model"
    ),
    "product_left": Threshold(1 / 3, "of the products' time", source="vllm-project/vllm#21376: 5.3 x"),
    "min_widened": Threshold(0.8, "share of matrix products", source="all linear layers, less the head and the router"),
    "min_products": Threshold(24, "matrix products", source="four a layer; fewer are less than a small model"),
    "shortest_us": Threshold(
        4.0, "us", source="own H200 recordings: elementwise kernels over a few tokens take 1 to 3 us"
    ),
    "min_compute_major": Threshold(8, "compute capability", source="Marlin needs 8.0: github.com/IST-DASLab/marlin"),
}

KERNELS = """
    SELECT op.device_op_id, op.start_ns, op.end_ns, name_id, is_legacy, is_unpacking
    FROM device_op AS op JOIN kernel_name AS named USING (name_id), steady_window
    WHERE (is_legacy OR named.family = 'gemm') AND op.start_ns >= from_ns AND op.start_ns < until_ns
"""

SQL = f"""
SELECT count(*) FILTER (is_legacy) AS legacy_count, coalesce(sum(end_ns - start_ns) FILTER (is_legacy), 0)::BIGINT AS legacy_ns,
    coalesce(sum(end_ns - start_ns) FILTER (is_legacy AND is_unpacking), 0)::BIGINT AS unpacking_ns,
    sum(end_ns - start_ns)::BIGINT AS product_ns, (SELECT sum(busy_ns)::BIGINT FROM device_busy) AS busy_ns,
    (SELECT text FROM text WHERE text_id = mode(name_id) FILTER (is_legacy)) AS name,
    arg_max(start_ns, end_ns - start_ns) FILTER (is_legacy) AS longest_start_ns,
    arg_max(end_ns, end_ns - start_ns) FILTER (is_legacy) AS longest_end_ns,
    (SELECT max(compute_major) FROM device WHERE vendor = 'nvidia') AS compute_major
FROM ({KERNELS})
"""

CURE = Cure(
    steps=(
        CureStep(
            Target.DEVICE_OP,
            Act.SCALE,
            f"SELECT device_op_id FROM ({KERNELS}) WHERE is_legacy AND NOT is_unpacking",
            value=THRESHOLDS["product_left"].value,
        ),
        CureStep(
            Target.DEVICE_OP, Act.REMOVE, f"SELECT device_op_id FROM ({KERNELS}) WHERE is_legacy AND is_unpacking"
        ),
    ),
    is_host_work=False,
    spread=1.5,
)


class LegacyKernels(NamedTuple):
    """Slow kernels for quantised weights, against all products of the window."""

    legacy_count: int
    legacy_ns: int
    unpacking_ns: int
    product_ns: int | None
    busy_ns: int | None
    name: str | None
    longest_start_ns: int | None
    longest_end_ns: int | None
    compute_major: int | None


def judge(row: LegacyKernels) -> Verdict:
    """A fifth of the products on slow kernels."""
    if not row.legacy_count or not row.product_ns or not row.busy_ns:
        return None
    share = row.legacy_ns / row.product_ns
    if share < THRESHOLDS["min_share"].value:
        return None
    if row.compute_major is not None and row.compute_major < THRESHOLDS["min_compute_major"].value:
        return Cleared(
            f"quantised weights take {share:.0%} of the products' time, but this device is too old for faster kernels"
        )
    longest = Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns)
    return Finding(
        summary=f"{row.legacy_count:,} kernels of older quantisation code take {share:.0%} of the products' time,"
        f" {row.legacy_ns / row.busy_ns:.0%} of the device's time",
        evidence=(
            Evidence("slow quantised kernels", share, "share of products' time", longest),
            Evidence("of it unpacking into memory", row.unpacking_ns / row.legacy_ns, "share of their time"),
            Evidence("most frequent of them", row.name or "", "kernel"),
        ),
        cure=CURE,
        confidence=0.75,
        cleared=f"slow quantised kernels take {share:.0%} of the products' time, but other things hold the run up",
    )


WIDENING = """
    WITH named AS (
        SELECT name_id, family IN ('elementwise', 'quantise') AS is_elementwise, family IN ('elementwise', 'quantise', 'index', 'concat') AS is_unpacker, family = 'gemm' AS is_gemm,
            family = 'gemm' AND NOT regexp_matches(lower(name), 'splitk_?reduce|prepare_grouped|fprop|convol|implicit_gemm') AS is_product,
            regexp_matches(lower(name), 'b?float16_copy_kernel') AS is_narrowing
        FROM kernel_name
    ),
    inside AS (
        SELECT device_op_id, source_id, device_id, stream_id, end_ns - start_ns AS own_ns, is_elementwise, is_unpacker, is_gemm, is_product, is_narrowing
        FROM device_op AS op JOIN named USING (name_id), steady_window
        WHERE op.start_ns >= from_ns AND op.start_ns < until_ns
    ),
    sequence AS MATERIALIZED (  -- most recordings end here, at little cost: too few kernels are long enough to stand before the products
        SELECT *, (sum(is_product::INTEGER) OVER (PARTITION BY source_id, device_id, stream_id ORDER BY device_op_id ROWS UNBOUNDED PRECEDING))::INTEGER AS block
        FROM inside
        WHERE (SELECT count(*) FILTER (is_elementwise AND own_ns >= 1000 * $shortest_us) >= $min_widened * count(*) FILTER (is_product) FROM inside)
            AND (SELECT sum(end_ns - start_ns) FILTER (family IN ('elementwise', 'quantise')) > $min_share * sum(end_ns - start_ns) FILTER (family = 'gemm')
                FROM device_op)
    ),
    sized AS MATERIALIZED (
        SELECT sequence.*, coalesce(is_elementwise AND own_ns > product_ns AND own_ns >= 1000 * $shortest_us, false) AS is_long,
            coalesce(is_unpacker AND own_ns > 0.5 * product_ns AND own_ns >= 1000 * $shortest_us, false) AS is_fit  -- tables and halves are looked up and joined first
        FROM sequence LEFT JOIN (
            SELECT source_id, device_id, stream_id, block - 1 AS block, own_ns AS product_ns FROM sequence WHERE is_product) AS fed
            USING (source_id, device_id, stream_id, block)
    ),
    told AS (  -- a block is a product and what follows it up to the next; sums by block, since windows over millions of rows spill to disk
        SELECT source_id, device_id, stream_id, block, coalesce(max(device_op_id) FILTER (NOT is_long), -1) AS last_short_id, coalesce(max(device_op_id) FILTER (NOT is_fit), -1) AS last_unfit_id, max(device_op_id) AS last_id, min(device_op_id) FILTER (NOT is_gemm AND (is_long OR NOT is_elementwise)) AS other_id
        FROM sized GROUP BY ALL
    ),
    followed AS (
        SELECT told.*, coalesce(before.last_id > before.last_short_id, false) AS is_of_widened
        FROM told LEFT JOIN told AS before ON before.source_id = told.source_id AND before.device_id = told.device_id
            AND before.stream_id = told.stream_id AND before.block = told.block - 1
    ),
    paired AS MATERIALIZED (
        SELECT sized.*, is_fit AND device_op_id > last_unfit_id AND last_id > last_short_id AS is_widening, is_of_widened, is_product AND is_of_widened AS is_widened,
            is_of_widened AND NOT is_gemm AND (other_id IS NULL OR device_op_id < other_id) AND NOT is_widening AS is_directly_behind
        FROM sized JOIN followed USING (source_id, device_id, stream_id, block)
    ),
    behind AS (
        SELECT quantile_disc(count, 0.2) AS scaling_count FROM (
            SELECT count(*) FILTER (is_directly_behind) AS count FROM paired WHERE is_of_widened GROUP BY source_id, device_id, stream_id, block)
    ),
    scaling AS (
        SELECT device_op_id FROM paired, behind WHERE is_directly_behind
        QUALIFY row_number() OVER (PARTITION BY source_id, device_id, stream_id, block ORDER BY device_op_id) <= scaling_count
    ),
    total AS (
        SELECT count(*) FILTER (is_product) AS product_count, count(*) FILTER (is_widened) AS widened_count,
            coalesce(sum(own_ns) FILTER (is_gemm), 0)::BIGINT AS product_ns, coalesce(sum(own_ns) FILTER (is_widening), 0)::BIGINT AS widening_ns,
            coalesce(sum(own_ns) FILTER (is_widening AND is_narrowing), 0)::BIGINT AS narrowing_ns,
            arg_max(device_op_id, own_ns) FILTER (is_widening) AS longest_id
        FROM paired
    )
"""

WIDENED_SQL = f"""{WIDENING}
SELECT product_count, widened_count, product_ns, widening_ns, narrowing_ns, scaling_count,
    longest.start_ns AS longest_start_ns, longest.end_ns AS longest_end_ns, (SELECT sum(busy_ns)::BIGINT FROM device_busy) AS busy_ns
FROM total CROSS JOIN behind LEFT JOIN device_op AS longest ON device_op_id = longest_id
"""

_GONE = f"{WIDENING} SELECT device_op_id FROM paired WHERE is_widening UNION ALL SELECT device_op_id FROM scaling"
_GONE_CALLS = f"""
    WITH gone AS (
        SELECT DISTINCT source_id, pid, tid, interval_id
        FROM ({_GONE}) JOIN launch USING (device_op_id) JOIN thread_call USING (host_call_id) WHERE op_count = 1
    )
    SELECT host_call_id FROM thread_call JOIN gone USING (source_id, pid, tid, interval_id) WHERE call_class IN ('launch', 'other')
"""
_VALUES = {name: THRESHOLDS[name].value for name in ("min_share", "min_widened", "shortest_us")}

WIDENED_CURE = Cure(
    steps=(
        CureStep(Target.DEVICE_OP, Act.REMOVE, _GONE, values=_VALUES),
        CureStep(Target.HOST_CALL, Act.REMOVE, _GONE_CALLS, values=_VALUES),
        CureStep(Target.SILENCE, Act.REMOVE, _GONE_CALLS, values=_VALUES),
    ),
    is_host_work=False,
    spread=1.5,
)


class WidenedWeights(NamedTuple):
    """Products of the window, and the long elementwise kernels directly before them."""

    product_count: int
    widened_count: int
    product_ns: int
    widening_ns: int
    narrowing_ns: int
    scaling_count: int | None
    longest_start_ns: int | None
    longest_end_ns: int | None
    busy_ns: int | None


def judge_widened(row: WidenedWeights) -> Verdict:
    """Nearly every product waits for its weights to be written out in a wider type."""
    if row.product_count < THRESHOLDS["min_products"].value or not row.busy_ns:
        return None
    widened = row.widened_count / row.product_count
    if widened < THRESHOLDS["min_widened"].value:
        return None
    share = row.widening_ns / row.busy_ns
    if 2 * row.narrowing_ns > row.widening_ns:
        return Cleared(
            f"a kernel before {widened:.0%} of the matrix products narrows 32-bit floats, {share:.0%} of the device's time: autocast"
            " over weights kept in 32 bits, not quantisation; load the weights in 16 bits"
        )
    longest = Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns)
    return Finding(
        summary=f"weights are widened in kernels of their own before {widened:.0%} of the matrix products: {share:.0%} of the device's"
        f" time, {row.widening_ns / row.product_ns:.1f} times as long as the products",
        evidence=(
            Evidence("widening before products", share, "share of device time", longest),
            Evidence("products with widened weights", widened, "share of matrix products"),
            Evidence("widening against products", row.widening_ns / row.product_ns, "x"),
            Evidence("scaling kernels behind each", float(row.scaling_count or 0), "kernels"),
        ),
        cure=WIDENED_CURE,
        confidence=0.75,
        cleared=f"weights are widened before {widened:.0%} of the matrix products, but other things hold the run up",
    )


SUMS_SQL = """
SELECT sum(call_count) FILTER (is_legacy)::BIGINT AS part_count, sum(total_ns) FILTER (is_legacy)::BIGINT AS part_ns, sum(total_ns)::BIGINT AS whole_ns,
    arg_max(name, total_ns) FILTER (is_legacy) AS largest
FROM profile_work WHERE is_legacy OR family = 'gemm' GROUP BY run_id HAVING part_ns > 0 ORDER BY part_ns DESC LIMIT 1
"""
SUMS_QUESTION = "which method were the weights quantised by, and does the device fit Marlin (compute capability 8.0)? The recording says what faster kernels win."
LOG_SQL = """
SELECT (SELECT max(detail) FROM engine_event WHERE event = 'quantisation_forced') AS forced,
    (SELECT max(detail) FROM engine_event WHERE event = 'quantisation_slow') AS slow,
    (SELECT max(detail) FROM engine_event WHERE event = 'quantisation_fast') AS fast,
    (SELECT max(told) FROM engine_choice WHERE setting = 'quantisation'  -- other engines take Marlin by themselves
        AND (regexp_matches(told, '^(bitsandbytes|bnb)') OR (told IN ('awq', 'gptq') AND engine IN ('vllm', 'sglang')))) AS told,
    (SELECT bool_or(told = 'true') FROM engine_choice WHERE setting IN ('bnb_8bit', 'bnb_4bit')) OR (SELECT count(*) > 0 FROM engine_event WHERE event = 'bnb_8bit')
        OR coalesce((SELECT bool_or(quantisation = 'bitsandbytes') FROM model_shape), false)
        OR EXISTS (SELECT 1 FROM bench_comparison WHERE slow_told IN ('bitsandbytes', 'bnb') AND fast_hz > 1.1 * slow_hz) AS is_bitsandbytes,
    (SELECT arg_max(slow_told, fast_hz / slow_hz) FROM beaten_quantisation) AS beaten,
    (SELECT count(*) FROM engine_event WHERE event = 'conversion_impossible') AS impossible_count,
    (SELECT max(product_name) FROM gpu_model WHERE compute_major < $min_compute_major) AS old_device,
    (SELECT greatest((SELECT max(fast_hz / slow_hz) FROM beaten_quantisation), max(fast_hz / slow_hz)) FROM bench_comparison WHERE regexp_matches(word, 'quant|kernel|config|variant|label|mode|backend|precision|dtype') AND slow_hz IS NOT NULL
        AND regexp_matches(slow_told, '^(--quantization )?(awq|gptq)$|bitsandbytes|bnb|int8') AND NOT regexp_matches(fast_told, '^(awq|gptq)$')) AS ratio
"""


class SaidSlow(NamedTuple):
    """What settings, log lines and a comparison say of the method."""

    forced: str | None
    slow: str | None
    fast: str | None
    told: str | None
    is_bitsandbytes: bool | None
    beaten: str | None
    impossible_count: int
    old_device: str | None
    ratio: float | None


def judge_log(row: SaidSlow) -> Verdict:
    """A slow method by name."""
    named = ("bitsandbytes" if row.is_bitsandbytes else None, row.beaten, None if row.fast else row.told)
    method = row.forced or row.slow or next(filter(None, named), None)
    if method is None:
        return None
    if row.old_device:
        return Cleared(f"the method {method} has slow kernels, but {row.old_device} is too old for faster ones")
    why = (
        "forced by a setting although the faster kernels fit"
        if row.forced
        else "which the engine itself calls not fully optimized"
        if row.slow
        else "whose kernels are made for memory, not for speed"
        if method.startswith("b")
        else "which other kernels, or 16 bits at a small load, beat by far"
        if row.beaten
        else "which names the older kernels"
    )
    measured = f"; without it the same load is {row.ratio:.1f} times as fast" if row.ratio and row.ratio > 1.1 else ""
    return Finding(
        summary=f"quantised weights run by {method}, {why}{measured}",
        evidence=(
            Evidence("method", method, ""),
            *((Evidence("other method against it", row.ratio, "x"),) if row.ratio else ()),
        ),
        severity=Severity.HIGH,
        confidence=0.4 if row.impossible_count else 0.9 if row.forced or (row.ratio or 0) > 1.5 else 0.7,
        speedup_bound=row.ratio if row.ratio and row.ratio > 1 else 5.0,
        speedup_expected=row.ratio if row.ratio and row.ratio > 1 else None,
    )


FIXES = (
    Fix(
        "vllm",
        "drop --quantization awq / gptq (or set awq_marlin / gptq_marlin); requantise bitsandbytes checkpoints to GPTQ or AWQ",
        "Marlin or Machete is chosen where the checkpoint allows it",
        source="https://docs.vllm.ai/en/latest/features/quantization/",
    ),
    Fix(
        "sglang",
        "drop --quantization awq / gptq (or set awq_marlin / gptq_marlin)",
        "Marlin kernels are chosen where the checkpoint allows it",
        source="https://docs.sglang.ai/advanced_features/quantization.html",
    ),
    Fix(
        "tensorrt-llm",
        "QuantConfig(quant_algo=QuantAlgo.W4A16_AWQ), or W4A8_AWQ on Hopper",
        "fused unpacking and product",
        source="https://nvidia.github.io/TensorRT-LLM/features/quantization.html",
    ),
    Fix(
        "transformers",
        'AwqConfig / GPTQConfig(backend="marlin") with gptqmodel; bitsandbytes for training only, or bnb_4bit_compute_dtype=torch.bfloat16',
        "Marlin kernels; 4-bit products at least in the model's own type",
        source="https://huggingface.co/docs/transformers/quantization/gptq",
    ),
    Fix(
        "pytorch",
        "torchao.quantization.quantize_(model, Int4WeightOnlyConfig(group_size=128))",
        "tinygemm kernels unpack in registers",
        source="https://docs.pytorch.org/ao/stable/workflows/inference.html",
    ),
    Fix(
        "pytorch",
        'torch.compile(model, mode="max-autotune") after quantize_; or weights in bfloat16 where they fit',
        "outside a compiled model each weight is widened in memory before its product",
        source="https://docs.pytorch.org/ao/stable/workflows/inference.html",
    ),
    Fix(
        "engine",
        "--quantization none (or fp8)",
        "products read their weights as they are stored",
        source="python -m engine bench --help",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=LegacyKernels,
    judge=judge,
    fixes=FIXES,
    verify="record again: kernel names say marlin or machete, no long elementwise kernel before a product; tokens a second rise.",
    doc=__doc__,
    also=(
        Sign(ABOUT.reads, ABOUT.needs, WIDENED_SQL, WidenedWeights, judge_widened),
        asked_of_sums(
            SUMS_SQL, THRESHOLDS["min_share"].value, "of the products' time is older quantisation code", SUMS_QUESTION
        ),
        Sign(("engine_evidence",), ("engine-log", "engine-config"), LOG_SQL, SaidSlow, judge_log),
        Sign(("bench_comparison",), ("bench-table",), LOG_SQL, SaidSlow, judge_log),
    ),
)
