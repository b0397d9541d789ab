"""The longest sequence that the engine must serve does not fit into its KV cache, or hardly.

What happens: the length is taken from the model's configuration (32,768, 131,072 or more tokens) unless it is set. The engine must be
able to hold one such sequence; where the cache is smaller it refuses to start. Where it just fits, two long requests at a time already
wait for each other.

How it is detected: the engine says so, with both figures. Otherwise the ratio of the length to the tokens that the cache holds: over
one it cannot work, over a half fewer than two such requests fit.

When it is not this: memory that others hold makes the cache small: `foreign-gpu-process` is looked at first, and raising the share of
the device is then of no use. A cache that is small since weights fill the card: `weights-overcommit`.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict
from doctor.units import format_bytes

ABOUT = About(
    id="max-model-len-too-high",
    title="The longest sequence does not fit into the KV cache",
    stage=Stage.MEMORY,
    reads=("memory_refusal",),
    needs=("oom-text", "engine-log"),
)

THRESHOLDS = {
    "fail_ratio": Threshold(1.0, "x the tokens that the cache holds", source="bonito#7: 32,768 against 16,816"),
    "warn_ratio": Threshold(0.5, "x the tokens that the cache holds", source="fewer than two such requests at a time"),
}

SQL = """
SELECT model_length_count, kv_token_count, needed_bytes, available_bytes, fitting_length_count, short_bytes, is_shared, is_own_possible, foreign_bytes
FROM refusal WHERE refusal = 'model_length' ORDER BY source_id, line_id LIMIT 1
"""


class Refusal(NamedTuple):
    """A start that was refused for the length."""

    model_length_count: int
    kv_token_count: int | None
    needed_bytes: int | None
    available_bytes: int | None
    fitting_length_count: int | None
    short_bytes: int | None
    is_shared: bool
    is_own_possible: bool
    foreign_bytes: int


def fitting(row: Refusal) -> int:
    """Tokens of a sequence that fits, by the engine's word or by proportion."""
    if row.fitting_length_count or row.kv_token_count:
        return row.fitting_length_count or row.kv_token_count or 0
    if row.available_bytes and row.needed_bytes:
        return int(row.model_length_count * row.available_bytes / row.needed_bytes)
    return 0


def judge(row: Refusal) -> Verdict:
    """The engine's own figures, unless others took the room."""
    is_shared = row.is_shared and not row.is_own_possible
    if is_shared and (row.short_bytes is None or row.short_bytes <= row.foreign_bytes):
        return Cleared(
            f"{row.model_length_count:,} tokens do not fit, but other processes hold {format_bytes(row.foreign_bytes)}: the cache would be larger alone"
        )
    fits = fitting(row)
    have = (
        f"the cache holds {row.kv_token_count:,}"
        if row.kv_token_count
        else f"that needs {format_bytes(row.needed_bytes or 0)} and {format_bytes(row.available_bytes or 0)} are there"
    )
    settable = fits // 16 * 16
    return Finding(
        summary=f"sequences of {row.model_length_count:,} tokens are to be served and {have}",
        evidence=(
            Evidence("longest sequence", row.model_length_count, "tokens"),
            Evidence("tokens that fit", fits, "tokens"),
            Evidence("ratio", row.model_length_count / fits if fits else 0.0, "x"),
        ),
        severity=Severity.CRITICAL,
        bytes=row.short_bytes,
        confidence=0.95,
        fixes=FIXES
        if not settable
        else (Fix(FIXES[0].target, f"--max-model-len {settable}", FIXES[0].why, FIXES[0].source), *FIXES[1:]),
    )


FIGURE_SQL = """
SELECT coalesce(max(amount_count) FILTER (figure = 'max_model_len'), (SELECT max(told_count) FROM engine_choice WHERE setting = 'model_len'))
        AS model_length_count, max(amount_count) FILTER (figure = 'kv_tokens') AS kv_token_count
FROM engine_figure
WHERE NOT EXISTS (SELECT 1 FROM memory_refusal WHERE refusal = 'model_length')
GROUP BY source_id, replica_id HAVING kv_token_count > 0
ORDER BY kv_token_count LIMIT 1
"""


class Figures(NamedTuple):
    """What the engine says of its cache."""

    model_length_count: float | None
    kv_token_count: float


def judge_figures(row: Figures) -> Verdict:
    """Fewer than two of the longest requests fit."""
    if row.model_length_count is None:
        return None
    ratio = row.model_length_count / row.kv_token_count
    if ratio <= THRESHOLDS["warn_ratio"].value:
        return None
    is_failure = ratio > THRESHOLDS["fail_ratio"].value
    return Finding(
        summary=f"the cache holds {row.kv_token_count:,.0f} tokens, {1 / ratio:.2f} sequences of the {row.model_length_count:,.0f} that may be asked for",
        evidence=(
            Evidence("longest sequence", row.model_length_count, "tokens"),
            Evidence("tokens that the cache holds", row.kv_token_count, "tokens"),
            Evidence("ratio", ratio, "x"),
        ),
        severity=Severity.CRITICAL if is_failure else Severity.MEDIUM,
        confidence=0.9,
    )


FIXES = (
    Fix(
        "vllm",
        "--max-model-len N (or auto, from 0.14 on, which takes what fits)",
        "the engine need not hold more than is asked for",
        source="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html (checked on main of 2026)",
    ),
    Fix(
        "vllm",
        "--kv-cache-dtype fp8",
        "half the bytes a token",
        source="https://docs.vllm.ai/en/latest/features/quantization/quantized_kvcache.html",
    ),
    Fix(
        "sglang",
        "--context-length N; --kv-cache-dtype fp8_e4m3",
        "as above",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html (checked on main of 2026)",
    ),
    Fix(
        "tensorrt-llm",
        "max_seq_len: N; kv_cache_config: {dtype: fp8}",
        "as above",
        source="https://nvidia.github.io/TensorRT-LLM/features/kvcache.html (checked on llm_args.py of main)",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Refusal,
    judge=judge,
    fixes=FIXES,
    verify="the engine starts and logs a maximum concurrency of 2 or more.",
    doc=__doc__,
    also=(Sign(("engine_figure",), ("engine-log",), FIGURE_SQL, Figures, judge_figures),),
)
