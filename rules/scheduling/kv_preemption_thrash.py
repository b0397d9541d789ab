"""Running requests lose their KV blocks and are computed again, over and over.

What happens: an engine that takes up more sequences than its KV cache can hold to their end runs out of blocks while they
grow. It throws one out, and later computes its prompt and all it had generated a second time. Under steady overload this
work has no end: throughput falls and the slowest tokens take seconds.

How it is detected: preempted, retracted or paused requests in the log or the counters: more than a tenth of the
finished requests, or, where finished ones are not counted, more than one a minute and at least three, or a tenth of
those that run. One count since the start of the server gives no rate: it is told as such, with less confidence. Or a table of two runs under the same load in which a policy that admits to the brim (MAX_UTILIZATION)
is slower by at least 15 % than one that never evicts. Or that policy is set, the cache is full and requests wait, where nothing counts what
is paused; a 99th percentile of a token over four times the median makes that likely; beside the policy
alone it is a suspicion.

When it is not this: a KV cache in full use is healthy as long as nobody is thrown out. Waiting requests with a full cache and no
eviction are `kv-pool-too-small`. One eviction now and then costs nothing.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict
from doctor.units import format_counted

ABOUT = About(
    id="kv-preemption-thrash",
    title="Running requests lose their KV blocks again and again",
    stage=Stage.SPECIFIC,
    reads=("engine_loss",),
    needs=("engine-log", "metrics"),
)

THRESHOLDS = {
    "max_per_request": Threshold(
        0.1, "preemptions a finished request", source="rule of thumb: one request in ten twice"
    ),
    "max_per_minute": Threshold(
        1, "requests a minute", source="SGLang, hyperparameter tuning: about one a minute is fine"
    ),
    "min_lost": Threshold(3, "requests", source="one or two are chance"),
    "min_lost_share": Threshold(
        0.1, "of the running requests", source="rule of thumb, as of the finished ones: one in ten is not chance"
    ),
    "grave_per_request": Threshold(
        0.5, "preemptions a finished request", source="rule of thumb: half of the work twice"
    ),
    "max_tail": Threshold(4, "x the median", source="NVIDIA/TensorRT-LLM#16827: 1,111 against 122 ms a token"),
    "min_ratio": Threshold(
        1.15, "x", source="NVIDIA/TensorRT-LLM#16827: 1.68 between the policies, 1.00 without pressure"
    ),
}

POLICY = "(SELECT max(told) FROM engine_choice WHERE setting = 'capacity_policy')"

SQL = f"""
SELECT loss.engine, lost_count::DOUBLE AS lost_count, finished_count, loss.span_ns, kv_max_share, running_median_count, waiting_median_count,
    {POLICY} AS policy, is_since_start
FROM engine_loss AS loss LEFT JOIN engine_queue USING (engine)
WHERE lost_count IS NOT NULL
ORDER BY lost_count DESC, loss.engine LIMIT 1
"""

TABLE_SQL = """
SELECT slow_hz, fast_hz, slow_told, fast_told, slow_tpot_ns, slow_tpot_p99_ns, fast_tpot_p99_ns, slow_preemption_count
FROM bench_comparison
WHERE regexp_matches(word, 'policy|scheduler') AND regexp_matches(slow_told, 'max_?util') AND regexp_matches(fast_told, 'no_?evict')
ORDER BY fast_hz / slow_hz DESC LIMIT 1
"""


class Losses(NamedTuple):
    """Requests thrown out, of the engine that throws out most."""

    engine: str
    lost_count: float
    finished_count: float | None
    span_ns: int | None
    kv_max_share: float | None
    running_median_count: float | None
    waiting_median_count: float | None
    policy: str | None
    is_since_start: bool


class Policies(NamedTuple):
    """Two runs that differ in the policy."""

    slow_hz: float
    fast_hz: float
    slow_told: str
    fast_told: str
    slow_tpot_ns: int | None
    slow_tpot_p99_ns: int | None
    fast_tpot_p99_ns: int | None
    slow_preemption_count: float | None


def judge(row: Losses) -> Verdict:
    """More requests thrown out than chance."""
    if row.lost_count < 1:
        return None
    minutes = (row.span_ns or 0) / 60e9
    rate = row.lost_count / minutes if minutes else None
    each = row.lost_count / row.finished_count if row.finished_count else None
    is_few = each is None and row.lost_count < THRESHOLDS["min_lost"].value
    is_often = rate is None or rate > THRESHOLDS["max_per_minute"].value
    is_open = row.is_since_start and each is None  # one count since the start of the server: nobody says in what time
    too_many = each > THRESHOLDS["max_per_request"].value if each is not None else is_often
    if is_few and row.lost_count < THRESHOLDS["min_lost_share"].value * (
        row.running_median_count or row.lost_count * 100
    ):
        too_many = False
    if not too_many:
        return Cleared(f"{format_counted(row.lost_count, 'request')} lost KV blocks, too few to matter")
    often = f", {each:.2f} a finished request" if each is not None else f", {rate:.1f} a minute" if rate else ""
    is_grave = each is not None and each > THRESHOLDS["grave_per_request"].value
    brimful = row.policy is not None and "max_util" in row.policy
    since = " since the server started, in what time the log does not say" if is_open else ""
    of_running = f" of {row.running_median_count:.0f} that run" if is_few else ""
    return Finding(
        summary=f"{row.lost_count:.0f} request{'s' if row.lost_count > 1 else ''}{of_running} lost {'their' if row.lost_count > 1 else 'its'} KV blocks"
        f" and {'were' if row.lost_count > 1 else 'was'} computed again{often}{since}"
        + (": the policy MAX_UTILIZATION admits more than the cache holds" if brimful else ""),
        evidence=(
            Evidence("requests thrown out", row.lost_count, "requests"),
            *((Evidence("thrown out a finished request", each, "requests"),) if each is not None else ()),
            *((Evidence("thrown out a minute", rate, "requests"),) if rate is not None else ()),
            *((Evidence("KV cache at most", row.kv_max_share, "share"),) if row.kv_max_share is not None else ()),
            *((Evidence("capacity policy", row.policy, ""),) if row.policy else ()),
        ),
        severity=Severity.CRITICAL if is_grave else Severity.MEDIUM if is_few or is_open else Severity.HIGH,
        confidence=0.9 if each is not None else 0.5 if is_open else 0.6 if is_few else 0.75,
        fixes=tuple(sorted(FIXES, key=lambda fix: fix.target != "tensorrt-llm")) if brimful else (),
    )


def judge_table(row: Policies) -> Verdict:
    """The policy that never evicts is faster at the same load."""
    ratio = row.fast_hz / row.slow_hz
    if ratio < THRESHOLDS["min_ratio"].value:
        return None
    tail = (
        f"; the 99th percentile of a token rises from {row.fast_tpot_p99_ns / 1e6:.0f} to {row.slow_tpot_p99_ns / 1e6:.0f} ms"
        if row.slow_tpot_p99_ns and row.fast_tpot_p99_ns
        else ""
    )
    return Finding(
        summary=f"{row.slow_told.upper()} serves {row.slow_hz:.1f} a second where {row.fast_told.upper()} serves {row.fast_hz:.1f} under the"
        f" same load{tail}",
        evidence=(
            Evidence("policy that never evicts against the other", ratio, "x"),
            *(
                (Evidence("99th percentile of a token", row.slow_tpot_p99_ns / 1e6, "ms"),)
                if row.slow_tpot_p99_ns
                else ()
            ),
        ),
        severity=Severity.HIGH,
        confidence=0.85,
        speedup_bound=ratio,
        speedup_expected=ratio,
        fixes=tuple(sorted(FIXES, key=lambda fix: fix.target != "tensorrt-llm")),
    )


PRESSURE_SQL = f"""
SELECT queue.engine, busy_count, full_and_waiting_count, running_median_count, waiting_median_count, kv_max_share, {POLICY} AS policy,
    (SELECT max(tpot_p99_ns / nullif(tpot_p50_ns, 0)) FROM bench_row WHERE tpot_p50_ns > 0) AS tail_ratio
FROM engine_queue AS queue LEFT JOIN engine_loss AS loss USING (engine)
WHERE full_and_waiting_count > 0 AND regexp_matches({POLICY}, 'max_?util') AND coalesce(lost_count, 0) = 0
ORDER BY full_and_waiting_count DESC LIMIT 1
"""


class Pressure(NamedTuple):
    """An engine that admits to the brim, with a full cache and a queue, of which nobody counts what it throws out."""

    engine: str
    busy_count: int
    full_and_waiting_count: int
    running_median_count: float | None
    waiting_median_count: float | None
    kv_max_share: float | None
    policy: str
    tail_ratio: float | None


def judge_pressure(row: Pressure) -> Verdict:
    """A full cache alone is healthy; under this policy, with a queue behind it, it is what makes requests pause."""
    waiting, running = row.waiting_median_count or 0.0, row.running_median_count or 1.0
    has_tail = (row.tail_ratio or 0.0) > THRESHOLDS["max_tail"].value
    is_state = (
        row.full_and_waiting_count >= 0.2 * row.busy_count and waiting >= THRESHOLDS["min_lost_share"].value * running
    )
    if not is_state:
        return None
    tail = f"; the 99th percentile of a token is {row.tail_ratio:.1f} times the median" if has_tail else ""
    return Finding(
        summary=f"{row.policy.upper()} admits to the brim: the KV cache is {row.kv_max_share or 0:.0%} full with {running:.0f} requests running and"
        f" {waiting:.0f} waiting, so running ones are paused and computed again{tail}",
        evidence=(
            Evidence("KV cache at most", row.kv_max_share or 0.0, "share"),
            Evidence("requests waiting", waiting, "requests at the median"),
            Evidence("capacity policy", row.policy, ""),
            *(
                (Evidence("99th percentile of a token against the median", row.tail_ratio or 0.0, "x"),)
                if has_tail
                else ()
            ),
        ),
        severity=Severity.HIGH,
        confidence=0.75 if has_tail else 0.55,
        fixes=tuple(sorted(FIXES, key=lambda fix: fix.target != "tensorrt-llm")),
    )


TAIL_SQL = f"""
SELECT {POLICY} AS policy, tpot_p99_ns / tpot_p50_ns AS tail_ratio, tpot_p99_ns, coalesce(concurrency_count, batch_count) AS load_count FROM bench_row
WHERE tpot_p50_ns > 0 AND tpot_p99_ns > $max_tail * tpot_p50_ns AND regexp_matches({POLICY}, 'max_?util')
    AND NOT EXISTS (SELECT 1 FROM engine_queue) AND NOT EXISTS (SELECT 1 FROM engine_loss WHERE lost_count IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM bench_comparison WHERE regexp_matches(word, 'policy|scheduler'))
ORDER BY tail_ratio DESC LIMIT 1
"""


class Tail(NamedTuple):
    """A benchmark with a long tail under a policy that admits to the brim, and nothing that tells how full the cache was."""

    policy: str
    tail_ratio: float
    tpot_p99_ns: float
    load_count: float | None


def judge_tail(row: Tail) -> Verdict:
    """Pauses of running requests show as a tail of single tokens; what else makes one is not seen here."""
    at = f" at {row.load_count:.0f} requests at a time" if row.load_count else ""
    return Finding(
        summary=f"{row.policy.upper()} admits to the brim, and{at} the 99th percentile of a token is {row.tail_ratio:.1f} times the median:"
        " running requests are probably paused and computed again; the engine's KV cache usage and paused requests settle it",
        evidence=(
            Evidence("99th percentile of a token against the median", row.tail_ratio, "x"),
            Evidence("99th percentile of a token", row.tpot_p99_ns / 1e6, "ms"),
            Evidence("capacity policy", row.policy, ""),
        ),
        severity=Severity.MEDIUM,
        confidence=0.5,
        fixes=tuple(sorted(FIXES, key=lambda fix: fix.target != "tensorrt-llm")),
    )


FIXES = (
    Fix(
        "vllm",
        "a lower --max-num-seqs; --gpu-memory-utilization up; --kv-cache-dtype fp8",
        "fewer sequences at a time, or room for them to grow",
        source="https://docs.vllm.ai/en/latest/configuration/optimization.html (checked with 0.27 to 0.30)",
    ),
    Fix(
        "sglang",
        "--schedule-conservativeness 1.3; --mem-fraction-static up; a lower --max-running-requests",
        "requests are admitted only with room for what they will generate",
        source="https://docs.sglang.ai/advanced_features/hyperparameter_tuning.html (checked with 0.5.9 to 0.5.18)",
    ),
    Fix(
        "tensorrt-llm",
        "scheduler_config: {capacity_scheduler_policy: GUARANTEED_NO_EVICT}",
        "the default: a request once begun ends",
        source="https://nvidia.github.io/TensorRT-LLM/features/paged-attention-ifb-scheduler.html (checked with 1.2 to 1.4.0rc)",
    ),
    Fix(
        "engine",
        "--admission projected-peak",
        "a request is admitted only with room for what it will generate",
        source="python -m engine bench --help",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Losses,
    judge=judge,
    fixes=FIXES,
    verify="under the same load the preemption counter stands still: vllm:num_preemptions_total, `Retract requests` lines, paused requests.",
    doc=__doc__,
    also=(
        Sign(("bench_comparison",), ("bench-table",), TABLE_SQL, Policies, judge_table),
        Sign(("engine_queue",), ("metrics", "engine-log"), PRESSURE_SQL, Pressure, judge_pressure),
        Sign(("bench_row", "engine_choice"), ("bench-table",), TAIL_SQL, Tail, judge_tail),
    ),
)
