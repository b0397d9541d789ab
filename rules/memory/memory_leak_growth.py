"""Memory grows from step to step without end, until the device is full.

What happens: something keeps what each step makes: outputs appended to a list, hooks, reference cycles that wait for Python's cyclic
collector, caches without a bound. Emptying the allocator's cache does not help, since the tensors are alive.

How it is detected: the level between steps (the least of each of 40 pieces of the series, the first fifth left out as warm-up) rises
along a line: a straight line explains at least 90 % of it (97 % of a few printed levels) and it grows by at least 5 % of the device. It is critical where an allocation failed in the end. In a snapshot's history as much
must be freed as a loop does, and more than one pass of the model must be seen; then the stacks whose blocks stay are named. Samples of a
process or device are the weaker sign, since they show what is reserved, and looks of less than a minute a doubtful one.

When it is not this: one forward pass keeps its activations for the backward pass, layer by layer along a line: there the lines around the
layers (embedding, last norm, head) were run once, in a loop over steps they come back as the layers do. A trace needs three steps. A
sequence that grows replaces its keys and values by longer ones: nothing old stays. Reserved memory that grows while allocated memory is
level is caching. A KV cache that is reserved for every request grows with the requests: `kv-unpaged-contiguous`. Loading allocates and
frees little. A process' host memory: `host-memory-leak`.
"""

import re
from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict, Where
from doctor.units import format_bytes, format_ns

ABOUT = About(
    id="memory-leak-growth",
    title="Memory grows without end",
    stage=Stage.MEMORY,
    reads=("allocator_step",),
    needs=("memory-snapshot", "nvml", "nvidia-smi"),
)

THRESHOLDS = {
    "least_fit": Threshold(0.9, "share of the variance that a line explains", source="nnsight#169"),
    "least_fit_of_few": Threshold(
        0.97,
        "share of the variance that a line explains",
        source="of six levels at random one in a thousand fits so well",
    ),
    "least_share": Threshold(0.05, "share of the device", source="nnsight#169"),
    "least_freed": Threshold(
        0.3, "frees an allocation", source="a loop frees most of what it makes; loading frees next to nothing"
    ),
    "least_start": Threshold(
        0.3, "share of the highest level at the start", source="a leak starts from a loaded model"
    ),
    "least_kept": Threshold(
        0.5, "share of the growth in blocks made all along", source="a growing sequence keeps its last blocks only"
    ),
    "least_look_ns": Threshold(60e9, "ns of looks at a device", source="one long request grows for seconds, too"),
    "grave_ns": Threshold(24 * 3600e9, "ns until the device is full", source="rule of thumb: a day"),
}

TREND = """
WITH size AS (
    SELECT max(total_bytes) AS total_bytes FROM (
        SELECT max(total_bytes) AS total_bytes FROM oom_event UNION ALL SELECT max(memory_total_bytes) FROM gpu_sample
        UNION ALL SELECT max(memory_bytes) FROM device)
),
kept AS (
    SELECT sum(held_bytes) FILTER (share_of_history >= 0.5) AS kept_bytes, arg_max(stack, held_bytes) AS stack,
        arg_max(held_bytes, held_bytes) FILTER (stack IS NOT NULL) AS held_bytes, sum(held_bytes) AS lasting_bytes
    FROM lasting_stack
)
SELECT series, trend.device_id, pid, fit_share, growth_bytes, least_bytes, most_bytes, span_ns, coalesce(freed_share, 1.0) AS freed_share,
    coalesce(total_bytes, most_bytes) AS total_bytes, (SELECT max(group_bytes) FROM reserved_cache) AS cache_bytes, kept.stack, kept.held_bytes,
    CASE WHEN lasting_bytes > 0 THEN coalesce(kept_bytes, 0) END AS kept_bytes, is_one_pass, piece_count, is_by_length,
    EXISTS (SELECT 1 FROM oom_cause WHERE cause = 'growth') AS is_failed,
    (SELECT any_value(pass_name) FROM recorded_pass) AS pass_name, EXISTS (SELECT 1 FROM recorded_pass) AS has_stacks
FROM memory_trend AS trend, size, kept
WHERE series IN ({series})
ORDER BY (fit_share > $least_fit) DESC, growth_bytes DESC LIMIT 1
"""
SQL = TREND.format(series="'allocator'")
PRINTED_SQL = TREND.format(series="'printed'")
PROFILED_SQL = TREND.format(series="'profiler'")
SAMPLED_SQL = TREND.format(series="'process', 'device'")


class Trend(NamedTuple):
    """The series that rises most steadily."""

    series: str
    device_id: int | None
    pid: int | None
    fit_share: float | None
    growth_bytes: int | None
    least_bytes: int
    most_bytes: int
    span_ns: int | None
    freed_share: float
    total_bytes: int
    cache_bytes: int | None
    stack: str | None
    held_bytes: int | None
    kept_bytes: int | None
    is_one_pass: bool | None
    piece_count: int
    is_by_length: bool | None
    is_failed: bool
    pass_name: str | None
    has_stacks: bool


FEW_PIECES = 16
_CACHE = re.compile(r"cache|past_key|\bkv|key_value", re.IGNORECASE)
WHAT = {
    "allocator": "allocated memory",
    "profiler": "allocated memory",
    "printed": "allocated memory",
    "process": "the process' memory",
    "device": "memory in use",
}


def _other_growth(row: Trend) -> str | None:
    """What grows that is no leak; None where nothing speaks for anything else."""
    is_loading = (
        row.series in {"process", "device"} and row.least_bytes < THRESHOLDS["least_start"].value * row.most_bytes
    )
    is_replaced = (
        row.series == "allocator"
        and row.kept_bytes is not None
        and row.kept_bytes < THRESHOLDS["least_kept"].value * (row.growth_bytes or 0)
        and _CACHE.search(row.stack or "") is not None
    )
    if row.is_by_length:
        return "with the tokens of the sequence: its keys and values"
    if row.cache_bytes:
        return "by caches reserved whole for each request"
    if is_loading or row.freed_share < THRESHOLDS["least_freed"].value:
        return "next to nothing is freed: something is being loaded"
    if row.is_one_pass and row.series == "allocator":
        of = f" of {row.pass_name}: the lines around what repeats in it were run once" if row.pass_name else ""
        return f"within one pass{of}"
    if row.is_one_pass:
        return "three steps were not recorded: one pass may keep what it makes until its end"
    return "by longer keys and values in place of shorter ones: a sequence grows" if is_replaced else None


def judge(row: Trend) -> Verdict:
    """A line, long enough, in a loop."""
    least = THRESHOLDS["least_fit_of_few" if row.piece_count < FEW_PIECES else "least_fit"].value
    if row.fit_share is None or row.growth_bytes is None or row.fit_share <= least:
        return None
    if row.growth_bytes <= 0 or row.growth_bytes < THRESHOLDS["least_share"].value * row.total_bytes:
        return None
    if (other := _other_growth(row)) is not None:
        return Cleared(f"memory grows by {format_bytes(row.growth_bytes)}, but {other}")
    full_ns = None
    if row.span_ns:
        full_ns = max(row.total_bytes - row.most_bytes, 0) / row.growth_bytes * row.span_ns
    until = f"; the device is full after {format_ns(full_ns)} more" if full_ns else ""
    until = "; then an allocation failed" if row.is_failed else until
    is_seen_from_outside = row.series in {"process", "device"}
    is_moment = is_seen_from_outside and row.span_ns is not None and row.span_ns < THRESHOLDS["least_look_ns"].value
    until += "; looks of a few seconds may be of one request" if is_moment else ""
    is_grave = row.is_failed or (full_ns is not None and full_ns < THRESHOLDS["grave_ns"].value)
    is_sure = row.series == "printed" or (row.series == "allocator" and row.has_stacks)
    culprit: tuple[Evidence, ...] = ()
    if row.series == "allocator" and row.stack is not None and row.held_bytes is not None:
        culprit = (
            Evidence("stack that holds most of what is new", row.stack, ""),
            Evidence("held by it", row.held_bytes, "bytes"),
        )
    return Finding(
        summary=f"{WHAT[row.series]} grows by {format_bytes(row.growth_bytes)} along a line (fit {row.fit_share:.2f}){until}",
        evidence=(
            Evidence("growth", row.growth_bytes, "bytes", Where(device_id=row.device_id, pid=row.pid)),
            Evidence("share of the variance that a line explains", row.fit_share, "share"),
            Evidence("share of the device", row.growth_bytes / row.total_bytes, "share"),
            *culprit,
        ),
        severity=Severity.MEDIUM if is_moment else Severity.CRITICAL if is_grave else Severity.HIGH,
        bytes=row.growth_bytes,
        confidence=0.4 if is_moment else 0.8 if is_sure else 0.65,
    )


FIXES = (
    Fix(
        "pytorch",
        "gc.collect() at the end of a step: if memory falls, break the reference cycle",
        "cycles keep tensors until the cyclic collector runs",
        source="https://github.com/ndif-team/nnsight/issues/169",
    ),
    Fix(
        "pytorch",
        "store .detach().cpu() or numbers, never outputs; remove hooks; torch.inference_mode()",
        "a kept output keeps everything that it was computed from",
        source="https://docs.pytorch.org/docs/stable/notes/faq.html",
    ),
    Fix(
        "pytorch",
        "torch.cuda.memory._record_memory_history(max_entries=100000); _dump_snapshot('snapshot.pickle') after some steps",
        "the snapshot names the stacks whose blocks stay",
        source="https://docs.pytorch.org/docs/stable/torch_cuda_memory.html (checked on 2.13)",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Trend,
    judge=judge,
    fixes=FIXES,
    verify="torch.cuda.memory_allocated() at the same place of each step stays level.",
    doc=__doc__,
    also=(
        Sign(("allocator_level",), ("memory-snapshot",), PRINTED_SQL, Trend, judge),
        Sign(("allocator_event",), ("kineto",), PROFILED_SQL, Trend, judge),
        Sign(("gpu_sample",), ("nvml", "nvidia-smi"), SAMPLED_SQL, Trend, judge),
    ),
)
