"""Replicas are unevenly loaded: some have a queue while others idle.

What happens: requests are handed out one by one, or in sorted order, and cost differs by a hundred times. One replica gets the long ones;
the run ends when it ends. Round robin spreads counts, not work.

How it is detected: over at least five minutes the busiest replica runs at least 1.25 times as many requests as the mean
of all; or one has a queue while another runs less than half as many, or has none and room in its KV cache, in a tenth
of the time; or, with data parallelism set, devices that are busy 1.25 times as long as the mean. Of one or two moments
the queue must count beside the batch, and less confidence is told. Of a run that is cut into shares: the slowest rank
takes 1.25 times as long as the mean.

When it is not this: replicas that start one after another are uneven for a while: the first 30 s are left out. Ranks of one replica
(tensor parallel) are no replicas.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict
from doctor.units import format_ns

ABOUT = About(
    id="dp-imbalance",
    title="Replicas are unevenly loaded",
    stage=Stage.SPECIFIC,
    reads=("engine_load",),
    needs=("engine-log", "metrics"),
)

THRESHOLDS = {
    "min_ratio": Threshold(1.25, "x the mean of all replicas", source="rule of thumb: a fifth of the devices' time"),
    "min_span_s": Threshold(300, "s", source="shorter differences are chance"),
    "min_contrast": Threshold(
        0.1, "of the time", source="rule of thumb: a queue beside an idle replica, again and again"
    ),
    "min_moments": Threshold(3, "moments", source="fewer are a moment, not a state"),
    "min_queue": Threshold(
        0.25, "of the running requests", source="rule of thumb: a shorter queue is taken up in the next steps"
    ),
    "room": Threshold(0.9, "of the KV cache in use", source="rule of thumb: below it more requests can be taken up"),
}

SQL = """
WITH replica AS (
    SELECT engine, dense_rank() OVER (PARTITION BY engine ORDER BY source_id, replica_id) AS replica, avg(running_count) AS running, avg(kv_usage_share) AS kv,
        avg(waiting_count) AS waiting, max(time_ns) - min(time_ns) AS span_ns, count(*) AS line_count
    FROM engine_load WHERE phase IN ('state', 'decode') AND is_steady AND running_count IS NOT NULL
    GROUP BY engine, source_id, replica_id
),
slice AS (
    SELECT engine, coalesce(time_ns, 0) // 10000000000 AS slice, source_id, replica_id, avg(running_count) AS running, avg(waiting_count) AS waiting,
        avg(kv_usage_share) AS kv
    FROM engine_load WHERE phase IN ('state', 'decode') AND is_steady AND running_count IS NOT NULL GROUP BY ALL
),
moment AS (
    SELECT engine, max(waiting) AS most_waiting, min(running) AS least_running, arg_max(running, waiting) AS most_running,
        bool_or(coalesce(waiting, 0) = 0 AND kv < $room) AS has_room
    FROM slice GROUP BY engine, slice HAVING count(*) > 1
),
contrast AS (
    SELECT engine, count(*) AS moment_count, count(*) FILTER (most_waiting > 0 AND least_running < 0.5 * most_running
        OR most_waiting >= $min_queue * most_running AND has_room)::DOUBLE / count(*) AS contrast_share,
        count(*) FILTER (most_waiting >= $min_queue * most_running AND (least_running < 0.5 * most_running OR has_room)) AS clear_count
    FROM moment GROUP BY engine
)
SELECT engine, count(*) AS replica_count, max(running) AS most_running, avg(running) AS mean_running, min(running) AS least_running,
    max(kv) AS most_kv, min(kv) AS least_kv, max(waiting) AS most_waiting, max(span_ns) AS span_ns, any_value(contrast_share) AS contrast_share,
    arg_max(replica, running) AS busiest, coalesce(any_value(moment_count), 0) AS moment_count, coalesce(any_value(clear_count), 0) AS clear_count,
    min(line_count) AS line_count
FROM replica LEFT JOIN contrast USING (engine)
GROUP BY engine HAVING count(*) > 1
ORDER BY max(running) / greatest(avg(running), 0.01) DESC LIMIT 1
"""

DEVICE_SQL = """
WITH device AS (SELECT device_id, avg(busy_share) AS busy_share FROM gpu_sample WHERE busy_share IS NOT NULL AND device_id IS NOT NULL GROUP BY device_id),
settled AS (
    SELECT max(told_count) FILTER (setting = 'data_parallel') AS data_parallel, coalesce(max(told_count) FILTER (setting = 'tensor_parallel'), 1) AS tensor_parallel
    FROM engine_choice
)
SELECT count(*) AS device_count, max(busy_share) AS most_busy, avg(busy_share) AS mean_busy, min(busy_share) AS least_busy,
    any_value(data_parallel) AS data_parallel, any_value(tensor_parallel) AS tensor_parallel
FROM device, settled
"""


class Replicas(NamedTuple):
    """Load by replica."""

    engine: str
    replica_count: int
    most_running: float
    mean_running: float
    least_running: float
    most_kv: float | None
    least_kv: float | None
    most_waiting: float | None
    span_ns: int | None
    contrast_share: float | None
    busiest: int
    moment_count: int
    clear_count: int
    line_count: int


class Devices(NamedTuple):
    """Busy time by device, with how the model is spread."""

    device_count: int
    most_busy: float | None
    mean_busy: float | None
    least_busy: float | None
    data_parallel: float | None
    tensor_parallel: float | None


def judge(row: Replicas) -> Verdict:
    """More than a quarter over the mean for long enough, or a queue beside idle replicas."""
    ratio = row.most_running / max(row.mean_running, 0.01)
    if row.line_count < THRESHOLDS["min_moments"].value:
        return judge_moment(row, ratio)
    long_enough = row.span_ns is None or row.span_ns >= THRESHOLDS["min_span_s"].value * 1e9
    contrast = row.contrast_share or 0.0
    uneven = ratio >= THRESHOLDS["min_ratio"].value and long_enough and row.most_running >= 1
    if not uneven and contrast < THRESHOLDS["min_contrast"].value:
        return Cleared(f"{row.replica_count} replicas run alike: the busiest {ratio:.2f} times the mean")
    queue = f"; in {contrast:.0%} of the time one has a queue while another has room" if contrast else ""
    return Finding(
        summary=f"of {row.replica_count} replicas the busiest runs {row.most_running:.0f} requests, the mean {row.mean_running:.0f}, the idlest"
        f" {row.least_running:.0f}{queue}",
        evidence=(
            Evidence("busiest against the mean", ratio, "x"),
            Evidence("requests on the busiest", row.most_running, "requests"),
            Evidence("requests on the idlest", row.least_running, "requests"),
            *(
                (Evidence("queue beside an idle replica", contrast, "share of the time"),)
                if row.contrast_share is not None
                else ()
            ),
            *((Evidence("KV cache of the busiest", row.most_kv, "share"),) if row.most_kv is not None else ()),
        ),
        severity=Severity.HIGH,
        confidence=0.8 if row.span_ns else 0.6,
        speedup_bound=max(ratio, 1.0),
    )


def judge_moment(row: Replicas, ratio: float) -> Verdict:
    """One or two moments: a queue that counts, beside a replica with room, in each of them."""
    if not row.moment_count or row.clear_count < row.moment_count:
        return None
    return Finding(
        summary=f"of {row.replica_count} replicas one has {row.most_waiting or 0:.0f} requests in its queue while another has room: the busiest runs"
        f" {row.most_running:.0f}, the idlest {row.least_running:.0f}",
        evidence=(
            Evidence("longest queue", row.most_waiting or 0.0, "requests"),
            Evidence("busiest against the mean", ratio, "x"),
            Evidence("requests on the idlest", row.least_running, "requests"),
            *((Evidence("KV cache of the idlest", row.least_kv, "share"),) if row.least_kv is not None else ()),
        ),
        severity=Severity.MEDIUM,
        confidence=0.6,
        speedup_bound=max(ratio, 1.0),
    )


def judge_devices(row: Devices) -> Verdict:
    """Devices of different replicas, busy for different times."""
    if (row.data_parallel or 1) < 2 or row.device_count < 2 or not row.mean_busy or row.most_busy is None:
        return None
    ratio = row.most_busy / row.mean_busy
    if ratio < THRESHOLDS["min_ratio"].value:
        return None
    return Finding(
        summary=f"of {row.device_count} devices in {row.data_parallel:.0f} replicas the busiest works {row.most_busy:.0%} of the time, the mean"
        f" {row.mean_busy:.0%}, the idlest {row.least_busy or 0:.0%}",
        evidence=(
            Evidence("busiest device against the mean", ratio, "x"),
            Evidence("idlest device", row.least_busy or 0.0, "share of the time"),
        ),
        severity=Severity.HIGH,
        confidence=0.65,
        speedup_bound=ratio,
    )


RANKS_SQL = """
SELECT count(*) AS rank_count, max(latency_ns) AS longest_ns, avg(latency_ns) AS mean_ns, min(latency_ns) AS shortest_ns,
    max(completed_count) / nullif(min(completed_count), 0) AS count_ratio, max(prompt_token_count) / nullif(min(prompt_token_count), 0) AS token_ratio,
    corr(latency_ns, prompt_token_count) AS token_correlation
FROM bench_row WHERE tool = 'ranks' AND latency_ns > 0
HAVING count(*) > 1
"""


class Ranks(NamedTuple):
    """How long each rank took for its share of one run."""

    rank_count: int
    longest_ns: int
    mean_ns: float
    shortest_ns: int
    count_ratio: float | None
    token_ratio: float | None
    token_correlation: float | None


def judge_ranks(row: Ranks) -> Verdict:
    """The run ends when its slowest share is done."""
    ratio = row.longest_ns / row.mean_ns
    if ratio < THRESHOLDS["min_ratio"].value:
        return Cleared(f"{row.rank_count} ranks take alike: the longest {ratio:.2f} times the mean")
    is_by_length = (row.token_ratio or 1.0) >= THRESHOLDS["min_ratio"].value and (row.token_correlation or 0.0) > 0.5
    is_by_count = (row.count_ratio or 1.0) >= THRESHOLDS["min_ratio"].value
    why = (
        f"; the mean prompt is {row.token_ratio:.1f} times as long on one as on another"
        if is_by_length
        else "; they were given unequal numbers of requests"
        if is_by_count
        else ""
    )
    return Finding(
        summary=f"of {row.rank_count} ranks the slowest takes {format_ns(row.longest_ns)}, the mean {format_ns(row.mean_ns)}, the quickest"
        f" {format_ns(row.shortest_ns)}{why}",
        evidence=(
            Evidence("slowest against the mean", ratio, "x"),
            *((Evidence("longest mean prompt against the shortest", row.token_ratio, "x"),) if row.token_ratio else ()),
        ),
        severity=Severity.HIGH if is_by_length or is_by_count else Severity.MEDIUM,
        confidence=0.8 if is_by_length or is_by_count else 0.5,
        speedup_bound=ratio,
        fixes=(SHUFFLE, *(fix for fix in FIXES if fix != SHUFFLE)),
    )


SHUFFLE = Fix(
    "system",
    "shuffle a batch before it is split; hand out work in small pieces as replicas become free",
    "no replica is given all short or all long requests",
    source="https://github.com/EleutherAI/lm-evaluation-harness/pull/1477",
)
FIXES = (
    Fix(
        "vllm",
        "--data-parallel-size N behind its own balancer (drop --data-parallel-external-lb), or a balancer that counts tokens or KV usage",
        "requests go where there is room",
        source="https://docs.vllm.ai/en/latest/serving/data_parallel_deployment.html (checked with 0.27 to 0.30)",
    ),
    Fix(
        "sglang",
        "--load-balance-method total_tokens (older versions: shortest_queue); its router with --policy cache_aware"
        " --balance-abs-threshold",
        "tokens are balanced, not counts",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html (checked with 0.5.9 to 0.5.18)",
    ),
    SHUFFLE,
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Replicas,
    judge=judge,
    fixes=FIXES,
    verify="running requests and KV usage of all replicas are within a tenth of each other.",
    doc=__doc__,
    also=(
        Sign(("gpu_sample", "engine_choice"), ("nvml", "engine-config"), DEVICE_SQL, Devices, judge_devices),
        Sign(("bench_row",), ("bench-table",), RANKS_SQL, Ranks, judge_ranks),
    ),
)
