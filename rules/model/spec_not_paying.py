"""Speculative decoding costs more than it gives.

What happens: a draft of k tokens is made and verified in one step of the target model. Each step then gives L tokens, the accepted ones and
one of its own. Drafting takes time for each of the k tokens whether they are accepted or not; verifying k + 1 rows in place of
one is free only as long as the device has arithmetic to spare.

How it is detected: from the mean acceptance length L and the draft length k. With c, the time of one drafted token in steps of
the target, the gain is s = L / (v + k c); it is found where s is under 1.05, or where at least four tokens are drafted for
each one accepted. c is 0.07 unless the method says otherwise; v, the cost of verifying, grows with the batch. Or: a table
in which fewer drafted tokens, or none, are faster by at least a tenth.
Drafts of changing length may also keep the steps that verify them out of CUDA graphs. A log that counts replayed steps
says so, and then the bound is that of launch-bound steps: how much slower than replayed ones these are, no log tells.
A time-line without a log shows two models that take turns, and how much of the time is the smaller one's; whether that pays it cannot
tell, and it asks.

When it is not this: acceptance rates of two engines do not mean the same and are not used. A low rate with a long draft may still
pay: the length decides. At a batch of one with L of two and more it nearly always pays.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict, Where

ABOUT = About(
    id="spec-not-paying",
    title="Speculation costs more than it gives",
    stage=Stage.SPECIFIC,
    reads=("speculation",),
    needs=("engine-log", "metrics"),
)

THRESHOLDS = {
    "min_gain": Threshold(1.05, "x", source="rule of thumb: less is within the noise of a comparison"),
    "max_drafted_per_accepted": Threshold(
        4, "tokens", source="vllm-project/vllm PR#24343: 27 drafted an accepted one at half of the speed of 1.6"
    ),
    "draft_cost": Threshold(
        0.07,
        "steps a drafted token",
        source="vllm-project/vllm PR#24343: 48.3 and 108.5 tokens a second at k = 32 and 1",
    ),
    "free_rows": Threshold(
        256, "rows", source="bf16 rate over memory rate by data sheet: 153 (A100) to 295 (H100) rows"
    ),
    "eager_step": Threshold(
        10, "x a replayed step", source="samples/engine-eager-decode: 7.3 to 12.5; small models, where it is most"
    ),
    "most_promised": Threshold(3, "x", source="the cost of verifying is an estimate"),
    "min_ratio": Threshold(1.1, "x", source="rule of thumb: less is within the noise of a comparison"),
    "min_draft_share": Threshold(
        0.05, "share of the window", source="less is not measurable; own H200 recordings: 0.28, 1.7x as fast without"
    ),
}

SQL = """
SELECT speculation.engine, accept_length_count, spec_tokens_count, method, drafted_count, accepted_count, running_median_count,
    CASE WHEN (SELECT max(told_count) FROM engine_choice WHERE setting = 'spec_branches') > 1
        THEN (SELECT max(told_count) FROM engine_choice WHERE setting = 'spec_steps') END AS tree_steps,
    (SELECT sum(drafted_count * (1 - graph_share)) / sum(drafted_count) FROM engine_load
        WHERE engine_load.engine = speculation.engine AND drafted_count > 0 AND graph_share IS NOT NULL) AS eager_share
FROM speculation LEFT JOIN engine_queue USING (engine)
WHERE accept_length_count IS NOT NULL AND spec_tokens_count > 0
ORDER BY spec_tokens_count / greatest(accept_length_count - 1, 0.01) DESC LIMIT 1
"""

COUNTED_SQL = """
WITH run AS (
    SELECT max(reading) FILTER (counted = 'drafted') AS drafted_count, max(reading) FILTER (counted = 'accepted') AS accepted_count,
        max(reading) FILTER (counted = 'verifications') AS verify_count, max(reading) FILTER (counted = 'decode_tokens_per_step') AS step_tokens
    FROM bench_count GROUP BY source_id, row_id
)
SELECT 'engine' AS engine, 1 + accepted_count / verify_count AS accept_length_count, drafted_count / verify_count AS spec_tokens_count,
    NULL::TEXT AS method, drafted_count, accepted_count, step_tokens / (1 + drafted_count / verify_count) AS running_count, 1 AS branches,
    NULL::DOUBLE AS eager_share
FROM run WHERE verify_count > 0 AND drafted_count > 0 ORDER BY drafted_count DESC LIMIT 1
"""

TABLE_SQL = """
WITH run AS (
    SELECT source_id, row_id, coalesce(draft_token_count, 0) AS drafted, coalesce(output_token_hz, total_token_hz, request_hz) AS rate_hz,
        coalesce(batch_count, concurrency_count) AS load_count, accept_length_count, tool, condition, tensor_parallel_count, request_rate_hz
    FROM bench_row
)
SELECT slow.drafted AS slow_drafted, fast.drafted AS fast_drafted, slow.rate_hz AS slow_hz, fast.rate_hz AS fast_hz, slow.load_count, slow.accept_length_count
FROM run AS slow JOIN run AS fast USING (source_id, tool)
WHERE slow.load_count IS NOT DISTINCT FROM fast.load_count AND slow.request_rate_hz IS NOT DISTINCT FROM fast.request_rate_hz
    AND slow.condition IS NOT DISTINCT FROM fast.condition AND slow.tensor_parallel_count IS NOT DISTINCT FROM fast.tensor_parallel_count AND slow.drafted > fast.drafted AND slow.rate_hz < fast.rate_hz
ORDER BY fast.rate_hz / slow.rate_hz DESC LIMIT 1
"""


TURNS_SQL = """
SELECT draft_layer_count, draft_pass_count, draft_ns, target_layer_count, target_pass_count, first_start_ns, first_end_ns,
    until_ns - from_ns AS window_ns, EXISTS (SELECT 1 FROM speculation WHERE accept_length_count IS NOT NULL) AS is_told
FROM draft_pass, steady_window ORDER BY draft_ns DESC LIMIT 1
"""


class Turns(NamedTuple):
    """Passes of a small and a large model in one time-line; layers are told by attention kernels."""

    draft_layer_count: int
    draft_pass_count: int
    draft_ns: int
    target_layer_count: int
    target_pass_count: int
    first_start_ns: int
    first_end_ns: int
    window_ns: int
    is_told: bool


class Acceptance(NamedTuple):
    """How long accepted drafts are."""

    engine: str
    accept_length: float
    spec_tokens: float
    method: str | None
    drafted_count: float | None
    accepted_count: float | None
    running_median: float | None
    tree_steps: float | None
    eager_share: float | None


class Drafts(NamedTuple):
    """Two runs of the same load with drafts of different length."""

    slow_drafted: float
    fast_drafted: float
    slow_hz: float
    fast_hz: float
    load_count: float | None
    accept_length: float | None


COST_OF_METHOD = {
    "ngram": 0.02,
    "suffix": 0.02,
    "mtp": 0.07,
    "nextn": 0.07,
    "eagle": 0.07,
    "eagle3": 0.07,
    "medusa": 0.03,
}


def gain(length: float, tokens: float, drafting: float, running: float) -> float:
    """Tokens a unit of time against plain decoding; `drafting` is the time of the draft in steps of the target."""
    rows = running * (tokens + 1)
    verifying = max(1.0, rows / max(THRESHOLDS["free_rows"].value, running))
    return length / (verifying + drafting)


def judge(row: Acceptance) -> Verdict:
    """No gain, or four drafted for one accepted."""
    cost = COST_OF_METHOD.get(row.method or "", THRESHOLDS["draft_cost"].value)
    running = row.running_median or 1.0
    depth = row.tree_steps or row.spec_tokens  # the branches of a tree are drafted side by side
    won = gain(row.accept_length, row.spec_tokens, depth * cost, running)
    wasted = depth / max(row.accept_length - 1, 0.01)
    numbers = f"{row.spec_tokens:.0f} tokens are drafted, a step gives {row.accept_length:.2f}"
    if won >= THRESHOLDS["min_gain"].value and wasted < THRESHOLDS["max_drafted_per_accepted"].value:
        return Cleared(f"{numbers}: about {won:.2f} times plain decoding")
    costs_more, wasteful = won < 1, wasted >= 2 * THRESHOLDS["max_drafted_per_accepted"].value
    least = won / slower_steps(row)
    told = f"about {won:.2f} times plain decoding"
    if row.eager_share:
        told = f"{least:.2g} to {won:.2g} times plain decoding, by how long steps outside CUDA graphs take: {row.eager_share:.0%} of those that draft"
    return Finding(
        summary=f"{numbers}: {wasted:.0f} drafted for each accepted one, {told}",
        evidence=(
            Evidence("acceptance length", row.accept_length, "tokens a step, the target's own included"),
            Evidence("drafted a step", row.spec_tokens, "tokens"),
            Evidence("drafted for each accepted", wasted, "tokens"),
            Evidence("against plain decoding, steps of equal length", won, "x, estimated"),
            *(
                (
                    Evidence("the same, steps without graphs ten times as long", least, "x, at least"),
                    Evidence("steps outside CUDA graphs while drafting", row.eager_share, "share of steps"),
                )
                if row.eager_share
                else ()
            ),
            *((Evidence("requests running", running, "requests at the median"),) if row.running_median else ()),
        ),
        severity=Severity.HIGH if costs_more or wasteful else Severity.MEDIUM,
        confidence=0.8 if wasteful or costs_more else 0.6,
        speedup_bound=min(1 / won, THRESHOLDS["most_promised"].value) * slower_steps(row) if costs_more else None,
    )


def slower_steps(row: Acceptance) -> float:
    """How much longer steps take at most because drafts keep them out of CUDA graphs."""
    return 1 + (THRESHOLDS["eager_step"].value - 1) * (row.eager_share or 0.0)


def judge_table(row: Drafts) -> Verdict:
    """Shorter drafts are faster."""
    ratio = row.fast_hz / row.slow_hz
    if ratio < THRESHOLDS["min_ratio"].value:
        return None
    other = f"{row.fast_drafted:.0f}" if row.fast_drafted else "none"
    return Finding(
        summary=f"{row.slow_drafted:.0f} drafted tokens give {row.slow_hz:.1f} tokens a second, {other} {row.fast_hz:.1f}",
        evidence=(
            Evidence("shorter drafts against longer", ratio, "x"),
            *((Evidence("acceptance length", row.accept_length, "tokens a step"),) if row.accept_length else ()),
        ),
        severity=Severity.HIGH if ratio >= 1.3 else Severity.MEDIUM,
        confidence=0.9,
        speedup_bound=ratio,
        speedup_expected=ratio,
    )


def judge_turns(row: Turns) -> Verdict:
    """A draft that takes a visible part of the window, and no word of what is accepted."""
    share = row.draft_ns / row.window_ns
    if row.is_told or share < THRESHOLDS["min_draft_share"].value:
        return None
    return Finding(
        summary=f"two models take turns: {row.draft_pass_count} passes with {row.draft_layer_count} attention kernels, {share:.0%} of the window,"
        f" between {row.target_pass_count} with {row.target_layer_count}; as a draft they pay only where its tokens are accepted, which no"
        " time-line tells",
        evidence=(
            Evidence("passes of the draft", share, "share of window", Where(row.first_start_ns, row.first_end_ns)),
            Evidence(
                "draft passes for each of the large model", row.draft_pass_count / row.target_pass_count, "passes"
            ),
        ),
        severity=Severity.LOW,  # prompts in equal pieces may look the same
        confidence=0.4,
        label="does the draft pay?",
        question="read the mean acceptance length from the server's log or metrics (give it beside the trace), or run the same load without the"
        " draft: the faster one stays.",
    )


FIXES = (
    Fix(
        "vllm",
        '--speculative-config \'{"method": ..., "num_speculative_tokens": 1}\' up to 5; "num_speculative_tokens_per_batch_size" to draft less at'
        " large batches",
        "the first drafted tokens are accepted most often",
        source="https://docs.vllm.ai/en/latest/features/spec_decode.html (checked with 0.27 to 0.30)",
    ),
    Fix(
        "sglang",
        "--speculative-num-steps 1 to 5 --speculative-eagle-topk 1 --speculative-num-draft-tokens steps + 1; --speculative-adaptive",
        "short drafts, shorter still when few are accepted",
        source="https://docs.sglang.ai/advanced_features/speculative_decoding.html (checked with 0.5.9 to 0.5.18)",
    ),
    Fix(
        "tensorrt-llm",
        "speculative_config: {max_draft_len: 3, max_concurrency: 32, acceptance_rate_threshold: 0.5}",
        "short drafts, and none above a batch",
        source="https://nvidia.github.io/TensorRT-LLM/features/speculative-decoding.html (checked with 1.2 to 1.4.0rc)",
    ),
    Fix(
        "transformers",
        "assistant_model.generation_config.num_assistant_tokens = 5, assistant_confidence_threshold = 0.4; or no assistant model",
        "drafting stops where the draft is unsure",
        source="https://huggingface.co/docs/transformers/assisted_decoding (checked with 5)",
    ),
    Fix(
        "engine",
        "drop --speculate",
        "each step gives one token, and nothing is thrown away",
        source="python -m engine bench --help",
    ),
    Fix(
        "engine",
        "--num-draft-tokens 2",
        "the first drafted tokens are accepted most often",
        source="python -m engine bench --help",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Acceptance,
    judge=judge,
    fixes=FIXES,
    verify="run the real load with and without speculation at its own concurrency: the faster one stays.",
    doc=__doc__,
    also=(
        Sign(("draft_pass",), ("nsys-report", "nsys-sqlite", "kineto"), TURNS_SQL, Turns, judge_turns),
        Sign(("bench_row",), ("bench-table",), TABLE_SQL, Drafts, judge_table),
        Sign(("bench_count",), ("bench-table",), COUNTED_SQL, Acceptance, judge),
    ),
)
