"""Requests wait because the KV cache is full: the pool holds fewer sequences than the device could serve.

What happens: every running sequence holds KV blocks for all of its tokens. Once the pool is full no new sequence is taken up
until one ends, however little of the device's arithmetic the batch uses. The queue grows, and with it the time to the first
token.

How it is detected: in at least a fifth of the log lines or scrapes with running requests, at least 95 % of the KV cache
is in use while requests wait. The bound is what serving the waiting ones beside the running ones would give where a
larger batch costs nothing more; it ends where arithmetic fills the device. Of a few lines, or one scrape, each must
show it, with a queue that counts beside the batch; such a moment is told with less confidence.

When it is not this: a full cache without a queue is healthy. Where running requests lose their blocks again and again it is
`kv-preemption-thrash`; where the limit of running requests stops the batch, the cache is not full. Memory that another
process took is `foreign-gpu-process`.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict

ABOUT = About(
    id="kv-pool-too-small",
    title="Requests wait for room in the KV cache",
    stage=Stage.SPECIFIC,
    reads=("engine_queue",),
    needs=("engine-log", "metrics"),
)

THRESHOLDS = {
    "min_share": Threshold(0.2, "share of lines with running requests", source="rule of thumb: not a passing peak"),
    "min_lines": Threshold(5, "lines", source="fewer lines are a moment, not a state: each of them must show it"),
    "min_queue": Threshold(
        0.1,
        "of the running requests",
        source="rule of thumb: in a moment, a shorter queue may be the next to be taken up",
    ),
    "lost_at_once": Threshold(3, "requests", source="as in kv-preemption-thrash: fewer may be chance"),
    "max_lost_per_minute": Threshold(
        1, "requests a minute", source="SGLang, hyperparameter tuning: about one a minute is fine"
    ),
    "most_promised": Threshold(4, "x", source="rule of thumb: by then arithmetic or the next limit binds"),
}

SQL = """
SELECT queue.engine, busy_count, full_and_waiting_count, full_count, running_median_count, waiting_median_count, kv_median_share,
    coalesce(lost_count, 0)::DOUBLE AS lost_count, loss.span_ns,
    (SELECT max(amount_count) FROM engine_figure WHERE figure = 'kv_tokens') AS kv_tokens
FROM engine_queue AS queue LEFT JOIN engine_loss AS loss USING (engine)
WHERE busy_count >= 1
ORDER BY full_and_waiting_count / busy_count DESC, queue.engine LIMIT 1
"""


class Queue(NamedTuple):
    """How full the cache is and who waits, of the engine that waits most."""

    engine: str
    busy_count: int
    full_and_waiting_count: int
    full_count: int
    running_median_count: float | None
    waiting_median_count: float | None
    kv_median_share: float | None
    lost_count: float
    span_ns: int | None
    kv_tokens: float | None


def judge(row: Queue) -> Verdict:
    """Full and waiting, and nobody loses blocks."""
    share = row.full_and_waiting_count / row.busy_count
    running, waiting = row.running_median_count or 1.0, row.waiting_median_count or 0.0
    is_moment = row.busy_count < THRESHOLDS["min_lines"].value
    if is_moment and (share < 1 or waiting < THRESHOLDS["min_queue"].value * running):
        return None
    if share < THRESHOLDS["min_share"].value:
        full = row.full_count / row.busy_count
        if full < THRESHOLDS["min_share"].value:
            return None
        return Cleared(f"the KV cache is full in {full:.0%} of the lines, but hardly a request waits meanwhile")
    if is_thrashing(row, running):
        return None  # kv-preemption-thrash tells it, and nothing clears the pool
    when = (
        "at the one moment that is told"
        if row.busy_count == 1
        else f"in all {row.busy_count} lines"
        if is_moment
        else f"in {share:.0%} of {row.busy_count} lines"
    )
    return Finding(
        summary=f"{when} the KV cache is full while requests wait: {running:.0f} run and"
        f" {waiting:.0f} wait{'' if row.busy_count == 1 else ' at the median'}",
        evidence=(
            Evidence("KV cache full while requests wait", share, "share of lines with running requests"),
            Evidence("requests running", running, "requests at the median"),
            Evidence("requests waiting", waiting, "requests at the median"),
            Evidence("KV cache in use", row.kv_median_share or 0.0, "share at the median"),
            *((Evidence("KV cache", row.kv_tokens, "tokens"),) if row.kv_tokens else ()),
        ),
        severity=Severity.MEDIUM if is_moment else Severity.HIGH,
        confidence=0.5 if is_moment else 0.8,
        speedup_bound=min(THRESHOLDS["most_promised"].value, (running + waiting) / max(running, 1.0)),
    )


def is_thrashing(row: Queue, running: float) -> bool:
    """Running requests lose their blocks often enough for `kv-preemption-thrash`."""
    minutes = (row.span_ns or 0) / 60e9
    often = not minutes or row.lost_count / minutes > THRESHOLDS["max_lost_per_minute"].value
    enough = row.lost_count >= min(THRESHOLDS["lost_at_once"].value, max(1.0, running / 10))
    return often and enough


FIXES = (
    Fix(
        "vllm",
        "--gpu-memory-utilization up to free/total - 0.02; --kv-cache-dtype fp8; a lower --max-num-batched-tokens;"
        " --tensor-parallel-size 2",
        "more blocks: from memory that lies idle, from half the bytes a token, from smaller activations, from a second device",
        source="https://docs.vllm.ai/en/latest/configuration/optimization.html (checked with 0.27 to 0.30)",
    ),
    Fix(
        "sglang",
        "--mem-fraction-static up in steps of 0.01 as long as available_gpu_mem stays over 5 GB; --kv-cache-dtype fp8_e5m2",
        "a larger pool, or half the bytes a token",
        source="https://docs.sglang.ai/advanced_features/hyperparameter_tuning.html (checked with 0.5.9 to 0.5.18)",
    ),
    Fix(
        "tensorrt-llm",
        "kv_cache_config: {free_gpu_memory_fraction: 0.95, dtype: fp8}",
        "a larger pool, or half the bytes a token",
        source="https://nvidia.github.io/TensorRT-LLM/features/kvcache.html (checked with 1.2 to 1.4.0rc)",
    ),
    Fix(
        "system",
        "a second replica behind a balancer",
        "where the device is busy already, more blocks only lengthen each step",
        source="https://docs.vllm.ai/en/latest/serving/data_parallel_deployment.html",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Queue,
    judge=judge,
    fixes=FIXES,
    verify="under the same load the queue is empty most of the time and the KV cache below 90 %.",
    doc=__doc__,
)
