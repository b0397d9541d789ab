"""What prompts have in common is shorter than a KV block, so the prefix cache never finds anything.

What happens: a prefix cache keeps whole blocks. Models that mix attention with state-space layers need blocks of hundreds or thousands of
tokens, and a system prompt of 240 tokens never fills one: every look-up fails, on a cache that is on and works.

How it is detected: prefix caching is on and was asked, not one token was found, and the common prefix of the prompts is shorter than a
block. Where the length of the prefix is not known and the block is unusually large, the finding says that it is this or prompts
without anything in common.

When it is not this: prefixes longer than a block that are not found are `prefix-miss`. A cache that is off is `prefix-cache-off`.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict

ABOUT = About(
    id="prefix-below-block",
    title="Common prefixes are shorter than a KV block",
    stage=Stage.SPECIFIC,
    reads=("prefix_use",),
    needs=("metrics", "engine-log", "engine-config"),
)

THRESHOLDS = {
    "min_asked": Threshold(1000, "tokens", source="a few short prompts prove nothing"),
    "large_block": Threshold(128, "tokens", source="vllm-project/vllm#54607 and #53749: blocks of 784 and 2,096"),
    "min_samples": Threshold(3, "lines", source="fewer lines are a moment, not a state"),
}

SQL = """
SELECT engine, asked_count, found_count, hit_share, hit_max_share, hit_sample_count, block_count, is_block_known, is_told, shared_prefix_count,
    (SELECT max(prompt_token_hz) FROM engine_load AS load WHERE load.engine = prefix_use.engine) AS prompt_token_hz
FROM prefix_use
WHERE NOT is_off AND (asked_count >= $min_asked OR hit_sample_count >= $min_samples OR is_told)
ORDER BY block_count DESC NULLS LAST LIMIT 1
"""


class Hits(NamedTuple):
    """Look-ups of the prefix cache, and the length of a block."""

    engine: str
    asked_count: float | None
    found_count: float | None
    hit_share: float | None
    hit_max_share: float | None
    hit_sample_count: int
    block_count: float | None
    is_block_known: bool
    is_told: bool
    shared_prefix_count: float | None
    prompt_token_hz: float | None


def judge(row: Hits) -> Verdict:
    """Asked, nothing found, and no block could be filled."""
    found_nothing = row.found_count == 0 if row.found_count is not None else (row.hit_max_share or 0) == 0
    was_asked = (row.asked_count or 0) > 0 or (row.prompt_token_hz or 0) > 0 or row.is_told
    if not found_nothing or not was_asked or row.block_count is None:
        return None
    asked = f"{row.asked_count:,.0f} tokens were looked up" if row.asked_count else "prompts were looked up"
    evidence = (
        *((Evidence("looked up", row.asked_count, "tokens"),) if row.asked_count else ()),
        Evidence("found", 0.0, "tokens"),
        Evidence("KV block", row.block_count, "tokens"),
        *(
            (Evidence("common prefix", row.shared_prefix_count, "tokens"),)
            if row.shared_prefix_count is not None
            else ()
        ),
    )
    if row.shared_prefix_count is None:
        if not row.is_block_known or row.block_count < THRESHOLDS["large_block"].value:
            return None  # most prompts that find nothing have nothing in common
        return Finding(
            summary=f"{asked} in the prefix cache and none was found: prompts share less than a block of {row.block_count:.0f} tokens, or nothing",
            evidence=evidence,
            severity=Severity.MEDIUM,
            confidence=0.55,
        )
    if row.shared_prefix_count >= row.block_count or row.shared_prefix_count < 1:
        return None
    return Finding(
        summary=f"{asked} in the prefix cache and none was found: prompts share {row.shared_prefix_count:.0f} tokens, a block holds"
        f" {row.block_count:.0f}",
        evidence=evidence,
        severity=Severity.MEDIUM,
        confidence=0.7 if row.is_told else 0.9,
    )


FIXES = (
    Fix(
        "vllm",
        "a longer common prefix (put what all requests share first); --block-size where the model leaves a choice (its log says"
        " `Setting attention block size to N tokens`); --mamba-cache-mode align on hybrid models",
        "at least one whole block is shared",
        source="https://docs.vllm.ai/en/latest/features/automatic_prefix_caching.html (checked with 0.27 to 0.30)",
    ),
    Fix(
        "sglang",
        "--page-size 1 where the attention backend allows it",
        "prefixes are kept token by token",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html (checked with 0.5.9 to 0.5.18)",
    ),
    Fix(
        "tensorrt-llm",
        "kv_cache_config: {tokens_per_block: 32} in place of 64 or 128",
        "smaller blocks fill sooner",
        source="https://nvidia.github.io/TensorRT-LLM/features/kvcache.html (checked with 1.2 to 1.4.0rc)",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Hits,
    judge=judge,
    fixes=FIXES,
    verify="the counter of hits grows: vllm:prefix_cache_hits_total, #cached-token.",
    doc=__doc__,
)
