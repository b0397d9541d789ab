"""Grammar masks are computed on the CPU while the device waits: structured output slows every step.

What happens: to force JSON or a regular expression an engine works out, for each sequence and each step, which tokens may come
next. That is CPU work between two steps. A slow backend, a new schema in every request or too few cores make it longer than
the step itself, for all sequences of the batch.

How it is detected: a table of two runs under the same load that differ in structured output only: the time a token with it is at
least 1.3 times that without.

When it is not this: a container at its CPU quota shows the same: `cpu-quota-throttle`, which a control group's counters tell
apart. Guided answers are often shorter: compare the time a token, not the time a request. Two runs at different concurrency
prove nothing.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict

ABOUT = About(
    id="guided-decode-cpu",
    title="Grammar masks hold up the steps",
    stage=Stage.SPECIFIC,
    reads=("bench_comparison",),
    needs=("bench-table",),
)

THRESHOLDS = {
    "min_ratio": Threshold(
        1.3, "x the time a token", source="rule of thumb: masks that overlap the step cost under a tenth"
    ),
    "grave_ratio": Threshold(
        2, "x the time a token", source="vllm-project/vllm#49460: 10 x with a starved thread pool"
    ),
    "max_throttled": Threshold(0.1, "share of periods", source="vllm-project/vllm#49460: the quota, not the grammar"),
}

SQL = """
SELECT slow_told, fast_told, word, load_count, coalesce(slow_tpot_ns::DOUBLE / fast_tpot_ns, fast_hz / slow_hz) AS ratio, slow_tpot_ns, fast_tpot_ns,
    (SELECT max(told) FROM engine_choice WHERE setting = 'grammar_backend') AS backend,
    (SELECT (max(throttled_count) - CASE WHEN count(*) > 1 THEN min(throttled_count) ELSE 0 END)::DOUBLE
        / nullif(max(period_count) - CASE WHEN count(*) > 1 THEN min(period_count) ELSE 0 END, 0) FROM cgroup_cpu) AS throttled_share
FROM bench_comparison
WHERE regexp_matches(word, 'guided|structured|grammar|schema') OR regexp_matches(slow_told, 'guided|json|grammar|structured|regex')
ORDER BY ratio DESC NULLS LAST LIMIT 1
"""


class GuidedAndFree(NamedTuple):
    """Two runs, with and without structured output."""

    slow_told: str
    fast_told: str
    word: str
    load_count: float | None
    ratio: float | None
    slow_tpot_ns: int | None
    fast_tpot_ns: int | None
    backend: str | None
    throttled_share: float | None


def judge(row: GuidedAndFree) -> Verdict:
    """Slower by more than masks need to be, and no quota explains it."""
    if row.ratio is None or row.ratio < THRESHOLDS["min_ratio"].value:
        return None
    if (row.throttled_share or 0) >= THRESHOLDS["max_throttled"].value:
        return Cleared(
            f"structured output costs {row.ratio:.1f} times the time a token, but the container is stopped at its CPU quota in"
            f" {row.throttled_share:.0%} of the periods"
        )
    times = (
        f": {row.slow_tpot_ns / 1e6:.1f} against {row.fast_tpot_ns / 1e6:.1f} ms a token"
        if row.slow_tpot_ns and row.fast_tpot_ns
        else ""
    )
    return Finding(
        summary=f"with structured output ({row.slow_told}) a token takes {row.ratio:.1f} times as long as without ({row.fast_told}) at the same"
        f" load{times}",
        evidence=(
            Evidence("time a token, guided against free", row.ratio, "x"),
            *((Evidence("at a load of", row.load_count, "requests"),) if row.load_count else ()),
            *((Evidence("grammar backend", row.backend, ""),) if row.backend else ()),
        ),
        severity=Severity.HIGH if row.ratio >= THRESHOLDS["grave_ratio"].value else Severity.MEDIUM,
        confidence=0.7 if row.throttled_share is None else 0.85,
        speedup_bound=row.ratio,
    )


FIXES = (
    Fix(
        "vllm",
        "--structured-outputs-config.backend xgrammar or guidance (before 0.12 --guided-decoding-backend); fewer distinct schemas;"
        " OMP_NUM_THREADS = CPU limit; VLLM_STRUCTURED_OUTPUT_MAX_COMPILE_WORKERS",
        "compiled grammars are kept, and masks are filled while the device works",
        source="https://docs.vllm.ai/en/latest/features/structured_outputs.html (checked with 0.27 to 0.30)",
    ),
    Fix(
        "sglang",
        "--grammar-backend xgrammar or llguidance",
        "masks overlap the step; outlines does not",
        source="https://docs.sglang.ai/advanced_features/structured_outputs.html (checked with 0.5.9 to 0.5.18)",
    ),
    Fix(
        "tensorrt-llm",
        "guided_decoding_backend: xgrammar",
        "the grammar matcher runs beside the step",
        source="https://nvidia.github.io/TensorRT-LLM/features/guided-decoding.html (checked with 1.2 to 1.4.0rc)",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=GuidedAndFree,
    judge=judge,
    fixes=FIXES,
    verify="change one thing and run both again: the time a token with structured output is within 1.1 of that without.",
    doc=__doc__,
)
