"""The prefix cache is on and finds far less than the prompts have in common.

What happens: a time stamp or a user's name at the top of the prompt, a balancer that sends the turns of one conversation to different
replicas, or a pool so full that prefixes are thrown out before they come again: the tokens are the same, and they are computed
again.

How it is detected: of the tokens that prompts share in whole blocks, less than half is found; where the length of prompts is not known,
nothing is found although they share a block and more, or would, did not something that differs stand before it; or a table of two runs under the same load
that differ in routing only, of which the one with fewer hits, or without affinity, is slower by at least a tenth.

When it is not this: prompts that share nothing find nothing. Prefixes shorter than a block are `prefix-below-block`; a cache that is
off is `prefix-cache-off`. The first request of each prefix always misses.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict

ABOUT = About(
    id="prefix-miss",
    title="The prefix cache misses what prompts share",
    stage=Stage.SPECIFIC,
    reads=("prefix_use",),
    needs=("metrics", "engine-log", "bench-table"),
)

THRESHOLDS = {
    "max_found": Threshold(0.5, "of what could be found", source="rule of thumb: half of the gain is lost"),
    "min_possible": Threshold(0.1, "share of prompt tokens", source="rule of thumb: less is not worth the search"),
    "min_asked": Threshold(1000, "tokens", source="a few short prompts prove nothing"),
    "min_ratio": Threshold(
        1.1, "x", source="sgl-project/sglang PR#31170: 5.47 to 7.88 requests a second with affinity"
    ),
}

SQL = """
SELECT use.engine, hit_share, possible_share, shared_prefix_count, prompt_token_count, block_count,
    (SELECT kv_median_share FROM engine_queue WHERE engine_queue.engine = use.engine) AS kv_median_share,
    (SELECT count(DISTINCT replica_id) FROM engine_load WHERE engine_load.engine = use.engine) AS replica_count,
    EXISTS (SELECT 1 FROM bench_row WHERE tool = 'prompts-behind') AS is_behind
FROM prefix_use AS use
WHERE NOT is_off AND hit_share IS NOT NULL AND (possible_share >= $min_possible
    OR (possible_share IS NULL AND hit_share = 0 AND shared_prefix_count >= block_count AND (asked_count >= $min_asked OR is_told)))
ORDER BY possible_share - hit_share DESC NULLS LAST LIMIT 1
"""

TABLE_SQL = """
SELECT slow_told, fast_told, slow_hz, fast_hz, slow_hit_share, fast_hit_share FROM bench_comparison
WHERE regexp_matches(word, 'policy|balanc|routing|router|parallel|scheduler|mode|variant|config') AND slow_hz IS NOT NULL
    AND (regexp_matches(fast_told, 'affinity|cache.?aware|prefix|sticky|consistent') OR (fast_hit_share > 2 * slow_hit_share AND fast_hit_share > 0.1))
    AND NOT regexp_matches(slow_told, 'affinity|cache.?aware|prefix|sticky|consistent')
ORDER BY fast_hz / slow_hz DESC LIMIT 1
"""


class Missed(NamedTuple):
    """What was found and what could have been."""

    engine: str
    hit_share: float
    possible_share: float | None
    shared_prefix_count: float
    prompt_token_count: float | None
    block_count: float | None
    kv_median_share: float | None
    replica_count: int
    is_behind: bool


class Routed(NamedTuple):
    """Two ways to spread the same requests."""

    slow_told: str
    fast_told: str
    slow_hz: float
    fast_hz: float
    slow_hit_share: float | None
    fast_hit_share: float | None


def nothing_found(row: Missed) -> Finding:
    """Whole blocks are shared and none is found; how much of a prompt that is, nobody told."""
    where = ", but behind a part that differs from prompt to prompt" if row.is_behind else ""
    return Finding(
        summary=f"the prefix cache finds nothing, and prompts share {row.shared_prefix_count:,.0f} tokens where a block holds"
        f" {row.block_count or 0:.0f}{where}",
        evidence=(
            Evidence("found", row.hit_share, "share of prompt tokens"),
            Evidence("shared prefix", row.shared_prefix_count, "tokens"),
        ),
        severity=Severity.MEDIUM,
        confidence=0.8 if row.is_behind else 0.6,
    )


def judge(row: Missed) -> Verdict:
    """Less than half of what whole blocks could give."""
    if row.hit_share == 0 and row.block_count is not None and row.shared_prefix_count < row.block_count:
        return None
    if row.possible_share is None:
        return nothing_found(row)
    found = row.hit_share / row.possible_share
    if found >= THRESHOLDS["max_found"].value:
        return Cleared(
            f"the prefix cache finds {row.hit_share:.0%} of the prompt tokens, of {row.possible_share:.0%} that are shared"
        )
    why = (
        f"; the KV cache is {row.kv_median_share:.0%} full, so prefixes are thrown out"
        if (row.kv_median_share or 0) >= 0.9
        else f"; {row.replica_count} replicas each keep their own"
        if row.replica_count > 1
        else ""
    )
    lost = row.possible_share - row.hit_share
    return Finding(
        summary=f"the prefix cache finds {row.hit_share:.0%} of the prompt tokens, prompts share {row.possible_share:.0%}{why}",
        evidence=(
            Evidence("found", row.hit_share, "share of prompt tokens"),
            Evidence("could be found", row.possible_share, "share of prompt tokens"),
            Evidence("shared prefix", row.shared_prefix_count, "tokens at the median"),
        ),
        severity=Severity.HIGH if lost >= 0.3 else Severity.MEDIUM,
        confidence=0.75,
        speedup_bound=(1 - row.hit_share) / max(1 - row.possible_share, 0.1),
    )


def judge_table(row: Routed) -> Verdict:
    """The same requests, spread otherwise, are served faster."""
    ratio = row.fast_hz / row.slow_hz
    if ratio < THRESHOLDS["min_ratio"].value:
        return None
    hits = (
        f": {row.fast_hit_share:.0%} of the prompt tokens are found in place of {row.slow_hit_share:.0%}"
        if row.fast_hit_share is not None and row.slow_hit_share is not None
        else ""
    )
    return Finding(
        summary=f"routing by {row.fast_told} serves {row.fast_hz:.2f} a second, by {row.slow_told} {row.slow_hz:.2f}{hits}",
        evidence=(Evidence("routing that keeps prefixes together against the other", ratio, "x"),),
        severity=Severity.HIGH,
        confidence=0.8,
        speedup_bound=ratio,
        speedup_expected=ratio,
    )


FIXES = (
    Fix(
        "system",
        "stable text first, time stamps and names last; route by prefix or conversation (SGLang router cache_aware, a consistent hash)"
        " with a guard against overload",
        "the same tokens at the same place, on the replica that has them",
        source="https://github.com/sgl-project/sglang/pull/31170",
    ),
    Fix(
        "vllm",
        "more KV blocks (--gpu-memory-utilization, --kv-cache-dtype fp8); a host tier: --kv-offloading-size",
        "prefixes stay until they come again",
        source="https://docs.vllm.ai/en/latest/features/automatic_prefix_caching.html (checked with 0.27 to 0.30)",
    ),
    Fix(
        "sglang",
        "--schedule-policy lpm; --enable-hierarchical-cache",
        "requests with a known prefix first; evicted prefixes stay in host memory",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html (checked with 0.5.9 to 0.5.18)",
    ),
    Fix(
        "tensorrt-llm",
        "kv_cache_config: {host_cache_size: 45000000000}",
        "evicted blocks stay in host memory",
        source="https://nvidia.github.io/TensorRT-LLM/features/kvcache.html (checked with 1.2 to 1.4.0rc)",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Missed,
    judge=judge,
    fixes=FIXES,
    verify="hits over look-ups come near the shared part of the prompts.",
    doc=__doc__,
    also=(Sign(("bench_comparison",), ("bench-table",), TABLE_SQL, Routed, judge_table),),
)
