"""Requests miss their target by the order they are served in, not for want of capacity.

What happens: first come, first served lets a batch of long, patient requests stand before a user who waits. The device has room, the mean
is fine, and the target is missed by those to whom it matters.

How it is detected: at least 5 % of requests are over their target (as a benchmark's goodput or share of late ones tells) while the KV
cache stays under 90 % and the policy is first come, first served.

When it is not this: with a full cache or a growing queue there is no capacity, and no order helps: `kv-pool-too-small`. Long prefills
between decode steps are `prefill-blocks-decode`.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict

ABOUT = About(
    id="sla-scheduling",
    title="Targets are missed by order, not by capacity",
    stage=Stage.OPPORTUNITY,
    reads=("bench_row", "engine_queue"),
    needs=("bench-table", "engine-log"),
)

THRESHOLDS = {
    "min_late": Threshold(0.05, "share of requests", source="rule of thumb: a usual target is the 95th percentile"),
    "max_kv": Threshold(0.9, "share of the KV cache", source="above it there is no room for anybody"),
}

SQL = """
SELECT late_share, ttft_p50_ns, ttft_p99_ns, kv_max_share, kv_median_share, waiting_median_count, running_median_count,
    coalesce((SELECT max(told) FROM engine_choice WHERE setting = 'policy'), 'fcfs') AS policy,
    coalesce((SELECT bool_or(told = 'true') FROM engine_choice WHERE setting = 'priority'), false) AS has_priority
FROM bench_row, engine_queue WHERE late_share IS NOT NULL
ORDER BY late_share DESC LIMIT 1
"""


class Late(NamedTuple):
    """Late requests and the room there was."""

    late_share: float
    ttft_p50_ns: int | None
    ttft_p99_ns: int | None
    kv_max_share: float | None
    kv_median_share: float | None
    waiting_median: float | None
    running_median: float | None
    policy: str
    has_priority: bool


def judge(row: Late) -> Verdict:
    """Late, with room, and no order but that of arrival."""
    if row.late_share < THRESHOLDS["min_late"].value or row.kv_max_share is None:
        return None
    if row.has_priority or "priority" in row.policy or "deadline" in row.policy:
        return None
    if row.kv_max_share >= THRESHOLDS["max_kv"].value:
        return Cleared(
            f"{row.late_share:.0%} of the requests miss their target, but the KV cache is {row.kv_max_share:.0%} full: capacity"
        )
    return Finding(
        summary=f"{row.late_share:.0%} of the requests miss their target while the KV cache is {row.kv_max_share:.0%} full at most and the policy is"
        f" {row.policy}",
        evidence=(
            Evidence("requests over their target", row.late_share, "share of requests"),
            Evidence("KV cache at most", row.kv_max_share, "share"),
            Evidence("policy", row.policy, ""),
        ),
        severity=Severity.MEDIUM,
        confidence=0.5,
    )


FIXES = (
    Fix(
        "vllm",
        "--scheduling-policy priority, and `priority` in the requests",
        "urgent requests first; others are preempted for them",
        source="https://docs.vllm.ai/en/latest/configuration/engine_args.html (checked with 0.27 to 0.30)",
    ),
    Fix(
        "sglang",
        "--enable-priority-scheduling, and `priority` in the requests",
        "urgent requests first",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html (checked with 0.5.9 to 0.5.18)",
    ),
    Fix(
        "system",
        "separate replicas for interactive and for batch traffic",
        "neither waits for the other",
        source="https://docs.vllm.ai/en/latest/serving/data_parallel_deployment.html",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Late,
    judge=judge,
    fixes=FIXES,
    verify="the share of late requests falls under the same load, and throughput stays.",
    doc=__doc__,
)
