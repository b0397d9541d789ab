"""One rank is always late: all others wait for it inside their collectives.

What happens: ranks of one job meet at every collective. One that computes more, runs at a lower clock, sits behind a
slower link or a busier core comes last each time, and the others spin inside their communication kernels. Their
profiles show a run that is bound by communication; hardly a byte is moving.

How it is detected: collectives of all ranks are matched, and for each the rank that came last and how far behind the
next one it was. A straggler comes last in at least 60 % of them and costs at least 5 % of the window. Where it computes
longer than the others the win is the run replayed with its kernels at the others' pace. Kernels are compared by name and
size of grid: what it launches more often than the others is work of its own, the rest is the same work at a slower pace,
and where its kernels are no longer than the others' its host comes late. Each of the three asks for another change. Samples
of the devices, where they are given, say whether its clock or its link is the reason.

When it is not this: ranks that take turns in being late are each bound by their host. Time after the last rank has
come is transfer: `comm-exposed`. A rank whose host comes late under a recorder need not be the one without it, and another
recording of the same run may name another: that is said, and `host-dispatch-bound` says what the host would win. The
sender of a pipeline comes when its stage is done: `pp-bubble`.
"""

from typing import NamedTuple

from doctor.rule import (
    About,
    Act,
    Cleared,
    Cure,
    CureStep,
    Evidence,
    Finding,
    Fix,
    Rule,
    Severity,
    Stage,
    Target,
    Threshold,
    Verdict,
    Where,
)

ABOUT = About(
    id="straggler-rank",
    title="One rank is always late",
    stage=Stage.SPECIFIC,
    reads=("device_op", "meeting_member"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_last_share": Threshold(
        0.6, "share of collectives in which the rank came last", source="rule of thumb; half is chance on two"
    ),
    "min_late_share": Threshold(0.05, "share of the window", source="rule of thumb"),
    "min_own_work_share": Threshold(
        0.5, "share of what it computes longer than the others", source="the larger part names the cause"
    ),
    "min_meetings": Threshold(6, "collectives", source="fewer say nothing about a habit"),
}

SQL = """
WITH worst AS (
    SELECT * FROM meeting_rank ORDER BY late_ns DESC, rank LIMIT 1
),
kernel_use AS (
    SELECT name_id, grid_blocks, end_ns - start_ns AS length_ns, meeting_rank.rank = (SELECT rank FROM worst) AS is_own
    FROM device_op JOIN meeting_rank USING (source_id, pid, device_id), steady_window
    WHERE kind = 'kernel' AND family <> 'collective' AND start_ns >= from_ns AND start_ns < until_ns
),
compared AS (
    SELECT name_id, count(*) FILTER (is_own) AS own_count, sum(length_ns) FILTER (is_own) AS own_ns,
        count(*) FILTER (NOT is_own) / ((SELECT count(*) FROM meeting_rank) - 1) AS others_count
    FROM kernel_use GROUP BY name_id, grid_blocks
),
own_work AS (
    SELECT name_id, sum(own_count - others_count) AS launch_count, sum(own_ns * (own_count - others_count) / own_count) AS work_ns
    FROM compared WHERE own_count > others_count GROUP BY name_id
)
SELECT worst.rank, worst.device_id, worst.pid, worst.meeting_count, worst.last_count, worst.late_ns, worst.compute_ns,
    (SELECT median(compute_ns) FROM meeting_rank, (SELECT rank AS late_rank FROM worst) WHERE rank <> late_rank) AS others_compute_ns,
    (SELECT max(waiting_ns) FROM meeting_rank) AS longest_waiting_ns,
    worst.latest_start_ns, worst.latest_late_ns, (SELECT count(*) FROM meeting_rank) AS rank_count,
    (SELECT until_ns - from_ns FROM steady_window) AS window_ns,
    own.sm_clock_hz AS own_clock_hz, others.sm_clock_hz AS others_clock_hz, coalesce(own.thermal_count, 0) AS own_thermal_count,
    own.pcie_rate_bytes_per_s / others.pcie_rate_bytes_per_s AS link_share,
    (SELECT sum(work_ns) FROM own_work) AS own_work_ns,
    (SELECT text FROM own_work JOIN text ON text_id = name_id ORDER BY work_ns DESC, text LIMIT 1) AS own_kernel,
    (SELECT launch_count FROM own_work JOIN text ON text_id = name_id ORDER BY work_ns DESC, text LIMIT 1) AS own_launch_count,
    (SELECT count(*) FILTER (regexp_matches(lower(text), 'send_?recv|_send|_recv')) / count(*) FROM meeting_member JOIN text ON text_id = name_id
        WHERE is_last_to_come AND (source_id, device_id) = (worst.source_id, worst.device_id)) AS sent_share,
    (SELECT count(DISTINCT (source_id, pid)) FROM meeting_rank) AS process_count
FROM worst
LEFT JOIN gpu_state AS own USING (device_id)
LEFT JOIN (SELECT worst.device_id, median(sm_clock_hz) AS sm_clock_hz, median(pcie_rate_bytes_per_s) AS pcie_rate_bytes_per_s
    FROM gpu_state, worst WHERE gpu_state.device_id <> worst.device_id GROUP BY worst.device_id) AS others USING (device_id)
"""

LATE_HOST = "its kernels are no slower: its host comes late, and under a recorder that may be another rank's next time"
ONE_HOST = "its kernels are no slower: one process launches for all ranks, and for this one last"
MOST_LETTERS = 60
"""Of a kernel's name in a sentence."""
AT_OTHERS_PACE = """
    SELECT device_op_id, $factor AS factor
    FROM device_op JOIN (SELECT * FROM meeting_rank ORDER BY late_ns DESC, rank LIMIT 1) AS worst USING (source_id, pid, device_id),
        steady_window
    WHERE family <> 'collective' AND device_op.start_ns >= from_ns AND device_op.start_ns < until_ns
"""


class LatestRank(NamedTuple):
    """The rank that cost the others most."""

    rank: int
    device_id: int
    pid: int | None
    meeting_count: int
    last_count: int
    late_ns: int
    compute_ns: int
    others_compute_ns: float | None
    longest_waiting_ns: int
    latest_start_ns: int
    latest_late_ns: int
    rank_count: int
    window_ns: int
    own_clock_hz: float | None
    others_clock_hz: float | None
    own_thermal_count: int
    link_share: float | None
    own_work_ns: float | None
    own_kernel: str | None
    own_launch_count: float | None
    sent_share: float | None
    process_count: int

    @property
    def longer_ns(self) -> float:
        """What it computes longer than the others."""
        return self.compute_ns - (self.others_compute_ns or self.compute_ns)

    @property
    def has_own_work(self) -> bool:
        """True where most of that is work that the others do not have."""
        share = (self.own_work_ns or 0.0) / max(self.longer_ns, 1.0)
        return bool(self.own_kernel) and share >= THRESHOLDS["min_own_work_share"].value


def judge(row: LatestRank) -> Verdict:
    """Late by habit, and at a price."""
    last_share, late_share = row.last_count / row.meeting_count, row.late_ns / row.window_ns
    if row.meeting_count < THRESHOLDS["min_meetings"].value or late_share < THRESHOLDS["min_late_share"].value:
        return None
    if last_share < THRESHOLDS["min_last_share"].value:
        return Cleared(
            f"rank {row.rank} is late most, but it comes last in {last_share:.0%} of the collectives only: ranks take turns"
        )
    factor = min((row.others_compute_ns or row.compute_ns) / max(row.compute_ns, 1), 1.0)
    computes_longer = factor < 0.95
    if not computes_longer and (row.sent_share or 0.0) >= THRESHOLDS["min_own_work_share"].value:
        return Cleared(f"rank {row.rank} comes last where it sends: a stage of a pipeline sends when its work is done")
    cure = Cure(
        steps=(CureStep(Target.DEVICE_OP, Act.SCALE, AT_OTHERS_PACE, values={"factor": factor}),),
        is_host_work=False,
        spread=1.5,
    )
    why = _why(row, factor) if computes_longer else ONE_HOST if row.process_count == 1 else LATE_HOST
    why += _seen_on_device(row)
    return Finding(
        summary=f"rank {row.rank} comes last in {row.last_count} of {row.meeting_count} collectives, {late_share:.0%} of the window behind"
        f" the others; {why}",
        evidence=(
            Evidence("late by", late_share, "share of window", _latest(row)),
            Evidence("comes last in", last_share, "share of collectives"),
            Evidence(
                "longest time that another rank waits in collectives",
                row.longest_waiting_ns / row.window_ns,
                "share of window",
            ),
            Evidence("its computing against the others'", 1 / factor, "x"),
        ),
        cure=cure if computes_longer else None,
        # a late host is what host rules are for: they say what it would win
        severity=None if computes_longer else min(Severity.of_share(late_share), Severity.MEDIUM),
        confidence=0.9 if computes_longer else 0.6,
        cleared=f"rank {row.rank} comes last, but the others have work meanwhile",
        label=f"rank {row.rank} (device {row.device_id})",
        fixes=_fixes(row, computes_longer=computes_longer),
    )


def _why(row: LatestRank, factor: float) -> str:
    if not row.has_own_work:
        return f"it runs the same kernels, and they take {1 / factor:.1f}x as long as the others'"
    return f"it computes {1 / factor:.1f}x as long as the others, for work that they do not have: {_own_kernel(row)}"


def _own_kernel(row: LatestRank) -> str:
    name = (row.own_kernel or "").split("(")[0]
    short = name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 3]}..."
    return f"{short}, {row.own_launch_count or 0:,.0f} launches more"


def _fixes(row: LatestRank, *, computes_longer: bool) -> tuple[Fix, ...]:
    """What this straggler asks for first: its own work, its device, or its host; then what evens out ranks anyway."""
    if computes_longer and row.has_own_work:
        first = Fix(
            "pytorch",
            f"take out of rank {row.rank}'s step what it alone launches ({_own_kernel(row)}), or share it among the ranks",
            "extra work of one rank is paid by all: equal shards, equal tokens, no logging or sampling on one rank; a profile with stacks of that rank"
            " names the line that launches it",
            source=_EQUAL_WORK.source,
        )
        return (first, *(fix for fix in FIXES if fix not in (_EQUAL_WORK, _DEVICE)))
    if computes_longer:
        first = Fix(
            "system",
            f"nvidia-smi -i {row.device_id} -q -d CLOCK,PERFORMANCE,POWER,TEMPERATURE, beside another device's; then nvidia-smi -i {row.device_id} -rgc"
            " and -pl as on the others, or run the rank on another device",
            "the same kernels take longer there: a lower clock, heat, a power limit or another tenant",
            source=_DEVICE.source,
        )
        return (first, *(fix for fix in FIXES if fix != _DEVICE))
    if row.process_count == 1:
        return (_OWN_PROCESS, *(fix for fix in FIXES if fix != _DEVICE))
    first = Fix(
        "system",
        f"nvidia-smi topo -m, then start rank {row.rank} under numactl --cpunodebind=N --membind=N with the NUMA node of GPU {row.device_id}",
        "its kernels are as quick as the others', and are launched later: a far socket, a busy core, work on one rank's host",
        source="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
    )
    return (first, *(fix for fix in FIXES if fix != _DEVICE))


def _seen_on_device(row: LatestRank) -> str:
    """What samples of its device say against those of the others."""
    found = []
    if row.own_clock_hz and row.others_clock_hz and row.own_clock_hz < 0.95 * row.others_clock_hz:
        found.append(f"its SM clock is {row.own_clock_hz / 1e6:.0f} MHz, the others' {row.others_clock_hz / 1e6:.0f}")
    if row.own_thermal_count:
        found.append("its device is slowed down by heat")
    if row.link_share is not None and row.link_share < 0.75:
        found.append(f"its PCIe link has {row.link_share:.0%} of the others' speed")
    return f"; {'; '.join(found)}" if found else ""


def _latest(row: LatestRank) -> Where:
    """The time for which the others wait for it longest."""
    start_ns = row.latest_start_ns - row.latest_late_ns
    return Where(start_ns=start_ns, end_ns=row.latest_start_ns, device_id=row.device_id, pid=row.pid)


_OWN_PROCESS = Fix(
    "pytorch",
    "torchrun --nproc-per-node=N with DistributedDataParallel, in place of one process (DataParallel) for all devices",
    "a process for each device launches for it alone, and none waits for its turn",
    source="https://docs.pytorch.org/docs/stable/notes/cuda.html#use-nn-parallel-distributeddataparallel-instead-of-multiprocessing-or-nn-dataparallel",
)
_DEVICE = Fix(
    "system",
    "nvidia-smi -q -d CLOCK,PERFORMANCE,POWER,TEMPERATURE on that device and on another; then equal clocks and power limits (-rgc, -pl),"
    " or another device",
    "a slower clock, heat, a degraded link or another tenant makes one rank late",
    source="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
)
_EQUAL_WORK = Fix(
    "pytorch",
    "give every rank the same work: equal shards, equal tokens; no rank-0-only logging or sampling inside the step",
    "extra work of one rank is paid by all",
    source="https://docs.pytorch.org/docs/stable/distributed.html",
)
FIXES = (
    _DEVICE,
    _EQUAL_WORK,
    Fix(
        "vllm",
        "--enable-eplb for uneven experts; --numa-bind per rank",
        "evens out experts and hosts",
        source="https://docs.vllm.ai/en/latest/configuration/engine_args.html",
    ),
    Fix(
        "sglang",
        "--enable-eplb; pin each rank to its device's socket (--numa-node)",
        "evens out experts and hosts",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "moe_config: {load_balancer: ...}; bind each rank to its socket",
        "evens out experts and hosts",
        source="https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=LatestRank,
    judge=judge,
    fixes=FIXES,
    verify="record all ranks again: no rank comes last in more than half of the collectives, and waiting in them is under 2 %.",
    doc=__doc__,
)
