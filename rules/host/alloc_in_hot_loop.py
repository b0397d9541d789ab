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
    Rule,
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
)
