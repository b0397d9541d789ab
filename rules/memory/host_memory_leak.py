"""A process' host memory grows until the container is ended.

What happens: the server keeps something in ordinary memory for every request: finished requests, multimodal inputs, log lines, pinned
buffers. Nothing is wrong on the GPU; after hours or days the kernel ends the process at the container's limit.

How it is detected: resident memory of a process, sampled over time, rises along a line (a line explains at least 90 % of it) by more
than 1 % of the limit an hour. The limit is the container's, else the machine's memory; where neither is
known, by a tenth of what the process holds an hour, and less surely. Or the kernel log says that it ended a process
for want of memory, and how much that one held: whether it had grown, or was too large from the start, a log from before tells.

When it is not this: memory that rises while a model is loaded or a cache warms up, then stays. Memory of the device:
`memory-leak-growth`.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict, Where
from doctor.units import format_bytes, format_ns

ABOUT = About(
    id="host-memory-leak",
    title="Host memory runs out",
    stage=Stage.MEMORY,
    reads=("host_process",),
    needs=("cgroup", "nvml"),
)

THRESHOLDS = {
    "least_fit": Threshold(0.9, "share of the variance that a line explains", source="as for device memory"),
    "least_rate": Threshold(0.01, "of the limit, an hour", source="rule of thumb: full within four days"),
    "least_own_rate": Threshold(
        0.1, "of what the process holds, an hour", source="rule of thumb: a cache is full by then"
    ),
    "least_gib": Threshold(1, "GiB of a process that the kernel ended", source="loading a model takes several"),
}
HOUR_NS = 3600e9

SQL = """
SELECT trend.pid, any_value(name) AS name, any_value(fit_share) AS fit_share, any_value(growth_bytes) AS growth_bytes, any_value(most_bytes) AS most_bytes,
    any_value(span_ns) AS span_ns, (SELECT coalesce(min(memory_limit_bytes), max(memory_total_bytes)) FROM host_sample) AS limit_bytes
FROM memory_trend AS trend LEFT JOIN host_process ON host_process.pid = trend.pid AND host_process.source_id = trend.source_id
WHERE series = 'host' AND span_ns > 0
GROUP BY trend.source_id, trend.pid
ORDER BY (any_value(fit_share) > $least_fit) DESC, any_value(growth_bytes) / any_value(span_ns) DESC LIMIT 1
"""


class Growth(NamedTuple):
    """The process whose memory rises most steadily."""

    pid: int | None
    name: str | None
    fit_share: float | None
    growth_bytes: int | None
    most_bytes: int
    span_ns: int
    limit_bytes: int | None


def judge(row: Growth) -> Verdict:
    """A line, steep enough for the limit."""
    if row.fit_share is None or row.growth_bytes is None or row.fit_share <= THRESHOLDS["least_fit"].value:
        return None
    an_hour = row.growth_bytes / row.span_ns * HOUR_NS
    if row.limit_bytes is None:
        return _without_limit(row, an_hour)
    if an_hour < THRESHOLDS["least_rate"].value * row.limit_bytes:
        return None
    left_ns = max(row.limit_bytes - row.most_bytes, 0) / an_hour * HOUR_NS
    return Finding(
        summary=f"{_process(row)} grows by {format_bytes(an_hour)} an hour: the limit of"
        f" {format_bytes(row.limit_bytes)} is reached in {format_ns(left_ns)}",
        evidence=(
            Evidence("growth an hour", an_hour, "bytes", Where(pid=row.pid)),
            Evidence("share of the limit, an hour", an_hour / row.limit_bytes, "share"),
            Evidence("share of the variance that a line explains", row.fit_share, "share"),
        ),
        severity=Severity.HIGH,
        bytes=row.growth_bytes,
        confidence=0.75,
    )


def _without_limit(row: Growth, an_hour: float) -> Verdict:
    """How long it lasts is not known; that it does not end is."""
    growth = row.growth_bytes or 0
    if growth < THRESHOLDS["least_gib"].value * 2**30 or an_hour < THRESHOLDS["least_own_rate"].value * row.most_bytes:
        return None
    return Finding(
        summary=f"{_process(row)} grows by {format_bytes(an_hour)} an hour along a line; the limit of the host or its container is not known",
        evidence=(
            Evidence("growth an hour", an_hour, "bytes", Where(pid=row.pid)),
            Evidence("share of the variance that a line explains", row.fit_share or 0.0, "share"),
        ),
        severity=Severity.MEDIUM,
        bytes=growth,
        confidence=0.6,
    )


KILLED_SQL = """
WITH killed AS (
    SELECT *, try_cast(regexp_extract(message, 'anon-rss:(\\d+)kB', 1) AS BIGINT) * 1024 AS held_bytes
    FROM kernel_log_event WHERE event_kind = 'oom_kill'
)
SELECT count(*) OVER () AS kill_count, pid, name, held_bytes FROM killed ORDER BY held_bytes DESC NULLS LAST, time_ns LIMIT 1
"""


class Killed(NamedTuple):
    """The largest process that the kernel ended."""

    kill_count: int
    pid: int | None
    name: str | None
    held_bytes: int | None


def judge_killed(row: Killed) -> Verdict:
    """The kernel's own words; a process of a few hundred MiB is a bystander of somebody else's want."""
    if row.held_bytes is not None and row.held_bytes < THRESHOLDS["least_gib"].value * 2**30:
        return None
    name = f" ({row.name})" if row.name else ""
    held = f", which held {format_bytes(row.held_bytes)} of memory" if row.held_bytes else ""
    more = f"; {row.kill_count - 1} more were ended" if row.kill_count > 1 else ""
    return Finding(
        summary=f"the kernel ended process {row.pid}{name}{held}, since the host or its container had no more{more}",
        evidence=(
            Evidence("host memory of the process", row.held_bytes or 0, "bytes", Where(pid=row.pid)),
            Evidence("processes ended", row.kill_count, "processes"),
        ),
        severity=Severity.CRITICAL,
        bytes=row.held_bytes,
        confidence=0.85,
        label="ended by the kernel",
        fixes=KILLED_FIXES,
    )


def _process(row: Growth) -> str:
    """As far as the samples name it."""
    name = f" ({row.name})" if row.name else ""
    return f"the process{name}" if row.pid is None else f"process {row.pid}{name}"


KILLED_FIXES = (
    Fix(
        "system",
        "more memory for the container or machine: docker run --memory, resources.limits.memory, [wsl2] memory= in .wslconfig; or swap",
        "weights pass through host memory while they are loaded",
        source="https://learn.microsoft.com/en-us/windows/wsl/wsl-config, https://kubernetes.io/docs/tasks/configure-pod-container/assign-memory-resource/",
    ),
    Fix(
        "transformers",
        'safetensors in place of .bin files; device_map="auto" or low_cpu_mem_usage=True',
        "the model is no longer built in host memory before it is filled",
        source="https://huggingface.co/docs/transformers/big_models",
    ),
    Fix(
        "vllm",
        "--cpu-offload-gb lower or 0; --swap-space lower where the version has it",
        "each of them is host memory, for each rank",
        source="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html (checked on main of 2026), https://docs.vllm.ai/en/v0.4.0.post1/genindex.html",
    ),
)
FIXES = (
    Fix(
        "system",
        "tracemalloc or memray attach PID on that process",
        "names what is kept",
        source="https://bloomberg.github.io/memray/attach.html",
    ),
    Fix(
        "vllm",
        "--mm-processor-cache-gb lower for multimodal models; a newer version",
        "inputs of images are cached in host memory, 4 GiB a process unless set",
        source="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html (checked on main of 2026)",
    ),
    Fix(
        "system",
        "a restart policy with a memory limit below the node's",
        "the server comes back before it takes the node down",
        source="https://kubernetes.io/docs/tasks/configure-pod-container/assign-memory-resource/",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Growth,
    judge=judge,
    fixes=FIXES,
    verify="resident memory stays level for a day under the same load.",
    doc=__doc__,
    also=(Sign(("kernel_log_event",), ("kernel-log",), KILLED_SQL, Killed, judge_killed),),
)
