"""Collectives are not hidden: the device moves data while nothing computes.

What happens: tensor parallelism meets twice a layer. Each meeting moves activations over the link, and the next kernel
needs the result; unless something else can run meanwhile, the transfer stands in the step at its full length.

How it is detected: time in which a device communicates and does not compute, at least 15 % of the window; from 10 % on
it is mentioned, at low severity. Where all ranks were recorded, time spent waiting for the last rank is told from
transfer, and only transfer counts. The win is the run replayed with transfers at 60 %, what fused and overlapped
collectives reach in public cases; all of it is the bound.

When it is not this: waiting for another rank's launches is `host-dispatch-bound` there; waiting for a slow rank is
`straggler-rank`. A trace of one rank cannot tell waiting from transfer: there the finding is a question, promises
nothing, and says how to record the other ranks.
"""

from dataclasses import replace
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
    Sign,
    Stage,
    Target,
    Threshold,
    Verdict,
    Where,
)

ABOUT = About(
    id="comm-exposed",
    title="Communication is not hidden behind computing",
    stage=Stage.SPECIFIC,
    reads=("device_op",),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_share": Threshold(0.15, "share of the window", source="vllm PR#44677: 22 % exposed, a quarter of it won"),
    "warn_share": Threshold(0.1, "share of the window", source="half of it won is 5 %, the least that is measurable"),
    "min_collectives": Threshold(8, "collectives", source="fewer say nothing about a habit"),
    "reachable": Threshold(
        0.6, "of the transfer that is left", source="public cases win 25 to 50 % of the exposed time"
    ),
}

SQL = """
WITH exposed AS (
    SELECT avg(exposed_communication_ns / (until_ns - from_ns)) AS exposed_share FROM device_busy, steady_window
),
transfer AS (
    SELECT coalesce(sum(transfer_ns), 0)::BIGINT AS transfer_ns, coalesce(sum(waiting_ns), 0)::BIGINT AS waiting_ns, count(*) AS member_count
    FROM meeting_member
),
collective_work AS (
    SELECT count(*) AS collective_count, median(end_ns - start_ns) AS median_ns, arg_max(start_ns, end_ns - start_ns) AS longest_start_ns,
        arg_max(end_ns, end_ns - start_ns) AS longest_end_ns
    FROM device_op, steady_window WHERE family = 'collective' AND start_ns >= from_ns AND start_ns < until_ns
)
SELECT exposed_share, transfer_ns, waiting_ns, member_count, collective_count, median_ns, longest_start_ns, longest_end_ns,
    (SELECT count(*) FROM usual_step) AS step_count
FROM exposed, transfer, collective_work
"""

COLLECTIVES = """
    SELECT device_op_id FROM device_op, steady_window
    WHERE family = 'collective' AND start_ns >= from_ns AND start_ns < until_ns
"""


class Exposed(NamedTuple):
    """Communication in the window, mean over devices."""

    exposed_share: float | None
    transfer_ns: int
    waiting_ns: int
    member_count: int
    collective_count: int
    median_ns: float | None
    longest_start_ns: int | None
    longest_end_ns: int | None
    step_count: int


def judge(row: Exposed) -> Verdict:
    """Exposed transfer, less what is waiting."""
    if row.collective_count < THRESHOLDS["min_collectives"].value or row.exposed_share is None:
        return None
    knows_waiting = row.member_count > 0.5 * row.collective_count
    waiting_share = row.waiting_ns / max(row.waiting_ns + row.transfer_ns, 1) if knows_waiting else 0.0
    share = row.exposed_share * (1 - waiting_share)
    if row.exposed_share < THRESHOLDS["warn_share"].value:
        return None
    if share < THRESHOLDS["warn_share"].value:
        return Cleared(
            f"{row.exposed_share:.0%} of the window is exposed communication, but {waiting_share:.0%} of it is waiting for the last rank"
        )
    told = "" if knows_waiting else "; one rank alone cannot tell waiting for another from transfer"
    finding = Finding(
        summary=f"{share:.0%} of the window is communication that nothing hides, {row.collective_count:,} collectives of"
        f" {(row.median_ns or 0) / 1e3:.0f} us{told}",
        evidence=(
            Evidence(
                "exposed communication",
                row.exposed_share,
                "share of window",
                Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns),
            ),
            *(
                (Evidence("of it waiting for the last rank", waiting_share, "share of communication"),)
                if knows_waiting
                else ()
            ),
        ),
        cure=Cure(
            steps=(CureStep(Target.DEVICE_OP, Act.SCALE, COLLECTIVES, value=THRESHOLDS["reachable"].value),),
            is_host_work=False,
            spread=1.5,
        ),
        confidence=0.8 if knows_waiting else 0.55,
        cleared=f"{row.exposed_share:.0%} of the window is exposed communication, but other things hold the run up",
        max_severity=Severity.LOW if share < THRESHOLDS["min_share"].value else Severity.CRITICAL,
    )
    return finding if knows_waiting else _asked(finding)


def _asked(finding: Finding) -> Finding:
    """Seen from one rank, another rank's lateness looks the same."""
    return replace(
        finding,
        label="transfer, or waiting for another rank?",
        fixes=RANK_FIXES,
        max_severity=min(finding.max_severity, Severity.MEDIUM),
        question="give the recordings of all ranks together: what each waits for the last one is then told from transfer, and a win is promised"
        " for the one or the other.",
    )


RANK_FIXES = (
    Fix(
        "pytorch",
        'on every rank, in the same steps: prof.export_chrome_trace(f"rank{torch.distributed.get_rank()}.json"); then doctor diagnose rank*.json',
        "collectives of all ranks are matched, and show who comes last",
        source="https://docs.pytorch.org/docs/stable/profiler.html",
    ),
    Fix(
        "system",
        "torchrun --no-python --nproc-per-node=N nsys profile --trace=cuda,nvtx,osrt -o rank%q{RANK} python PROGRAM; then doctor diagnose rank*.nsys-rep",
        "the same with Nsight Systems: one report a rank",
        source="https://docs.nvidia.com/nsight-systems/UserGuide/index.html",
    ),
)


SUMS_SQL = """
SELECT collective_count, collective_ns, kernel_ns FROM profile_total WHERE kernel_ns > 0 ORDER BY collective_ns / kernel_ns DESC, run_id LIMIT 1
"""


class CollectiveSums(NamedTuple):
    """Collectives of a whole profile against all of its kernels."""

    collective_count: int
    collective_ns: int
    kernel_ns: int


def judge_sums(row: CollectiveSums) -> Verdict:
    """A visible share; whether anything hides it no sum tells."""
    share = row.collective_ns / row.kernel_ns
    if row.collective_count < THRESHOLDS["min_collectives"].value or share < THRESHOLDS["warn_share"].value:
        return None
    return Finding(
        summary=f"{row.collective_count:,} collectives take {share:.0%} of the time of all kernels, {row.collective_ns / row.collective_count / 1e3:.0f} us"
        " each; how much of it computation hides, and how much is waiting for another rank, no sum tells",
        evidence=(
            Evidence("collectives", share, "share of the time of all kernels"),
            Evidence("collectives", row.collective_count, "kernels"),
        ),
        severity=Severity.MEDIUM if share >= THRESHOLDS["min_share"].value else Severity.LOW,
        confidence=0.6,
        question="give the recordings of all ranks, `doctor diagnose RANKS/`: they show which collectives run alone, and who is waited for.",
    )


FIXES = (
    Fix(
        "vllm",
        "keep custom all-reduce on (drop --disable-custom-all-reduce); --enable-dbo; -O.pass_config fuse_allreduce_rms",
        "smaller and overlapped collectives",
        source="https://docs.vllm.ai/en/latest/configuration/optimization.html",
    ),
    Fix(
        "sglang",
        "--enable-two-batch-overlap; keep custom all-reduce on",
        "one half computes while the other communicates",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "allreduce_strategy: AUTO; fused all-reduce and norm",
        "fewer bytes and launches",
        source="https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html",
    ),
    Fix(
        "pytorch",
        "lower the tensor-parallel size and add data-parallel replicas; async tensor parallelism "
        "(torch.distributed._symmetric_memory) in prefill",
        "each device talks less",
        source="https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html",
    ),
    Fix(
        "transformers",
        'tp_plan="auto" on devices joined by NVLink only; otherwise one model a device',
        "the link sets the price",
        source="https://huggingface.co/docs/transformers/perf_infer_gpu_multi",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Exposed,
    judge=judge,
    fixes=FIXES,
    verify="record again: exposed communication is under 10 % of the window.",
    doc=__doc__,
    also=(Sign(("profile_sum",), ABOUT.needs, SUMS_SQL, CollectiveSums, judge_sums),),
)
