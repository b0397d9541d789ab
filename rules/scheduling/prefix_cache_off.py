"""Prompts begin alike and every one is computed from its first token: the prefix cache is off.

What happens: system prompts, documents and earlier turns come again with each request. With a prefix cache their keys and values are
computed once; without it they cost as much as the first time, and the first token waits for them.

How it is detected: the log or the configuration says that prefix caching is off, and prompts share at least 30 % of their tokens (told
by the requests themselves or by the benchmark's setting); or a table of two runs, with and without it, that differ by at
least a tenth. Where nothing tells what prompts share, switched-off caching is mentioned as a note.

When it is not this: prompts that share nothing have nothing to keep. A cache that is on and finds nothing is
`prefix-below-block` or `prefix-miss`.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict

ABOUT = About(
    id="prefix-cache-off",
    title="The prefix cache is switched off",
    stage=Stage.SPECIFIC,
    reads=("prefix_use",),
    needs=("engine-log", "engine-config", "bench-table"),
)

THRESHOLDS = {
    "min_share": Threshold(0.3, "share of prompt tokens", source="rule of thumb: a third of the prefill"),
    "min_ratio": Threshold(1.1, "x", source="0xBakeer/qwen38-flash-next-spark#9: 1.76 between off and on"),
}

SQL = """
SELECT engine, shared_prefix_count, prompt_token_count, shared_prefix_count / nullif(prompt_token_count, 0) AS shared_share
FROM prefix_use WHERE is_off ORDER BY shared_share DESC NULLS LAST LIMIT 1
"""

TABLE_SQL = """
SELECT slow_told, fast_told, slow_hz, fast_hz, fast_hit_share, slow_ttft_ns, fast_ttft_ns FROM bench_comparison
WHERE regexp_matches(word, 'prefix|cache') AND regexp_matches(slow_told, '^(off|false|0|no|none|disabled)$') AND slow_hz IS NOT NULL
ORDER BY fast_hz / slow_hz DESC LIMIT 1
"""


class SwitchedOff(NamedTuple):
    """An engine without prefix caching and what its prompts share."""

    engine: str
    shared_prefix_count: float | None
    prompt_token_count: float | None
    shared_share: float | None


class OffAndOn(NamedTuple):
    """Two runs, without and with."""

    slow_told: str
    fast_told: str
    slow_hz: float
    fast_hz: float
    fast_hit_share: float | None
    slow_ttft_ns: int | None
    fast_ttft_ns: int | None


def judge(row: SwitchedOff) -> Verdict:
    """Off, and something to keep."""
    if row.shared_share is None:
        return Finding(
            summary="prefix caching is off; what prompts have in common is not known from this evidence",
            evidence=(Evidence("prefix caching", "off", ""),),
            severity=Severity.INFO,
            confidence=0.4,
        )
    if row.shared_share < THRESHOLDS["min_share"].value:
        return Cleared(f"prefix caching is off, but prompts share only {row.shared_share:.0%} of their tokens")
    return Finding(
        summary=f"prefix caching is off and prompts share {row.shared_share:.0%} of their tokens: {row.shared_prefix_count:.0f} of"
        f" {row.prompt_token_count:.0f} at the median",
        evidence=(
            Evidence("shared part of prompts", row.shared_share, "share of prompt tokens"),
            Evidence("shared prefix", row.shared_prefix_count or 0.0, "tokens"),
        ),
        severity=Severity.HIGH,
        confidence=0.85,
        speedup_bound=1 / max(1 - row.shared_share, 0.1),
    )


def judge_table(row: OffAndOn) -> Verdict:
    """The same load with caching is faster."""
    ratio = row.fast_hz / row.slow_hz
    if ratio < THRESHOLDS["min_ratio"].value:
        return None
    first = (
        f"; the first token after {row.fast_ttft_ns / 1e9:.2f} s in place of {row.slow_ttft_ns / 1e9:.2f} s"
        if row.fast_ttft_ns and row.slow_ttft_ns
        else ""
    )
    return Finding(
        summary=f"with prefix caching the same load runs {ratio:.2f} times as fast ({row.slow_hz:.1f} to {row.fast_hz:.1f} a second){first}",
        evidence=(
            Evidence("with caching against without", ratio, "x"),
            *(
                (Evidence("hits", row.fast_hit_share, "share of prompt tokens"),)
                if row.fast_hit_share is not None
                else ()
            ),
        ),
        severity=Severity.HIGH,
        confidence=0.9,
        speedup_bound=ratio,
        speedup_expected=ratio,
    )


FIXES = (
    Fix(
        "vllm",
        "drop --no-enable-prefix-caching (V1 has it on; V0 needs --enable-prefix-caching)",
        "blocks of earlier prompts are found by their hash",
        source="https://docs.vllm.ai/en/latest/features/automatic_prefix_caching.html (checked with 0.27 to 0.30)",
    ),
    Fix(
        "sglang",
        "drop --disable-radix-cache",
        "the radix tree keeps prefixes of any length",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html (checked with 0.5.9 to 0.5.18)",
    ),
    Fix(
        "tensorrt-llm",
        "kv_cache_config: {enable_block_reuse: true}",
        "the default: blocks of finished requests are used again",
        source="https://nvidia.github.io/TensorRT-LLM/features/kvcache.html (checked with 1.2 to 1.4.0rc)",
    ),
    Fix(
        "transformers",
        "pass past_key_values of the common prefix (a copied StaticCache or DynamicCache) to generate()",
        "the prefix is computed once",
        source="https://huggingface.co/docs/transformers/kv_cache (checked with 5)",
    ),
    Fix(
        "engine",
        "--prefix-caching",
        "equal beginnings are computed once",
        source="python -m engine bench --help",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=SwitchedOff,
    judge=judge,
    fixes=FIXES,
    verify="the hit rate is near the shared part of the prompts, and the time to the first token falls by as much.",
    doc=__doc__,
    also=(Sign(("bench_comparison",), ("bench-table",), TABLE_SQL, OffAndOn, judge_table),),
)
