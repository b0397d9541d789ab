"""The model computes in fp32 on a device whose matrix units want 16 bits.

What happens: fp32 matrix products run on the general-purpose units, an eighth to a thirtieth of the rate of bf16 on the matrix units, and read twice the bytes.
A checkpoint loaded without a dtype, or an autocast that was left out, does that to a whole model without any other sign. fp64 is worse still: numpy arrays are
of that type unless told otherwise, and element-wise arithmetic with one such tensor hands it on. Devices not made for it reach a 64th of their fp32 rate.

How it is detected: the share of fp32 and fp64 products in the time of all matrix products, from kernel names (sgemm, ffma, simt; dgemm, f64). The win is the
run replayed with each product at the device's own ratio: products that fill the device with large tiles are bound by arithmetic and gain the ratio of the
units; all others are bound by bandwidth and gain two (four from fp64), as do long element-wise kernels. Where most of the products are wide, so is what lies
between them: attention over a prompt is two products in one kernel and gains the ratio, every other long kernel that does not name a 16-bit type gains by its
bytes. In a log or a configuration: the type is float32, or the weights weigh at least 3.6 bytes a parameter. Beside an out-of-memory text the model's
configuration is enough: a load that fails with more than 2.5 bytes a parameter in memory is wider than 16 bits, and so is a checkpoint in float32 that nothing
narrows. It is critical where memory ran out. The sums of a profile, where no recording is given, ask the same as a question.

Weights kept in fp32 and computed with in 16 bits, as under torch.autocast, are another form of it: every step casts every weight again. Then half of the matrix
products or more have casts from 32-bit floats directly before them, two or one that takes longer; the win is without them.

When it is not this: one short cast before a product is an activation's; casts to fp32 are of logits and norms; in training the products of the backward pass
have no casts before them. Norms, logits and expert routing in fp32 are intended and small. TF32 kernels use the matrix units already. Training in fp32 may be
on purpose.
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
    ProgramKind,
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
    id="wrong-dtype-fp32",
    title="The model computes in fp32",
    stage=Stage.SPECIFIC,
    reads=("device_op", "kernel"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
    group="fp32",
    group_rank=0,
)

THRESHOLDS = {
    "min_bytes": Threshold(3.6, "bytes a parameter", source="huggingface/transformers#21681: 4 in fp32, 2 in 16 bits"),
    "wide_bytes": Threshold(2.5, "bytes a parameter", source="16 bits take 2; a quarter more is no rounding"),
    "most_bytes": Threshold(4.6, "bytes a parameter", source="more is no set of weights, but something else"),
    "min_share": Threshold(0.2, "share of matrix-product time", source="huggingface/transformers#21681"),
    "tile_elements": Threshold(4096, "elements of an output tile", source="64 x 64: smaller tiles serve few rows"),
    "long_ns": Threshold(10_000, "ns", source="element-wise kernels this long are bound by bandwidth"),
    "min_narrowed": Threshold(0.5, "share of matrix products", source="most; of a training step a third"),
    "min_products": Threshold(24, "matrix products", source="four a layer; fewer are less than a small model"),
    "least_cast_ns": Threshold(4_000, "ns", source="own H200 recordings: activations of a few tokens take 1 to 3 us"),
    "whole_share": Threshold(0.5, "share of matrix-product time", source="most products: the model as such is fp32"),
}

PRODUCTS = "SELECT *, is_wave AND tile_element_count >= $tile_elements AS is_arithmetic_bound FROM wide_product"

SQL = f"""
WITH product AS ({PRODUCTS}),
gemm AS (
    SELECT coalesce(sum(end_ns - start_ns), 0)::BIGINT AS gemm_ns
    FROM device_op, steady_window WHERE family = 'gemm' AND start_ns >= from_ns AND start_ns < until_ns
)
SELECT count(*) AS product_count, coalesce(sum(end_ns - start_ns), 0)::BIGINT AS wide_ns, any_value(gemm_ns) AS gemm_ns,
    coalesce(sum(end_ns - start_ns) FILTER (precision = 'fp64'), 0)::BIGINT AS fp64_ns,
    coalesce(sum(end_ns - start_ns) FILTER (is_arithmetic_bound), 0)::BIGINT AS arithmetic_ns, arg_max(1 / unit_share, end_ns - start_ns)::DOUBLE AS unit_ratio,
    (SELECT sum(busy_ns)::BIGINT FROM device_busy) AS busy_ns, (SELECT max(name) FROM device) AS device_name,
    arg_max(start_ns, end_ns - start_ns) AS longest_start_ns, arg_max(end_ns, end_ns - start_ns) AS longest_end_ns,
    (SELECT count(*) FROM fp32_attention) AS attention_count
FROM product, gemm
"""

# A decode kernel reads the cache for one row a sequence: bound by bytes.
OTHERS = """
    SELECT device_op_id, 1.0 / if(is_fp64, fp64_time_share, time_share) AS unit_ratio, if(is_fp64, 4.0, 2.0) AS byte_ratio,
        is_whole AND coalesce(grid_blocks, 0) >= 0.5 * coalesce((SELECT max(sm_count) FROM device), 100)
            AND (family = 'attention' OR regexp_matches(lower(text.text), 'prefill|attention|attn|fmha'))
            AND NOT regexp_matches(lower(text.text), 'decode|split|combine|reduce') AS is_prompt
    FROM device_op AS op JOIN text ON text_id = name_id, steady_window, half_rate, (
        SELECT sum(end_ns - start_ns) FILTER (precision IN ('fp32', 'fp64')) >= $whole_share * sum(end_ns - start_ns) AS is_whole,
            coalesce(sum(end_ns - start_ns) FILTER (precision = 'fp64') >= $whole_share * sum(end_ns - start_ns), false) AS is_fp64
        FROM device_op, steady_window WHERE family = 'gemm' AND start_ns >= from_ns AND start_ns < until_ns)
    WHERE end_ns - op.start_ns >= $long_ns AND op.start_ns >= from_ns AND op.start_ns < until_ns
        AND (family IN ('elementwise', 'activation', 'norm', 'softmax', 'concat', 'rope', 'reduction')
            OR (is_whole AND kind = 'kernel' AND family NOT IN ('gemm', 'collective')))
        AND NOT regexp_matches(lower(text.text), 'bfloat16|half|bf16|fp16')
"""

CURE = Cure(
    steps=(
        CureStep(
            Target.DEVICE_OP,
            Act.SCALE,
            f"SELECT device_op_id, if(is_arithmetic_bound, unit_share, byte_share) FROM ({PRODUCTS})",
            values={"tile_elements": THRESHOLDS["tile_elements"].value},
        ),
        CureStep(
            Target.DEVICE_OP,
            Act.SCALE,
            f"SELECT device_op_id, 1.0 / if(is_prompt, unit_ratio, byte_ratio) FROM ({OTHERS})",
            values={name: THRESHOLDS[name].value for name in ("long_ns", "whole_share")},
        ),
    ),
    is_host_work=False,
    spread=1.5,
)


class WideProducts(NamedTuple):
    """fp32 and fp64 matrix products of the window."""

    product_count: int
    wide_ns: int
    gemm_ns: int | None
    fp64_ns: int
    arithmetic_ns: int
    unit_ratio: float | None
    busy_ns: int | None
    device_name: str | None
    longest_start_ns: int | None
    longest_end_ns: int | None
    attention_count: int


def judge(row: WideProducts) -> Verdict:
    """A fifth of the time of all products."""
    if not row.product_count and row.attention_count:
        return Cleared(
            f"the model computes in 16 bits; its {row.attention_count:,} fp32 products are those of attention that is not fused"
        )
    if not row.product_count or not row.gemm_ns or not row.busy_ns:
        return None
    share = row.wide_ns / row.gemm_ns
    if share < THRESHOLDS["min_share"].value:
        return None
    is_double = row.fp64_ns > 0.5 * row.wide_ns
    name, longest = "fp64" if is_double else "fp32", Where(row.longest_start_ns, row.longest_end_ns)
    return Finding(
        summary=f"{share:.0%} of the matrix-product time is {name} ({row.product_count:,} kernels, {row.wide_ns / row.busy_ns:.0%} of"
        f" the device's time)",
        evidence=(
            Evidence(f"{name} matrix products", share, "share of matrix-product time"),
            Evidence(f"{name} matrix products", row.wide_ns / row.busy_ns, "share of device time"),
            Evidence("longest of them", ((row.longest_end_ns or 0) - (row.longest_start_ns or 0)) / 1e3, "us", longest),
            Evidence("of these bound by arithmetic", row.arithmetic_ns / max(row.wide_ns, 1), "share of their time"),
            Evidence(f"16-bit units against {name} on this device", row.unit_ratio or 0.0, "x, as reached"),
        ),
        cure=CURE,
        confidence=0.85,
        title="The model computes in fp64" if is_double else "",
        fixes=DOUBLE_FIXES if is_double else (),
        cleared=f"{share:.0%} of the matrix-product time is {name}, but other things hold the run up",
    )


CAST = """
    SELECT *, len(cast_ns) >= 2 OR coalesce(cast_ns[1] > product_ns AND cast_ns[1] >= $least_cast_ns, false) AS is_narrowed
    FROM narrowed_product
"""

CAST_SQL = f"""
WITH product AS ({CAST}),
casting AS (SELECT unnest(cast_op_id) AS device_op_id FROM product WHERE is_narrowed)
SELECT (SELECT count(*) FROM product) AS product_count, (SELECT count(*) FILTER (is_narrowed) FROM product) AS narrowed_count,
    count(*) AS cast_count, coalesce(sum(end_ns - start_ns), 0)::BIGINT AS cast_ns, (SELECT sum(busy_ns)::BIGINT FROM device_busy) AS busy_ns,
    arg_max(start_ns, end_ns - start_ns) AS longest_start_ns, arg_max(end_ns, end_ns - start_ns) AS longest_end_ns
FROM casting JOIN device_op USING (device_op_id)
"""

_CASTS = f"SELECT unnest(cast_op_id) AS device_op_id FROM ({CAST}) WHERE is_narrowed"
_CASTING = f"SELECT DISTINCT host_call_id FROM launching_call WHERE device_op_id IN ({_CASTS})"
_CAST_VALUES = {"least_cast_ns": THRESHOLDS["least_cast_ns"].value}
_ALL_CASTS = "SELECT device_op_id FROM device_op JOIN kernel_name USING (name_id) WHERE regexp_matches(lower(name), 'b?float16_copy_kernel')"
_ALL_CASTING = f"SELECT DISTINCT host_call_id FROM launching_call WHERE device_op_id IN ({_ALL_CASTS})"

CAST_CURE = Cure(
    steps=(
        CureStep(Target.DEVICE_OP, Act.REMOVE, _CASTS, values=_CAST_VALUES),
        CureStep(Target.HOST_CALL, Act.REMOVE, _CASTING, values=_CAST_VALUES),
        CureStep(Target.SILENCE, Act.REMOVE, f"{_CASTING} AND is_quick", values=_CAST_VALUES),
    ),
    is_host_work=False,
    at_most=(
        CureStep(Target.DEVICE_OP, Act.REMOVE, _ALL_CASTS),
        CureStep(Target.HOST_CALL, Act.REMOVE, _ALL_CASTING),
        CureStep(Target.SILENCE, Act.REMOVE, f"{_ALL_CASTING} AND is_quick"),
    ),
)


class CastWeights(NamedTuple):
    """Matrix products of the window, and the casts to 16 bits directly before them."""

    product_count: int
    narrowed_count: int
    cast_count: int
    cast_ns: int
    busy_ns: int | None
    longest_start_ns: int | None
    longest_end_ns: int | None


def judge_cast(row: CastWeights) -> Verdict:
    """Most products wait for their weights to be cast."""
    if row.product_count < THRESHOLDS["min_products"].value or not row.busy_ns:
        return None
    narrowed = row.narrowed_count / row.product_count
    if narrowed < THRESHOLDS["min_narrowed"].value:
        return None
    share = row.cast_ns / row.busy_ns
    return Finding(
        summary=f"{row.cast_count:,} casts to 16 bits directly before {narrowed:.0%} of the matrix products, as under autocast, take {share:.0%} of the device's time",
        evidence=(
            Evidence(
                "casts before products", share, "share of device time", Where(row.longest_start_ns, row.longest_end_ns)
            ),
            Evidence("products with cast operands", narrowed, "share of matrix products"),
        ),
        cure=CAST_CURE,
        confidence=0.8,
        title="The weights are kept in fp32 and cast in every step",
        fixes=CAST_FIXES,
        verify="record again: no cast kernel before the products, and weights take two bytes a parameter.",
        cleared=f"weights are cast to 16 bits before {narrowed:.0%} of the products, but other things hold the run up",
    )


CAST_FIXES = (
    Fix(
        "pytorch",
        "model.to(torch.bfloat16) once, in place of torch.autocast around each step",
        "weights are read as they are multiplied, in half of the bytes; no cast is launched",
        source="https://docs.pytorch.org/docs/stable/amp.html",
    ),
    Fix(
        "transformers",
        "from_pretrained(..., dtype=torch.bfloat16) (torch_dtype before version 5), without autocast",
        "version 4 loads in fp32 unless told otherwise",
        source="https://huggingface.co/docs/transformers/main_classes/model",
    ),
)

SUMS_SQL = """
SELECT wide_product_count AS part_count, wide_product_ns AS part_ns, product_ns AS whole_ns, wide_product_name AS largest FROM profile_total
WHERE wide_product_ns > 0 ORDER BY wide_product_ns DESC LIMIT 1
"""
SETTING_SQL = "SELECT * FROM weight_type"
SUMS_QUESTION = "is the model meant to be in fp32? print(model.dtype); the recording itself says what 16 bits would win: `doctor diagnose REPORT.nsys-rep`."


class TypeOfWeights(NamedTuple):
    """The type that was asked for and what the weights weigh."""

    engine: str | None
    is_fp32: bool
    is_half: bool
    weight_bytes: float | None
    loading_bytes: float | None
    allocated_bytes: float | None
    total_bytes: int | None
    is_failed: bool
    parameter_count: int | None
    quantisation: str | None
    stored: str | None
    is_wide: bool
    is_stored_wide: bool


def bytes_each(row: TypeOfWeights) -> float | None:
    """Bytes a parameter, of weights that an engine counted or a load had brought in when it failed."""
    weight = row.weight_bytes or row.loading_bytes
    return weight / row.parameter_count if weight and row.parameter_count else None


def judge_setting(row: TypeOfWeights) -> Verdict:
    """float32 by name, by weight, or by what a load had filled."""
    each = bytes_each(row)
    by_weight = each is not None and THRESHOLDS["min_bytes"].value <= each <= THRESHOLDS["most_bytes"].value
    is_partly = row.is_wide and row.weight_bytes is None
    if not (row.is_fp32 or by_weight or is_partly or row.is_stored_wide):
        return None
    is_light = each is not None and each < THRESHOLDS["min_bytes"].value
    if is_light and row.weight_bytes is not None:  # what was loaded weighs less, whatever was asked for
        return None
    stored = f", stored in {row.stored}" if row.stored and row.stored != "float32" else ""
    weight = f": weights of {each:.1f} bytes a parameter" if each is not None else ""
    if is_light and each is not None:
        weight = f": {each:.1f} bytes a parameter were there when loading failed, 2 are a whole model in 16 bits"
    return Finding(
        summary=f"the model is loaded in float32{stored}{weight}",
        evidence=(
            *((Evidence("weights", each, "bytes a parameter"),) if each is not None else ()),
            *((Evidence("type asked for", "float32", ""),) if row.is_fp32 else ()),
            *((Evidence("parameters", float(row.parameter_count), "parameters"),) if row.parameter_count else ()),
            *((Evidence("memory of the device", float(row.total_bytes), "bytes"),) if row.total_bytes else ()),
        ),
        severity=Severity.CRITICAL if row.is_failed else Severity.HIGH,
        confidence=0.9 if by_weight else 0.8 if row.is_fp32 else 0.7,
        bytes=saved_bytes(row, by_weight),
    )


def saved_bytes(row: TypeOfWeights, by_weight: bool) -> int | None:
    """What 16 bits would save: half of what was weighed, or two bytes a parameter."""
    weight = row.weight_bytes or row.loading_bytes
    if by_weight and weight:
        return round(weight / 2)
    return 2 * row.parameter_count if row.parameter_count and row.is_failed else None


DOUBLE_FIXES = (
    Fix(
        "pytorch",
        "model.to(torch.bfloat16) and inputs of that type (torch.float32 where digits matter); torch.from_numpy(array).float():"
        " numpy arrays are float64 unless told otherwise; no torch.set_default_dtype(torch.float64)",
        "one tensor of 64 bits widens what is computed with it; 16 bits run on the matrix units and are a quarter of the bytes",
        source="https://docs.pytorch.org/docs/stable/generated/torch.from_numpy.html",
    ),
)
FIXES = (
    Fix(
        "pytorch",
        "model.to(torch.bfloat16) once, and inputs of that type (not autocast: it would cast fp32 weights in every step)",
        "products run on the matrix units and weights take half the bytes",
        source="https://docs.pytorch.org/docs/stable/amp.html",
        fits=(ProgramKind.GENERATION, ProgramKind.ENCODER, ProgramKind.VISION),
    ),
    Fix(
        "pytorch",
        'torch.autocast("cuda", torch.bfloat16) around the forward pass and the loss; weights and optimizer stay in fp32',
        "products run on the matrix units; updates keep their digits",
        source="https://docs.pytorch.org/docs/stable/amp.html",
        fits=(ProgramKind.TRAINING,),
    ),
    *(
        Fix(engine, "--dtype auto (or bfloat16)", "takes the checkpoint's 16-bit type", source=source)
        for engine, source in (
            ("vllm", "https://docs.vllm.ai/en/latest/configuration/engine_args.html"),
            ("sglang", "https://docs.sglang.ai/advanced_features/server_arguments.html"),
        )
    ),
    Fix(
        "tensorrt-llm",
        "dtype: bfloat16",
        "builds 16-bit kernels",
        source="https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html",
    ),
    Fix(
        "transformers",
        'from_pretrained(..., dtype="auto") (torch_dtype="auto" before version 5)',
        "version 4 loads in fp32 unless told otherwise",
        source="https://huggingface.co/docs/transformers/main_classes/model",
    ),
    Fix(
        "engine",
        "--dtype bfloat16",
        "half the bytes, and the matrix units; results differ in the last digits",
        source="python -m engine bench --help",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=WideProducts,
    judge=judge,
    fixes=FIXES,
    verify="record again: kernel names say bf16, f16 or nvjet in place of sgemm, ffma, dgemm and f64; weights take two bytes a parameter.",
    doc=__doc__,
    also=(
        Sign(ABOUT.reads, ABOUT.needs, CAST_SQL, CastWeights, judge_cast),
        asked_of_sums(SUMS_SQL, THRESHOLDS["min_share"].value, "of the time of matrix products is fp32", SUMS_QUESTION),
        Sign(("weight_type",), ("engine-log", "engine-config"), SETTING_SQL, TypeOfWeights, judge_setting),
    ),
)
