"""Long waits in the host's profile that cost nothing: the device was busy all the while.

What happens: a host that is ahead of the device has to wait somewhere, and a Python profile then shows most of the time
in synchronize() or .item(). Nothing is wrong: the device is the bottleneck.

How it is detected: waiting calls take at least a tenth of the window and the device is busy for nine tenths of it. This is
only ever said under ruled out. In the sums of `nsys stats` and nvprof: waits take 30 % of the time in calls and more, and there is one for 64
kernels or more.

When it is not this: where the device idles after the waits, `sync-in-step` says what they cost.
"""

from typing import NamedTuple

from doctor.rule import (
    About,
    Cleared,
    Fix,
    Rule,
    Sign,
    Stage,
    Threshold,
    Verdict,
)
from doctor.units import format_counted

ABOUT = About(
    id="sync-wait-only",
    title="The host waits while the device works",
    stage=Stage.GENERAL,
    reads=("device_op", "thread_call"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_wait_share": Threshold(0.1, "share of the window", source="less is not seen in a host profile"),
    "min_sum_share": Threshold(0.3, "share of the time in calls", source="less is not what a reader of sums looks at"),
    "least_apart": Threshold(
        64, "kernels a wait", source="a step of a small model; healthy engines wait once or twice in it"
    ),
    "max_idle_share": Threshold(0.1, "share of the window", source="rule of thumb: the device is the bottleneck"),
}

SQL = """
SELECT coalesce(sum(end_ns - start_ns) // greatest(count(DISTINCT (source_id, pid)), 1), 0)::BIGINT AS wait_ns, count(*) AS wait_count,
    (SELECT until_ns - from_ns FROM steady_window) AS window_ns, (SELECT max(busy_ns) FROM device_busy) AS busy_ns
FROM thread_call WHERE call_class = 'sync' AND is_main
"""


class Waits(NamedTuple):
    """Waiting calls of the main threads, time a thread, against the busiest device."""

    wait_ns: int
    wait_count: int
    window_ns: int
    busy_ns: int | None


def judge(row: Waits) -> Verdict:
    """Clear the waits of a busy device."""
    wait_share, idle_share = row.wait_ns / row.window_ns, 1 - (row.busy_ns or 0) / row.window_ns
    if wait_share < THRESHOLDS["min_wait_share"].value or idle_share > THRESHOLDS["max_idle_share"].value:
        return None
    return Cleared(
        f"{format_counted(row.wait_count, 'wait takes', 'waits take')} {wait_share:.0%} of the host's time, but the device is busy for {1 - idle_share:.0%} of it"
    )


SUMS_SQL = """
SELECT sync_count, sync_ns, api_ns, greatest(kernel_count, launch_count) AS work_count
FROM profile_total WHERE sync_count > 0 AND api_ns > 0 AND NOT is_graphed AND greatest(kernel_count, launch_count) > 0 ORDER BY run_id LIMIT 1
"""


class WaitSums(NamedTuple):
    """Waiting calls of a whole profile against its kernels."""

    sync_count: int
    sync_ns: int
    api_ns: int
    work_count: int


def judge_sums(row: WaitSums) -> Verdict:
    """Long waits that are few: the host is ahead, and waits for what it has queued."""
    share, apart = row.sync_ns / row.api_ns, row.work_count / row.sync_count
    if share < THRESHOLDS["min_sum_share"].value or apart < THRESHOLDS["least_apart"].value:
        return None
    return Cleared(
        f"{format_counted(row.sync_count, 'wait takes', 'waits take')} {share:.0%} of the time in calls, one for {apart:,.0f} kernels: the host waits for"
        " what it has queued"
    )


FIXES = (
    Fix(
        "system",
        "nothing to change on the host: look at the kernels",
        "the device is the bottleneck",
        source="https://docs.nvidia.com/nsight-systems/AnalysisGuide/index.html",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Waits,
    judge=judge,
    fixes=FIXES,
    verify="nothing to verify.",
    doc=__doc__,
    also=(Sign(("profile_sum",), ABOUT.needs, SUMS_SQL, WaitSums, judge_sums),),
)
