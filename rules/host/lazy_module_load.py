"""Code is loaded or a library builds a plan in the middle of the run, at the first use of a shape.

What happens: CUDA loads modules when a kernel is first used; cuDNN and cuBLAS pick or compile a plan when a shape is
first seen. That takes milliseconds to hundreds of milliseconds on the launching thread, and the device waits. A KV
cache that grows by one position a step shows a new shape every step.

How it is detected: an interval from launch to launch that holds a module call (cuLibraryLoadData, cuModuleLoad...,
...SetAttribute) and over a millisecond of silence and module time, with little waiting in it. The whole interval
counts: the calls themselves are a tenth of it. A PyTorch trace has no module calls; there it is a silence of over a
millisecond under one aten:: operator, or right before a kernel that cuDNN generates.

When it is not this: images that Triton or Inductor just compiled, three times or more, are `recompile-storm`; a silence
without module calls is `step-gap-scheduler`. Loads in the first steps only are warm-up:
they are reported as information.
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
    Stage,
    Target,
    Threshold,
    Verdict,
    Where,
)
from doctor.units import format_counted

ABOUT = About(
    id="lazy-module-load",
    title="Code is loaded or planned during the run",
    stage=Stage.SPECIFIC,
    reads=("device_op", "thread_call"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_share": Threshold(0.02, "share of the window", source="own H200 recordings: 2 to 6 intervals of 43 to 72 ms"),
    "min_longest_ns": Threshold(5_000_000, "ns", source="own H200 recordings"),
    "warm_up_share": Threshold(
        0.25, "share of the window, or of a thread's launches", source="loads in the first quarter are warm-up"
    ),
}

SQL = """
WITH fresh AS (  -- threads may load at the same time
    SELECT *, greatest(start_ns, coalesce(max(end_ns) OVER (
        ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start_ns)) AS fresh_ns
    FROM library_load
),
place AS (  -- by launches: a load that takes half of the time is not late for that
    SELECT max(load.interval_id / launched.interval_count) AS last_launch_share, count(DISTINCT load.tid) AS thread_count
    FROM library_load AS load JOIN (SELECT source_id, pid, tid, max(interval_id) + 1 AS interval_count
        FROM thread_call SEMI JOIN library_load USING (source_id, pid, tid) GROUP BY source_id, pid, tid) AS launched
        USING (source_id, pid, tid)
),
planned AS (  -- the kernel that ends a load, or follows the memset that does, where cuDNN generated it
    SELECT text.text FROM library_load AS load
    JOIN thread_call AS call ON call.source_id = load.source_id AND call.pid = load.pid AND call.tid = load.tid
        AND call.interval_id IN (load.interval_id, load.interval_id + 1)
    JOIN launch USING (host_call_id) JOIN device_op AS op ON op.device_op_id = launch.device_op_id
    JOIN text ON text_id = op.name_id WHERE text LIKE 'cudnn_generated_%'
)
SELECT count(*) AS load_count, coalesce(sum(greatest(end_ns - fresh_ns, 0)), 0)::BIGINT AS load_ns, max(end_ns - start_ns) AS longest_ns,
    arg_max(start_ns, end_ns - start_ns) AS longest_start_ns, arg_max(end_ns, end_ns - start_ns) AS longest_end_ns,
    max(end_ns) AS last_end_ns, count(DISTINCT step_id) AS step_with_count, mode(seen_as) AS seen_as,
    (SELECT count(*) FROM step) AS step_count,
    (SELECT from_ns FROM steady_window) AS from_ns, (SELECT until_ns FROM steady_window) AS until_ns,
    (SELECT mode(regexp_extract(text, '^cudnn_generated_[a-z_]*?(sdpa|conv|matmul|norm)', 1)) FROM planned) AS planned_part,
    (SELECT last_launch_share FROM place) AS last_launch_share, (SELECT thread_count FROM place) AS thread_count
FROM fresh
"""

IN_LOADS = """
    FROM thread_call AS call
    JOIN launch_pace AS pace USING (source_id, pid, tid)
    JOIN library_load AS load
        ON load.source_id = call.source_id AND load.pid = call.pid AND load.tid = call.tid AND load.interval_id = call.interval_id
"""

CURE = Cure(
    steps=(
        CureStep(Target.SILENCE, Act.SET_DURATION_NS, f"SELECT call.host_call_id, pace.usual_silence_ns {IN_LOADS}"),
        CureStep(Target.HOST_CALL, Act.REMOVE, f"SELECT call.host_call_id {IN_LOADS} WHERE call.call_class = 'module'"),
    ),
)


class Loads(NamedTuple):
    """Intervals of the window in which code was loaded or planned."""

    load_count: int
    load_ns: int
    longest_ns: int | None
    longest_start_ns: int | None
    longest_end_ns: int | None
    last_end_ns: int | None
    step_with_count: int
    seen_as: str | None
    step_count: int
    from_ns: int
    until_ns: int
    planned_part: str | None
    last_launch_share: float | None
    thread_count: int


_OPERATIONS = {"sdpa": "attention", "conv": "convolution", "matmul": "matrix product", "norm": "normalisation"}


def judge(row: Loads) -> Verdict:
    """Loads that take a visible part of the window."""
    if not row.load_count or row.longest_ns is None or row.last_end_ns is None:
        return None
    window_ns = row.until_ns - row.from_ns
    share = row.load_ns / window_ns
    if share < THRESHOLDS["min_share"].value and row.longest_ns < THRESHOLDS["min_longest_ns"].value:
        return None
    last_at = (row.last_end_ns - row.from_ns) / window_ns
    is_warm_up = min(last_at, row.last_launch_share or 1.0) <= THRESHOLDS["warm_up_share"].value
    of_threads = is_warm_up and row.thread_count > 1
    when = (
        f" (the first launches of each of {row.thread_count} threads)"
        if of_threads
        else " (warm-up)"
        if is_warm_up
        else " (still going on)"
    )
    planned = _OPERATIONS.get(row.planned_part or "", "")
    steps = f", in {row.step_with_count} of {row.step_count} steps" if row.step_with_count else ""
    return Finding(
        summary=f"{format_counted(row.load_count, 'interval')} of up to {row.longest_ns / 1e6:.0f} ms, {share:.0%} of the window"
        f"{steps}; the last ends at {last_at:.0%} of it{when}",
        evidence=(
            Evidence("time in loading intervals", share, "share of window"),
            Evidence(
                "longest interval",
                row.longest_ns / 1e6,
                "ms",
                Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns),
            ),
            Evidence("seen as", row.seen_as or "", "kind"),
            *((Evidence("a cuDNN plan is built for", planned, "operation"),) if planned else ()),
        ),
        cure=CURE,
        confidence=0.85,
        cleared="code is loaded during the run, but the device had work meanwhile",
        label="once in each thread"
        if of_threads
        else "cuDNN plans attention for each new shape"
        if row.planned_part == "sdpa" and not is_warm_up
        else "",
        fixes=(THREAD_FIX, *FIXES) if of_threads else (),
        # threads that come and go warm up again and again
        max_severity=Severity.LOW if of_threads else Severity.INFO if is_warm_up else Severity.CRITICAL,
    )


THREAD_FIX = Fix(
    "pytorch",
    "keep the threads: a pool that lives as long as the process, or one thread that launches",
    "handles of cuBLAS and cuDNN, and the plans made with them, belong to a thread; a new one builds them again",
    source="https://docs.pytorch.org/docs/stable/notes/cuda.html",
)

FIXES = (
    Fix(
        "pytorch",
        "run every shape bucket once before serving; pad lengths to buckets; CUDA_MODULE_LOADING=EAGER",
        "loading and planning happen before the first request",
        source="https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#lazy-loading",
    ),
    Fix(
        "pytorch",
        "torch.backends.cuda.enable_cudnn_sdp(False), where cuDNN plans attention; or"
        " TORCH_CUDNN_SDPA_AVOID_RECOMPILE=1 (2.9 and later)",
        "flash attention takes any length without a plan; the variable keeps one plan for all lengths",
        source="https://github.com/pytorch/pytorch/pull/155958",
        fits=(ProgramKind.GENERATION, ProgramKind.ENCODER, ProgramKind.TRAINING),
    ),
    Fix(
        "pytorch",
        "torch.backends.cudnn.benchmark = False where the sizes of pictures change; or pad and crop them to a few sizes",
        "with it every size not seen before is run through all algorithms of each convolution",
        source="https://docs.pytorch.org/docs/stable/backends.html#torch.backends.cudnn.torch.backends.cudnn.benchmark",
        fits=(ProgramKind.VISION,),
    ),
    Fix(
        "vllm",
        "keep warm-up and graph capture on (drop --enforce-eager); send one long request before taking traffic",
        "capture runs every batch bucket at start",
        source="https://docs.vllm.ai/en/latest/design/cuda_graphs.html",
    ),
    Fix(
        "sglang",
        "drop --skip-server-warmup",
        "the warm-up request loads what serving needs",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "warm up each batch size and length bucket before measuring",
        "plans are built at first use",
        source="https://nvidia.github.io/TensorRT-LLM/performance/perf-benchmarking.html",
    ),
    Fix(
        "transformers",
        'cache_implementation="static" in place of a cache that grows by torch.cat',
        "KV shapes stay fixed, so no step shows a new one",
        source="https://huggingface.co/docs/transformers/kv_cache",
        fits=(ProgramKind.GENERATION,),
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Loads,
    judge=judge,
    fixes=FIXES,
    verify="run the same shapes a second time and record that: the intervals are gone.",
    doc=__doc__,
)
