"""Long waits in the host's profile that cost nothing: the device was busy all the while.

What happens: a host that is ahead of the device has to wait somewhere, and a Python profile then shows most of the time
in synchronize() or .item(). Nothing is wrong: the device is the bottleneck.

How it is detected: waiting calls take at least a tenth of the window and the device is busy for nine tenths of it. This is
only ever said under ruled out.

When it is not this: where the device idles after the waits, `sync-in-step` says what they cost.
"""

from typing import NamedTuple

from doctor.rule import (
    About,
    Cleared,
    Fix,
    Rule,
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
)
