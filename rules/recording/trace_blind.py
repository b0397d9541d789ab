"""The recording cannot show the cause: kernels hidden in graphs, no calls, no host side.

What happens: a recording at graph level has one row a CUDA graph launch; what runs inside is hidden. A trace without
host calls cannot say why the device idles. Both are easily read as health, or as idleness.

How it is detected: graph rows that hold most of the device's time; device work without any API call; ranks that the
recordings say there are and that are missing from the evidence; sums of `nsys stats` or nvprof without the recording that they were made from; where
these hold NVTX ranges that take far longer than all kernels together, that is asked first.

When it is not this: a graph row is busy time, never idle time, and steps are still seen. Missing launches are
`capture-fault`.
"""

from typing import NamedTuple

from doctor.rule import (
    About,
    Evidence,
    Finding,
    Fix,
    Rule,
    Severity,
    Sign,
    Stage,
    Threshold,
    Verdict,
)
from doctor.units import format_ns

ABOUT = About(
    id="trace-blind",
    title="The recording hides what would tell the cause",
    stage=Stage.RECORDING,
    reads=("device_op",),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_graph_share": Threshold(0.5, "share of device time", source="below this the visible kernels lead"),
    "min_ranges": Threshold(5, "ranges of one name", source="fewer are the phases of a program, loading among them"),
    "min_range_idle": Threshold(0.3, "share of the ranges' time", source="sgl-project/sglang-omni#907: as of dispatch"),
}

SQL = """
WITH work AS (
    SELECT coalesce(sum(end_ns - start_ns) FILTER (kind = 'graph'), 0)::BIGINT AS graph_ns, sum(end_ns - start_ns)::BIGINT AS all_ns,
        count(*) FILTER (kind = 'graph') AS graph_count, count(*) FILTER (kind = 'kernel') AS kernel_count
    FROM device_op, steady_window WHERE start_ns >= from_ns AND start_ns < until_ns
)
SELECT graph_ns, all_ns, graph_count, kernel_count, (SELECT count(*) FROM launch) AS launch_count,
    (SELECT string_agg(DISTINCT kind, ', ') FROM source JOIN timeline_source USING (source_id)) AS source_kind,
    (SELECT count(*) FROM source JOIN timeline_source USING (source_id) WHERE NOT is_complete) AS damaged_count
FROM work
"""


class Visibility(NamedTuple):
    """What of the device's work can be seen."""

    graph_ns: int
    all_ns: int | None
    graph_count: int
    kernel_count: int
    launch_count: int
    source_kind: str | None
    damaged_count: int


def judge(row: Visibility) -> Verdict:
    """Name what is hidden."""
    if not row.all_ns:
        return None
    if row.launch_count == 0 and row.damaged_count:
        return Finding(
            summary="the file could be read in part only, and no launch that belongs to the device's work is in that part: why"
            " the device idles cannot be told",
            evidence=(Evidence("launches joined to device work", 0.0, "launches"),),
            severity=Severity.HIGH,
            confidence=0.95,
            label="the file is damaged",
            fixes=(WHOLE_FILE,),
            verify="diagnose the whole file: launches stand beside the device's work.",
        )
    if row.launch_count == 0:
        return Finding(
            summary="the recording holds device work but no launch that belongs to it: why the device idles cannot be told",
            evidence=(Evidence("launches joined to device work", 0.0, "launches"),),
            severity=Severity.INFO,
            confidence=0.95,
            fixes=HOST_FIXES,
            verify="record again: launches stand beside the device's work.",
        )
    share = row.graph_ns / row.all_ns
    if share < THRESHOLDS["min_graph_share"].value:
        return None
    return Finding(
        summary=f"{share:.0%} of the device's time lies in {row.graph_count} CUDA graph launches recorded as one row each;"
        " their kernels are hidden",
        evidence=(Evidence("device time inside graph rows", share, "share of device time"),),
        severity=Severity.INFO,
        confidence=0.95,
        fixes=GRAPH_FIXES,
        verify="record again: kernels are seen inside graph launches.",
    )


class Missing(NamedTuple):
    """Ranks that were not recorded."""

    world_size: int
    recorded_count: int
    rank: int
    missing_ranks: str


def judge_missing(row: Missing) -> Verdict:
    """Say which ranks are missing: the slow one may be among them."""
    seen = f"rank {row.rank} was" if row.recorded_count == 1 else f"{row.recorded_count} were"
    more = ", ..." if row.world_size - row.recorded_count > 8 else ""
    return Finding(
        summary=f"the job has {row.world_size} ranks and only {seen} recorded (missing: {row.missing_ranks}{more}): waiting for"
        " another rank cannot be told from communication",
        evidence=(Evidence("ranks recorded", row.recorded_count / row.world_size, "share of ranks"),),
        severity=Severity.INFO,
        confidence=0.95,
        fixes=RANK_FIXES,
        verify="give the files of all ranks together: collectives are matched, and each rank's waiting is told.",
    )


SUMS_SQL = """
SELECT count(*) AS row_count, count(DISTINCT run_id) AS run_count, string_agg(DISTINCT report, ', ' ORDER BY report) AS reports FROM profile_work
HAVING count(*) > 0 AND NOT EXISTS (SELECT 1 FROM timeline_source)
"""


class Sums(NamedTuple):
    """Sums of a profile without its time-line."""

    row_count: int
    run_count: int
    reports: str


def judge_sums(row: Sums) -> Verdict:
    """Name what no sum holds."""
    return Finding(
        summary=f"sums of a profile ({row.reports}) tell neither order nor overlap nor idle time, and hold loading and warm-up too: what is said of them"
        " here is a question to the recording, and promises nothing",
        evidence=(Evidence("rows of sums", row.row_count, "rows"),),
        severity=Severity.INFO,
        confidence=0.95,
        fixes=SUMS_FIXES,
        verify="diagnose the recording: each finding has a place on the time-line and a promise.",
        title="Sums alone hide the time-line",
    )


RANGES_SQL = """
WITH outer_range AS (
    SELECT run_id, ltrim(arg_max(name, total_ns), ':') AS range_name, arg_max(call_count, total_ns) AS range_count, max(total_ns) AS range_ns
    FROM profile_work WHERE report = 'range' AND call_count >= $min_ranges AND total_ns > 0 GROUP BY run_id
)
SELECT range_name, range_count, range_ns, kernel_ns FROM outer_range JOIN profile_total USING (run_id)
WHERE kernel_ns > 0 AND NOT EXISTS (SELECT 1 FROM timeline_source) ORDER BY range_ns DESC, run_id LIMIT 1
"""


class RangeSums(NamedTuple):
    """The range that takes most time, and all kernels of the profile."""

    range_name: str
    range_count: int
    range_ns: int
    kernel_ns: int


def judge_ranges(row: RangeSums) -> Verdict:
    """Even if every kernel ran inside them, the device idled for the rest of the ranges."""
    idle = 1 - row.kernel_ns / row.range_ns
    if idle < THRESHOLDS["min_range_idle"].value:
        return None
    return Finding(
        summary=f"{row.range_count:,} ranges `{row.range_name[:60]}` take {format_ns(row.range_ns)} and all kernels together {format_ns(row.kernel_ns)}: the"
        f" device idles for at least {idle:.0%} of them, unless they overlap each other",
        evidence=(
            Evidence("ranges", row.range_ns / 1e9, "s"),
            Evidence("all kernels", row.kernel_ns / 1e9, "s"),
            Evidence("device idle within the ranges, at least", idle, "share"),
        ),
        severity=Severity.MEDIUM,
        confidence=0.6,
        fixes=SUMS_FIXES,
        question="what does the host do meanwhile: launches, waits, work of its own between steps? The recording says, no sum does.",
        title="Ranges take far longer than the kernels in them",
    )


WHOLE_FILE = Fix(
    "system",
    "copy or export the file again, and compare its size with the original's",
    "what is cut off, names of calls among it, cannot be read",
)
SUMS_FIXES = (
    Fix(
        "system",
        "doctor diagnose REPORT.nsys-rep, the file that `nsys stats` was run on; else record again: nsys profile --trace=cuda,nvtx --sample=none"
        " --cpuctxsw=none --cuda-graph-trace=node -o trace COMMAND",
        "gaps, waits and overlap are seen on the time-line",
        source="https://docs.nvidia.com/nsight-systems/UserGuide/index.html",
    ),
)
GRAPH_FIXES = (
    Fix(
        "system",
        "nsys profile --cuda-graph-trace=node for a short window",
        "every kernel of a graph gets its row; it slows graph launches, so keep the window short",
        source="https://docs.nvidia.com/nsight-systems/UserGuide/index.html",
    ),
)
RANK_FIXES = (
    Fix(
        "system",
        "record every rank in the same window, and give all files together: doctor diagnose RANKS/",
        "collectives of all ranks show who is late",
        source="https://docs.pytorch.org/docs/stable/profiler.html",
    ),
)
HOST_FIXES = (
    Fix(
        "system",
        "nsys profile --trace=cuda,nvtx,osrt, started with the process that launches",
        "calls are recorded beside the work of the device",
        source="https://docs.nvidia.com/nsight-systems/UserGuide/index.html",
    ),
    Fix(
        "pytorch",
        "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])",
        "the host side shows why the device waits",
        source="https://docs.pytorch.org/docs/stable/profiler.html",
    ),
)
FIXES = (*GRAPH_FIXES, *RANK_FIXES, *HOST_FIXES)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Visibility,
    judge=judge,
    fixes=FIXES,
    verify="record again: what was hidden is seen, be it kernels inside graph launches, launches, or the other ranks.",
    doc=__doc__,
    also=(
        Sign(
            reads=("missing_rank",),
            needs=("nsys-report", "kineto"),
            sql="SELECT world_size, recorded_count, rank, missing_ranks FROM missing_rank",
            row=Missing,
            judge=judge_missing,
        ),
        Sign(("profile_sum",), ("nsys-report",), RANGES_SQL, RangeSums, judge_ranges),
        Sign(("profile_sum",), ("nsys-report",), SUMS_SQL, Sums, judge_sums),
    ),
)
