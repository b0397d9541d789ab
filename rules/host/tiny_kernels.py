"""Kernels too small for the device: most run shorter than the host needs to launch one.

What happens: an operator on a few rows takes 2 us on any GPU. Chains of such operators (a norm written as five
element-wise operators, a rotary embedding as eight) cost their launches, not their arithmetic.

How it is detected: at least half of the kernels are shorter than the usual time from launch to launch, and a step has
at least 200 of them. It never owns time: it names the operators to fuse under a run that is bound by dispatch. In the sums of
`nsys stats` and nvprof it speaks for itself: a kernel takes less than its launch at the mean.

When it is not this: small kernels behind a full queue or inside a CUDA graph cost next to nothing; that is said under
ruled out.
"""

from typing import NamedTuple

from doctor.rule import (
    About,
    Evidence,
    Finding,
    Fix,
    ProgramKind,
    Rule,
    Severity,
    Sign,
    Stage,
    Threshold,
    Verdict,
)

ABOUT = About(
    id="tiny-kernels",
    title="Kernels are too small for the device",
    stage=Stage.GENERAL,
    reads=("device_op", "thread_call"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
    group="launch",
    group_rank=2,
)

THRESHOLDS = {
    "min_share": Threshold(
        0.5, "share of kernels", source="own H200 recording of an eager decoder: 9,446 kernels, busy 6.8 %"
    ),
    "min_sum_kernels": Threshold(1000, "kernels", source="fewer are a start, or a few steps of a small model"),
    "min_per_step": Threshold(200, "kernels a step", source="own H200 recordings"),
}

SQL = """
WITH pace AS (
    SELECT median(usual_interval_ns) AS interval_ns
    FROM launch_pace JOIN launching_thread USING (source_id, pid, tid) WHERE is_main
),
kernels AS (
    SELECT end_ns - start_ns AS dur_ns, family
    FROM device_op, steady_window WHERE kind = 'kernel' AND start_ns >= from_ns AND start_ns < until_ns
),
named AS (
    SELECT family, count(*) AS kernel_count FROM kernels, pace WHERE dur_ns < interval_ns
    GROUP BY family ORDER BY kernel_count DESC, family LIMIT 3
)
SELECT count(*) AS kernel_count, count(*) FILTER (dur_ns < interval_ns) AS short_count, any_value(interval_ns) AS interval_ns,
    (SELECT count(DISTINCT step_id) FROM thread_call WHERE step_id IS NOT NULL) AS step_count,
    (SELECT string_agg(family || ' ' || kernel_count, ', ') FROM named) AS families
FROM kernels, pace
"""


class ShortKernels(NamedTuple):
    """Kernels of the window against the pace of their launches."""

    kernel_count: int
    short_count: int
    interval_ns: float | None
    step_count: int
    families: str | None


def judge(row: ShortKernels) -> Verdict:
    """Most kernels are over before the next can be launched."""
    if not row.kernel_count or not row.interval_ns:
        return None
    share = row.short_count / row.kernel_count
    per_step = row.short_count / max(row.step_count, 1)
    if share < THRESHOLDS["min_share"].value or per_step < THRESHOLDS["min_per_step"].value:
        return None
    return Finding(
        summary=f"{share:.0%} of the kernels are shorter than the {row.interval_ns / 1e3:.1f} us from launch to launch;"
        f" most of them: {row.families}",
        evidence=(
            Evidence("kernels shorter than the launch interval", share, "share of kernels"),
            Evidence("short kernels per step", per_step, "kernels"),
        ),
        confidence=0.8,
        cleared=f"{share:.0%} of the kernels are shorter than the time from launch to launch, but launches do not hold the run up",
    )


SUMS_SQL = """
SELECT kernel_count, listed_kernel_ns AS kernel_ns, launch_count, launch_ns, (SELECT string_agg(family || ' ' || part_count, ', ') FROM (
        SELECT family, sum(call_count) AS part_count FROM profile_work WHERE report = 'kernel' AND profile_work.run_id = profile_total.run_id
        GROUP BY family ORDER BY part_count DESC, family LIMIT 3)) AS families
FROM profile_total
WHERE kernel_count > 0 AND launch_count > 0 AND NOT is_graphed ORDER BY launch_ns / greatest(kernel_ns, 1) DESC, run_id LIMIT 1
"""


class LaunchSums(NamedTuple):
    """Launching calls of a whole profile against the kernels."""

    kernel_count: int
    kernel_ns: int
    launch_count: int
    launch_ns: int
    families: str | None


def judge_sums(row: LaunchSums) -> Verdict:
    """A launch takes longer than the kernel it launches: one thread cannot keep the device busy."""
    mean_ns, call_ns = row.kernel_ns / row.kernel_count, row.launch_ns / row.launch_count
    if row.kernel_count < THRESHOLDS["min_sum_kernels"].value or mean_ns > call_ns:
        return None
    return Finding(
        summary=f"{row.kernel_count:,} kernels take {mean_ns / 1e3:.1f} us each and their launches {call_ns / 1e3:.1f} us: a thread that launches them"
        f" cannot keep the device busy; most of them: {row.families}",
        evidence=(
            Evidence("a kernel", mean_ns / 1e3, "us, mean"),
            Evidence("a launch", call_ns / 1e3, "us, mean"),
            Evidence("kernels", row.kernel_count, "kernels"),
        ),
        severity=Severity.MEDIUM,
        confidence=0.65,
        question="look at the recording itself, `doctor diagnose REPORT.nsys-rep`: how long the device idles with an empty queue, which no sum tells.",
    )


FIXES = (
    Fix(
        "pytorch",
        "torch.compile(model); fused RMSNorm, rotary and SiLU-and-multiply kernels",
        "chains of element-wise operators become one kernel",
        source="https://docs.pytorch.org/docs/stable/generated/torch.compile.html",
        fits=(ProgramKind.GENERATION,),
    ),
    Fix(
        "pytorch",
        "torch.compile(model); torch.optim.AdamW(..., fused=True)",
        "chains of element-wise operators become one kernel, and the optimizer is one for all parameters",
        source="https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html",
        fits=(ProgramKind.TRAINING,),
    ),
    Fix(
        "pytorch",
        "torch.compile(model)",
        "norms, activations and other chains of element-wise operators become one kernel",
        source="https://docs.pytorch.org/docs/stable/generated/torch.compile.html",
        fits=(ProgramKind.ENCODER, ProgramKind.VISION),
    ),
    Fix(
        "vllm",
        "keep the compilation level at its default (drop -O0 / --enforce-eager)",
        "norms, rotary and activations run as fused kernels",
        source="https://docs.vllm.ai/en/latest/design/torch_compile.html",
    ),
    Fix(
        "sglang",
        "--enable-torch-compile for small batches",
        "element-wise chains are fused",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "transformers",
        'attn_implementation="sdpa" and torch.compile(model.forward)',
        "fewer, larger kernels a layer",
        source="https://huggingface.co/docs/transformers/llm_optims",
    ),
    Fix(
        "engine",
        "--attention auto --kv paged",
        "one kernel for attention, one for writing the KV cache",
        source="python -m engine bench --help",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=ShortKernels,
    judge=judge,
    fixes=FIXES,
    verify="record again: kernels per step fall.",
    doc=__doc__,
    also=(Sign(("profile_sum",), ABOUT.needs, SUMS_SQL, LaunchSums, judge_sums),),
)
