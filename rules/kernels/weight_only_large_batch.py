"""Four-bit weights at a large batch: unpacking costs more than the bytes it saves.

What happens: weight-only quantisation (AWQ, GPTQ, W4A16) halves or quarters the weights that each step reads, and multiplies in 16
bits. With few rows reading is all that counts and it wins. With many rows arithmetic counts, and every weight is unpacked for
each tile: the same model in 16 or 8 bits is faster.

How it is detected: a table of two runs under the same load in which 16-bit or 8-bit arithmetic beats weight-only quantisation by
at least a tenth, at the largest load that both were run at: at least 16 sequences, unless the same method wins at a smaller load. Without a table, a log with weight-only quantisation and at least
128 running requests at the median is mentioned with little confidence.

When it is not this: at small batches the same kernels are the fastest. Old kernels that are slow at every batch are
`quant-kernel-legacy`. A model that does not fit in 16 bits has no choice: the memory is what was bought.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict

ABOUT = About(
    id="weight-only-large-batch",
    title="Weight-only quantisation at a large batch",
    stage=Stage.SPECIFIC,
    reads=("bench_comparison",),
    needs=("bench-table",),
)

THRESHOLDS = {
    "min_ratio": Threshold(1.1, "x", source="rule of thumb: less is noise of a benchmark"),
    "min_load": Threshold(
        16, "sequences", source="Marlin, as below: nothing is lost up to here, so the kernel is slow"
    ),
    "kernel_ratio": Threshold(1.5, "x", source="as quant-kernel-legacy: another kernel for the same weights"),
    "min_batch": Threshold(
        128, "rows", source="Marlin, Frantar et al. 2024: near-ideal up to 16 to 32 rows, even at about 128"
    ),
}

_WEIGHT_ONLY = "'awq|gptq|int4|w4a16|4.?bit|marlin'"
_WIDE = "'bf16|fp16|bfloat16|float16|none|16.?bit|fp8|int8|w8a8'"
SQL = f"""
WITH measured AS (
    SELECT *, regexp_matches(slow_told, {_WEIGHT_ONLY}) AND NOT regexp_matches(slow_told, 'w4a8') AND regexp_matches(fast_told, {_WIDE}) AS is_beaten,
        regexp_matches(fast_told, {_WEIGHT_ONLY}) AND NOT regexp_matches(fast_told, 'w4a8') AND regexp_matches(slow_told, {_WIDE}) AS is_ahead,
        regexp_matches(fast_told, 'marlin|machete') AND NOT regexp_matches(slow_told, 'marlin|machete') AS is_faster_kernel
    FROM bench_comparison
    WHERE regexp_matches(word, 'quant|weight|precision|dtype|variant|config|label|kernel') AND slow_hz IS NOT NULL
),
small AS (
    SELECT source_id, fast_told AS method, load_count, fast_hz / slow_hz AS gain_small FROM measured WHERE is_ahead
),
run AS (
    SELECT slow_told, fast_told, load_count, fast_hz / slow_hz AS ratio,
        (SELECT max(small.gain_small) FROM small WHERE small.source_id = measured.source_id AND method = slow_told
            AND small.load_count < measured.load_count) AS gain_small,
        EXISTS (SELECT 1 FROM measured AS slow WHERE slow.source_id = measured.source_id AND slow.slow_told = measured.slow_told
            AND (slow.is_beaten AND slow.load_count < $min_load OR slow.is_faster_kernel AND slow.fast_hz > $kernel_ratio * slow.slow_hz)) AS is_slow_kernel
    FROM measured WHERE is_beaten
)
SELECT slow_told, fast_told, load_count, ratio, gain_small FROM run
WHERE gain_small > 1 OR (NOT is_slow_kernel AND (load_count IS NULL OR load_count >= $min_load))
ORDER BY load_count DESC NULLS LAST, ratio DESC LIMIT 1
"""

LOG_SQL = """
SELECT running_median_count, told FROM engine_queue JOIN engine_choice USING (engine)
WHERE setting = 'quantisation' AND regexp_matches(told, '^(awq|gptq|awq_marlin|gptq_marlin|marlin|w4a16.*|compressed_tensors_w4a16)$')
    AND running_median_count >= $min_batch
LIMIT 1
"""


class Crossover(NamedTuple):
    """The largest load at which weight-only quantisation was beaten."""

    slow_told: str
    fast_told: str
    load_count: float | None
    ratio: float
    gain_small: float | None


class LargeBatch(NamedTuple):
    """Weight-only quantisation and how many run."""

    running: float
    method: str


def judge(row: Crossover) -> Verdict:
    """Beaten by a tenth."""
    if row.ratio < THRESHOLDS["min_ratio"].value:
        return None
    at = f" at {row.load_count:.0f} at a time" if row.load_count else ""
    wins = f"; at small batches it is {row.gain_small:.1f} times as fast" if (row.gain_small or 0) > 1 else ""
    return Finding(
        summary=f"{row.fast_told} is {row.ratio:.2f} times as fast as {row.slow_told}{at}{wins}",
        evidence=(
            Evidence("other precision against weight-only", row.ratio, "x"),
            *((Evidence("at a load of", row.load_count, "sequences"),) if row.load_count else ()),
        ),
        severity=Severity.MEDIUM,
        confidence=0.8,
        speedup_bound=row.ratio,
        speedup_expected=row.ratio,
    )


def judge_log(row: LargeBatch) -> Verdict:
    """Nobody compared; the batch alone says that it may be so."""
    return Finding(
        summary=f"{row.method} weights with {row.running:.0f} running requests at the median: past about 128 rows unpacking can cost more than it"
        f" saves",
        evidence=(
            Evidence("requests running", row.running, "requests at the median"),
            Evidence("quantisation", row.method, ""),
        ),
        severity=Severity.LOW,
        confidence=0.35,
    )


FIXES = (
    Fix(
        "vllm",
        "an FP8 (from compute capability 8.9) or INT8 W8A8 checkpoint; or 16 bits where it fits; compare with `vllm bench serve`",
        "the matrix units multiply what is stored",
        source="https://docs.vllm.ai/en/latest/features/quantization/ (checked with 0.27 to 0.30)",
    ),
    Fix(
        "sglang",
        "--quantization fp8 or w8a8_int8 with a checkpoint of that kind",
        "the matrix units multiply what is stored",
        source="https://docs.sglang.ai/advanced_features/quantization.html (checked with 0.5.9 to 0.5.18)",
    ),
    Fix(
        "tensorrt-llm",
        "QuantConfig(quant_algo=QuantAlgo.FP8) or W4A8_AWQ",
        "8-bit arithmetic under 4-bit or 8-bit weights",
        source="https://nvidia.github.io/TensorRT-LLM/features/quantization.html (checked with 1.2 to 1.4.0rc)",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Crossover,
    judge=judge,
    fixes=FIXES,
    verify="a table of throughput by batch for both: no batch that is served falls behind.",
    doc=__doc__,
    also=(Sign(("engine_queue", "engine_choice"), ("engine-log",), LOG_SQL, LargeBatch, judge_log),),
)
