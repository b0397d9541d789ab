"""One far event stretches the recording: a single gap is most of all idle time.

What happens: a copy or a kernel long before or after the work of interest lies in the same file. Any tool that divides
busy time by the length of the file reports a device that is 98 % idle.

How it is detected: one gap of at least half the recording with less than a hundredth of the work on one side. The
window is cut there, and that is said.

When it is not this: a long gap with work on both sides is a pause of the run.
"""

from typing import NamedTuple

from doctor.rule import (
    About,
    Evidence,
    Finding,
    Fix,
    Rule,
    Severity,
    Stage,
    Threshold,
    Verdict,
    Where,
)

ABOUT = About(
    id="stray-event-window",
    title="One far event stretches the recording",
    stage=Stage.RECORDING,
    reads=("device_op",),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_gap_share": Threshold(
        0.5, "share of the recording", source="a public SGLang trace: one gap is 99.8 % of all idle time"
    ),
    "max_work_share": Threshold(0.01, "share of the work", source="the same trace"),
}

SQL = """
SELECT start_ns, end_ns, side, share_of_idle, share_of_work_cut, count(*) OVER () AS gap_count
FROM stray_gap ORDER BY end_ns - start_ns DESC LIMIT 1
"""


class StrayGap(NamedTuple):
    """The gap at which the window was cut."""

    start_ns: int
    end_ns: int
    side: str
    share_of_idle: float
    share_of_work_cut: float
    gap_count: int


def judge(row: StrayGap) -> Verdict:
    """Say what was cut."""
    return Finding(
        summary=f"one gap of {(row.end_ns - row.start_ns) / 1e6:.0f} ms is {row.share_of_idle:.1%} of all idle time; the"
        f" {row.share_of_work_cut:.2%} of the work {row.side} it was left out of the window",
        evidence=(
            Evidence(
                "gap",
                (row.end_ns - row.start_ns) / 1e6,
                "ms",
                Where(start_ns=row.start_ns, end_ns=row.end_ns),
            ),
            Evidence("share of all idle time", row.share_of_idle, "share of idle"),
        ),
        severity=Severity.INFO,
        confidence=0.95,
    )


FIXES = (
    Fix(
        "system",
        "nsys profile --capture-range=cudaProfilerApi; torch.profiler.schedule(wait=1, warmup=1, active=3)",
        "only the steps of interest are recorded",
        source="https://docs.nvidia.com/nsight-systems/UserGuide/index.html",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=StrayGap,
    judge=judge,
    fixes=FIXES,
    verify="record again: the window in the diagnosis is the whole recording.",
    doc=__doc__,
)
