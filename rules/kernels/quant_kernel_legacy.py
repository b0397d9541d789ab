"""Quantised weights run on slow kernels: AWQ, GPTQ or bitsandbytes without Marlin or Machete.

What happens: 4-bit weights are a quarter of the bytes, but the first kernels for them were written to show that the format
works. They unpack weights into memory before a plain product, or multiply with layouts that neither coalesce nor use the
matrix units well. A quantised model then decodes slower than it could in 16 bits; a public case gained 5.3 times by
dropping the flag that forced such a kernel.

How it is detected: kernels of AWQ, GPTQ, ExLlama and bitsandbytes, by name, take at least 20 % of the time of matrix
products and unpacking together. The win is the run replayed with products at a third of their time and unpacking gone,
which Marlin does in registers. In a log or a configuration: the method is forced to awq or gptq, is bitsandbytes, or the engine
says that it is not fully optimized.

When it is not this: Marlin and Machete kernels are the fast ones. Before compute capability 8.0 there is nothing faster, and
the finding says so in place of a win. FP8 weights on older devices are `fp8-no-hardware`.
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
    "product_left": Threshold(
        1 / 3,
        "of the products' time",
        source="vllm-project/vllm#21376: 5.3 x for the whole run; a third is the careful end",
    ),
    "min_compute_major": Threshold(8, "compute capability", source="Marlin needs 8.0: github.com/IST-DASLab/marlin"),
}

UNPACKING = (
    "kdequantize|kdequant_mm|kint8vectorquant|kquantizeblockwise|ktransformrowcol|dequantize_weights|dequantize_4bit|reconstruct_(gptq|exllama|kernel)"
    "|awq_dequantize|dequantize_gptq"
)
LEGACY = (
    f"{UNPACKING}|awq|gemm_forward_4bit|gptq|gemm_half_q_half|q4_matmul|q_gemm|exllama|vecquant|kgemm_4bit|kgemv_4bit"
)

KERNELS = f"""
    SELECT op.device_op_id, op.start_ns, op.end_ns, text.text AS name, op.family,
        regexp_matches(lower(text.text), '{LEGACY}') AND NOT regexp_matches(lower(text.text), 'marlin|machete') AS is_legacy,
        regexp_matches(lower(text.text), '{UNPACKING}') AS is_unpacking
    FROM device_op AS op JOIN text ON text_id = name_id, steady_window
    WHERE op.start_ns >= from_ns AND op.start_ns < until_ns
"""

SQL = f"""
WITH named AS (
    SELECT name_id, regexp_matches(lower(name), '{LEGACY}') AND NOT regexp_matches(lower(name), 'marlin|machete') AS is_legacy,
        regexp_matches(lower(name), '{UNPACKING}') AS is_unpacking, family
    FROM kernel_name
),
timed AS (
    SELECT op.start_ns, op.end_ns, name_id, is_legacy, is_unpacking
    FROM device_op AS op JOIN named USING (name_id), steady_window
    WHERE (is_legacy OR named.family = 'gemm') AND op.start_ns >= from_ns AND op.start_ns < until_ns
)
SELECT count(*) FILTER (is_legacy) AS legacy_count, coalesce(sum(end_ns - start_ns) FILTER (is_legacy), 0)::BIGINT AS legacy_ns,
    coalesce(sum(end_ns - start_ns) FILTER (is_legacy AND is_unpacking), 0)::BIGINT AS unpacking_ns,
    sum(end_ns - start_ns)::BIGINT AS product_ns, (SELECT sum(busy_ns)::BIGINT FROM device_busy) AS busy_ns,
    (SELECT text FROM text WHERE text_id = mode(name_id) FILTER (is_legacy)) AS name,
    arg_max(start_ns, end_ns - start_ns) FILTER (is_legacy) AS longest_start_ns,
    arg_max(end_ns, end_ns - start_ns) FILTER (is_legacy) AS longest_end_ns,
    (SELECT max(compute_major) FROM device WHERE vendor = 'nvidia') AS compute_major
FROM timed
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
    return Finding(
        summary=f"{row.legacy_count:,} kernels of older quantisation code take {share:.0%} of the products' time,"
        f" {row.legacy_ns / row.busy_ns:.0%} of the device's time",
        evidence=(
            Evidence(
                "slow quantised kernels",
                share,
                "share of products' time",
                Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns),
            ),
            Evidence("of it unpacking into memory", row.unpacking_ns / row.legacy_ns, "share of their time"),
            Evidence("most frequent of them", row.name or "", "kernel"),
        ),
        cure=CURE,
        confidence=0.75,
        cleared=f"slow quantised kernels take {share:.0%} of the products' time, but other things hold the run up",
    )


LOG_SQL = """
SELECT (SELECT max(detail) FROM engine_event WHERE event = 'quantisation_forced') AS forced,
    (SELECT max(detail) FROM engine_event WHERE event = 'quantisation_slow') AS slow,
    (SELECT max(detail) FROM engine_event WHERE event = 'quantisation_fast') AS fast,
    (SELECT max(told) FROM engine_choice WHERE setting = 'quantisation'  -- other engines take Marlin by themselves
        AND (regexp_matches(told, '^(bitsandbytes|bnb)') OR (told IN ('awq', 'gptq') AND engine IN ('vllm', 'sglang')))) AS told,
    (SELECT bool_or(told = 'true') FROM engine_choice WHERE setting IN ('bnb_8bit', 'bnb_4bit')) OR (SELECT count(*) > 0 FROM engine_event WHERE event = 'bnb_8bit')
        OR coalesce((SELECT bool_or(quantisation = 'bitsandbytes') FROM model_shape), false) AS is_bitsandbytes,
    (SELECT count(*) FROM engine_event WHERE event = 'conversion_impossible') AS impossible_count,
    (SELECT max(product_name) FROM gpu_model WHERE compute_major < $min_compute_major) AS old_device,
    (SELECT max(fast_hz / slow_hz) FROM bench_comparison WHERE regexp_matches(word, 'quant|kernel|config|variant|label|mode|backend|precision|dtype') AND slow_hz IS NOT NULL
        AND regexp_matches(slow_told, '^(--quantization )?(awq|gptq)$|bitsandbytes|bnb|int8') AND NOT regexp_matches(fast_told, '^(awq|gptq)$')) AS ratio
"""


class SaidSlow(NamedTuple):
    """What settings, log lines and a comparison say of the method."""

    forced: str | None
    slow: str | None
    fast: str | None
    told: str | None
    is_bitsandbytes: bool | None
    impossible_count: int
    old_device: str | None
    ratio: float | None


def judge_log(row: SaidSlow) -> Verdict:
    """A slow method by name."""
    method = (
        row.forced or row.slow or ("bitsandbytes" if row.is_bitsandbytes else None) or (None if row.fast else row.told)
    )
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
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=LegacyKernels,
    judge=judge,
    fixes=FIXES,
    verify="record again: kernel names say marlin or machete; tokens a second rise.",
    doc=__doc__,
    also=(Sign(("engine_evidence",), ("engine-log", "engine-config"), LOG_SQL, SaidSlow, judge_log),),
)
