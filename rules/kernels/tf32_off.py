"""fp32 products without TF32: the matrix units could take them at a tenth of the error budget of bf16.

What happens: where a model has to stay in fp32, PyTorch still multiplies on the general-purpose units unless it is allowed
to round inputs to TF32. The matrix units are then idle. Matrix products and convolutions are allowed apart: products are off
unless asked for, convolutions are on unless somebody took that back.

How it is detected: fp32 products of at least a tenth of the matrix-product time on a device with TF32 (compute capability
8.0 and later), and no TF32 kernel beside them; or PyTorch's own warning in a log. It shares the gain of `wrong-dtype-fp32`: a model in 16 bits needs no TF32.

When it is not this: a model that computes in bf16 has nothing to gain; older devices and other vendors have no TF32;
a product with one vector reads its matrix, and takes as long with it.
"""

from typing import NamedTuple

from doctor.rule import (
    About,
    Cleared,
    Evidence,
    Finding,
    Fix,
    Rule,
    Severity,
    Sign,
    Stage,
    Threshold,
    Verdict,
)

ABOUT = About(
    id="tf32-off",
    title="fp32 products without TF32",
    stage=Stage.SPECIFIC,
    reads=("device_op", "kernel"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
    group="fp32",
    group_rank=1,
)

THRESHOLDS = {
    "min_share": Threshold(0.1, "share of matrix-product time", source="pytorch/pytorch#153195"),
    "min_part": Threshold(0.1, "share of the fp32 time", source="a part below that is not worth a setting of its own"),
}

SQL = """
SELECT coalesce(sum(end_ns - start_ns) FILTER (precision = 'fp32' AND is_vector IS NOT TRUE), 0)::BIGINT AS fp32_ns,
    coalesce(sum(end_ns - start_ns) FILTER (precision = 'tf32'), 0)::BIGINT AS tf32_ns,
    coalesce(sum(end_ns - start_ns), 0)::BIGINT AS gemm_ns,
    coalesce(sum(end_ns - start_ns) FILTER (precision = 'fp32' AND is_convolution), 0)::BIGINT AS convolution_ns,
    (SELECT max(compute_major) FROM device WHERE coalesce(vendor, 'nvidia') = 'nvidia') AS compute_major
FROM device_op LEFT JOIN (
    SELECT name_id, regexp_matches(lower(name), 'fprop|dgrad|wgrad|convol|_conv|winograd|scudnn') AS is_convolution,
        contains(lower(name), 'gemv') AS is_vector  -- one row reads its matrix in as long with TF32
    FROM kernel_name
) USING (name_id), steady_window
WHERE family = 'gemm' AND start_ns >= from_ns AND start_ns < until_ns
    AND device_op_id NOT IN (SELECT device_op_id FROM fp32_attention)
"""


class Fp32AndTf32(NamedTuple):
    """Matrix products of the window by type."""

    fp32_ns: int
    tf32_ns: int
    gemm_ns: int
    convolution_ns: int
    compute_major: int | None


def judge(row: Fp32AndTf32) -> Verdict:
    """fp32 where TF32 could be."""
    if not row.gemm_ns or (row.compute_major or 0) < 8 or row.tf32_ns:
        return None
    share = row.fp32_ns / row.gemm_ns
    if share < THRESHOLDS["min_share"].value:
        return None
    convolved = row.convolution_ns / row.fp32_ns
    least = THRESHOLDS["min_part"].value
    told = f", {convolved:.0%} of it convolutions" if convolved >= least else ""
    return Finding(
        summary=f"{share:.0%} of the matrix-product time is fp32 without TF32 on a device that has it{told}",
        evidence=(
            Evidence("fp32 products without TF32", share, "share of matrix-product time"),
            *((Evidence("of it convolutions", convolved, "share of fp32 time"),) if told else ()),
        ),
        fixes=_fixes(convolved),
        confidence=0.8,
        cleared=f"{share:.0%} of the matrix-product time is fp32 without TF32, but other things hold the run up",
    )


def _fixes(convolved: float) -> tuple[Fix, ...]:
    """The setting for the larger part first, none for a part that is not there."""
    least = THRESHOLDS["min_part"].value
    products = (MATMUL,) if 1 - convolved >= least else ()
    convolutions = (CONVOLUTION,) if convolved >= least else ()
    return (*convolutions, *products, *ENGINES) if convolved >= 1 - convolved else (*products, *convolutions, *ENGINES)


LOG_SQL = """
SELECT (SELECT count(*) FROM engine_event WHERE event = 'tf32_off') AS line_count,
    (SELECT max(told) FROM engine_choice WHERE setting = 'dtype' AND told IN ('float32', 'bfloat16', 'float16')) AS dtype,
    (SELECT max(told) FROM engine_choice WHERE setting = 'matmul_precision') AS precision
"""


class Warned(NamedTuple):
    """PyTorch's warning and the model's type."""

    line_count: int
    dtype: str | None
    precision: str | None


def judge_log(row: Warned) -> Verdict:
    """Warned, and the model is not in 16 bits."""
    if not row.line_count or row.precision in {"high", "medium"}:
        return None
    if row.dtype in {"bfloat16", "float16"}:
        return Cleared(f"PyTorch says that TF32 is off, but the model computes in {row.dtype}")
    return Finding(
        summary="PyTorch says that TF32 is available and off: fp32 products run on the general-purpose units",
        evidence=(
            Evidence("lines about TF32", float(row.line_count), "lines"),
            *((Evidence("type of the model", row.dtype, ""),) if row.dtype else ()),
        ),
        severity=Severity.MEDIUM,
        confidence=0.7 if row.dtype else 0.5,
    )


MATMUL = Fix(
    "pytorch",
    'torch.set_float32_matmul_precision("high"); since 2.9 also torch.backends.cuda.matmul.fp32_precision = "tf32"',
    "fp32 products run on the matrix units; convolutions do not listen to it",
    source="https://docs.pytorch.org/docs/stable/notes/cuda.html (checked with 2.13)",
)
CONVOLUTION = Fix(
    "pytorch",
    'torch.backends.cudnn.allow_tf32 = True; since 2.9 torch.backends.cudnn.conv.fp32_precision = "tf32", and not both',
    "convolutions of cuDNN run on the matrix units; that is the default, so look for what took it back (NVIDIA_TF32_OVERRIDE=0 does too)",
    source="https://docs.pytorch.org/docs/stable/notes/cuda.html (checked with 2.13)",
)
ENGINES = (
    Fix(
        "vllm",
        "VLLM_FLOAT32_MATMUL_PRECISION=high",
        "the same for a model that must stay in fp32",
        source="https://docs.vllm.ai/en/latest/configuration/env_vars.html",
    ),
)
FIXES = (MATMUL, CONVOLUTION, *ENGINES)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Fp32AndTf32,
    judge=judge,
    fixes=FIXES,
    verify="record again: kernel names say tf32 or s1688.",
    doc=__doc__,
    also=(Sign(("engine_event",), ("engine-log",), LOG_SQL, Warned, judge_log),),
)
