"""Device memory is allocated or freed inside the step: cudaMalloc, cudaFree, empty_cache.

What happens: cudaMalloc and cudaFree go to the driver, take 10 us to milliseconds, and cudaFree waits for the device.
A caching allocator makes them vanish after warm-up; emptying its cache every step, or running without it, brings them
back.

How it is detected: more than one allocation call in ten usual steps. The win is the run replayed without these calls
and without their waits.

When it is not this: allocations while a server warms up, or while a longer sequence first arrives, come once. Where the
run is bound by dispatch anyway, a handful of calls a step wins little, and that is said.
"""

from typing import NamedTuple

from doctor.rule import (
    About,
    Act,
    Cure,
    CureStep,
    Evidence,
    Finding,
    Fix,
    ProgramKind,
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
    id="alloc-in-hot-loop",
    title="Device memory is allocated inside the step",
    stage=Stage.SPECIFIC,
    reads=("device_op", "thread_call"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_per_step": Threshold(0.1, "allocation calls a step", source="own H200 recordings; FlashMLA PR#87"),
    "min_sum_calls": Threshold(1000, "calls", source="a caching allocator makes some hundreds while it fills its pool"),
    "most_apart": Threshold(100, "kernels a call", source="at least one in every few layers"),
    "min_sum_share": Threshold(0.1, "share of the time in calls", source="below it they cost next to nothing"),
    "min_steps": Threshold(
        3, "steps with allocations", source="a cause seen once or twice is not what the run is made of"
    ),
}

SQL = """
SELECT count(*) AS call_count, count(DISTINCT step_id) AS step_with_count, coalesce(sum(end_ns - start_ns), 0)::BIGINT AS call_ns,
    (SELECT count(*) FROM usual_step) AS step_count, mode(base_name) AS usual_name,
    arg_max(start_ns, end_ns - start_ns) AS longest_start_ns, arg_max(end_ns, end_ns - start_ns) AS longest_end_ns,
    (SELECT until_ns - from_ns FROM steady_window) AS window_ns
FROM thread_call
WHERE step_kind = 'usual' AND call_class = 'alloc'
"""

CURE = Cure(
    steps=(
        CureStep(
            Target.HOST_CALL,
            Act.REMOVE,
            "SELECT host_call_id FROM thread_call WHERE step_kind = 'usual' AND call_class = 'alloc'",
        ),
    ),
)


class Allocations(NamedTuple):
    """Allocation calls in the usual steps of the window."""

    call_count: int
    step_with_count: int
    call_ns: int
    step_count: int
    usual_name: str | None
    longest_start_ns: int | None
    longest_end_ns: int | None
    window_ns: int


def judge(row: Allocations) -> Verdict:
    """Allocation calls that come back step after step."""
    if row.step_with_count < THRESHOLDS["min_steps"].value:
        return None
    per_step = row.call_count / max(row.step_count, 1)
    if per_step <= THRESHOLDS["min_per_step"].value:
        return None
    return Finding(
        summary=f"{per_step:,.1f} allocation calls a step, mostly {row.usual_name}, take"
        f" {row.call_ns / row.window_ns:.0%} of the window",
        evidence=(
            Evidence("allocation calls per step", per_step, "calls"),
            Evidence("time in allocation calls", row.call_ns / row.window_ns, "share of window"),
            Evidence(
                "longest call",
                ((row.longest_end_ns or 0) - (row.longest_start_ns or 0)) / 1e3,
                "us",
                Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns),
            ),
        ),
        cure=CURE,
        confidence=0.9,
        cleared=f"{per_step:,.1f} allocation calls a step, but they cost little here",
    )


SUMS_SQL = """
SELECT alloc_count, alloc_ns, api_ns, greatest(kernel_count, launch_count) AS work_count FROM profile_total
WHERE api_ns > 0 ORDER BY alloc_ns / api_ns DESC, run_id LIMIT 1
"""


class AllocationSums(NamedTuple):
    """Allocating calls of a whole profile against its kernels."""

    alloc_count: int
    alloc_ns: int
    api_ns: int
    work_count: int


def judge_sums(row: AllocationSums) -> Verdict:
    """So many that they cannot all be the start's."""
    share = row.alloc_ns / row.api_ns
    is_often = row.alloc_count * THRESHOLDS["most_apart"].value >= row.work_count
    if row.alloc_count < THRESHOLDS["min_sum_calls"].value or not is_often or share < THRESHOLDS["min_sum_share"].value:
        return None
    return Finding(
        summary=f"{row.alloc_count:,} calls of cudaMalloc and cudaFree for {row.work_count:,} kernels take {share:.0%} of the time in calls; which of them"
        " belong to the start no sum tells",
        evidence=(
            Evidence("allocating calls", share, "share of the time in calls"),
            Evidence("allocating calls", row.alloc_count, "calls"),
        ),
        severity=Severity.MEDIUM,
        confidence=0.6,
        question="look at the recording itself, `doctor diagnose REPORT.nsys-rep`: calls stand in every step, or in the start alone.",
    )


FIXES = (
    Fix(
        "pytorch",
        "remove torch.cuda.empty_cache() and PYTORCH_NO_CUDA_MEMORY_CACHING; allocate workspaces once",
        "the caching allocator answers from its pool",
        source="https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",
    ),
    Fix(
        "pytorch",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "growing sequences extend a segment in place of new cudaMalloc calls",
        source="https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf",
    ),
    Fix(
        "vllm",
        "lower --gpu-memory-utilization by 0.02 to 0.05",
        "allocations during a step mean that the card is full and the allocator retries",
        source="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html",
    ),
    Fix(
        "sglang",
        "lower --mem-fraction-static",
        "leaves the allocator room for activations",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "kv_cache_config: {free_gpu_memory_fraction: lower}",
        "leaves room for activations outside the KV pool",
        source="https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html",
    ),
    Fix(
        "transformers",
        'drop torch.cuda.empty_cache() from callbacks; cache_implementation="static"',
        "the cache is allocated once",
        source="https://huggingface.co/docs/transformers/kv_cache",
        fits=(ProgramKind.GENERATION,),
    ),
    Fix(
        "engine",
        "--after-step keep-cache",
        "freed memory is used again",
        source="python -m engine bench --help",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Allocations,
    judge=judge,
    fixes=FIXES,
    verify="record again: no cudaMalloc or cudaFree after warm-up.",
    doc=__doc__,
    also=(Sign(("profile_sum",), ABOUT.needs, SUMS_SQL, AllocationSums, judge_sums),),
)
