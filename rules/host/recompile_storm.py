"""Code is compiled again and again while serving: Dynamo, Inductor, Triton.

What happens: compiled code is guarded by what it was compiled for. A batch size, a length or a flag that no guard admits
makes Dynamo trace and Inductor compile anew, tens of milliseconds to seconds each time; past its limit Dynamo gives up
and runs eagerly. Triton kernels with a tuning key behave alike.

How it is detected: at least three compilations in at least two steps, from the third step on, or in nearly every step
of the recording. A compilation is a frame that Dynamo, Inductor or Triton names in the trace; in recordings without
such names, a pause of 10 ms or more in which a freshly compiled image is loaded (100 ms between steps). The win is the
run replayed without them, without the trials of kernels between them and what comes right before and behind; at most
all long silences of the thread from the first to the last go too. In a log: the line that says that Dynamo has reached its recompile limit, or three
recompilations after the server was ready.

When it is not this: compiling in the first two steps is warm-up. Libraries that load or plan at the first use of a shape
are `lazy-module-load`; graphs captured again are `graph-recapture`.
"""

from dataclasses import replace
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
    Severity,
    Sign,
    Stage,
    Target,
    Threshold,
    Verdict,
    Where,
)
from doctor.units import format_counted

ABOUT = About(
    id="recompile-storm",
    title="Code is compiled again while serving",
    stage=Stage.SPECIFIC,
    reads=("device_op", "thread_call", "step"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_events": Threshold(3, "compilations", source="NVIDIA/TensorRT-LLM#6142: one for every batch size met"),
    "min_steps": Threshold(2, "steps that compile", source="a single step that compiles is late warm-up"),
    "most_known": Threshold(
        0.75, "share of the window", source="own H200 recording: where nearly all is compiling, no step is seen without"
    ),
}

SQL = """
SELECT count(*) AS event_count, count(DISTINCT coalesce(step_id, -start_ns)) AS step_with_count, coalesce(sum(end_ns - start_ns), 0)::BIGINT AS compile_ns,
    mode(seen_as) AS seen_as, arg_max(start_ns, end_ns - start_ns) AS longest_start_ns, arg_max(end_ns, end_ns - start_ns) AS longest_end_ns,
    count(*) FILTER (step_id IS NULL) AS between_count, (SELECT count(*) FROM step) AS step_count, (SELECT until_ns - from_ns FROM steady_window) AS window_ns,
    (SELECT seen_share FROM seen_share WHERE kind = 'compilation') AS seen_share
FROM compile_event WHERE is_late
"""

EVENTS = "(SELECT * FROM compile_event WHERE is_late) AS event"
ON_THREAD = "call.source_id = event.source_id AND call.pid = event.pid AND call.tid = event.tid AND call.start_ns >= event.start_ns"

# Where nothing names a compilation, it is the interval in which its image was loaded. What it also took lies around it, named or not: trials of
# kernels, and frames traced, guards installed, launchers built and libraries loaded within a launch or two; beside what is named, short ones too.
AROUND = f"""
    SELECT source_id, pid, tid, bool_or(is_named) AS is_named, interval_id
    FROM (
        SELECT interval.source_id, interval.pid, interval.tid, interval.interval_id AS first_interval_id, interval.interval_id AS last_interval_id,
            false AS is_named
        FROM long_interval AS interval JOIN {EVENTS}
            ON event.source_id = interval.source_id AND event.pid = interval.pid AND event.tid = interval.tid AND event.start_ns = interval.start_ns
        WHERE NOT event.is_named
        UNION ALL
        SELECT event.source_id, event.pid, event.tid, first.interval_id, last.interval_id, true
        FROM {EVENTS}
        ASOF JOIN launch_interval AS first
            ON first.source_id = event.source_id AND first.pid = event.pid AND first.tid = event.tid AND event.start_ns >= first.start_ns
        ASOF JOIN launch_interval AS last
            ON last.source_id = event.source_id AND last.pid = event.pid AND last.tid = event.tid AND event.end_ns >= last.start_ns
        WHERE event.is_named
        UNION ALL SELECT source_id, pid, tid, first_interval_id, last_interval_id, false FROM tuning_run
    ), unnest(range(first_interval_id - $near, last_interval_id + $near + 1)) AS place(interval_id)
    GROUP BY ALL
"""
NEAR = {"near": 2}
"""Launches."""
LEFT = "least(call.silence_ns, pace.usual_interval_ns)"
"""Of a silence around a compilation: finding the code again takes no less than what comes before any launch."""
IN_TRIALS = """
    FROM thread_call AS call
    JOIN (SELECT source_id, pid, tid, unnest(range(first_interval_id, last_interval_id + 1)) AS interval_id FROM tuning_run)
        USING (source_id, pid, tid, interval_id)
"""
# from the first compilation or trial of a thread to its last
STORM = f"""
    FROM thread_call AS call JOIN launch_pace AS pace USING (source_id, pid, tid)
    JOIN (SELECT source_id, pid, tid, min(interval_id) AS first_interval_id, max(interval_id) AS last_interval_id FROM ({AROUND}) GROUP BY ALL) AS storm
        USING (source_id, pid, tid)
    WHERE call.interval_id BETWEEN storm.first_interval_id AND storm.last_interval_id
"""

CURE = Cure(
    steps=(
        CureStep(
            Target.SILENCE,
            Act.SET_DURATION_NS,
            f"""SELECT call.host_call_id, greatest(call.silence_ns
                - (least(event.end_ns, call.start_ns) - greatest(event.start_ns, call.start_ns - call.silence_ns)), if(call.is_launching AND NOT is_named, {LEFT}, 0)) AS left_ns
            FROM thread_call AS call JOIN launch_pace AS pace USING (source_id, pid, tid) ASOF JOIN {EVENTS} ON {ON_THREAD}
            WHERE call.silence_ns > 0 AND event.end_ns > call.start_ns - call.silence_ns""",
        ),
        CureStep(
            Target.HOST_CALL,
            Act.REMOVE,
            f"""SELECT call.host_call_id FROM thread_call AS call ASOF JOIN {EVENTS} ON {ON_THREAD}
            WHERE call.end_ns <= event.end_ns AND (event.is_named OR call.call_class = 'module')""",
        ),
        CureStep(
            Target.DEVICE_OP,
            Act.REMOVE,
            f"""SELECT device_op_id FROM launch JOIN thread_call AS call USING (host_call_id) ASOF JOIN {EVENTS} ON {ON_THREAD}
            WHERE call.end_ns <= event.end_ns AND event.is_named""",
        ),
        CureStep(
            Target.SILENCE,
            Act.SET_DURATION_NS,
            f"""SELECT call.host_call_id, {LEFT}
            FROM thread_call AS call JOIN ({AROUND}) USING (source_id, pid, tid, interval_id) JOIN launch_pace AS pace USING (source_id, pid, tid)
            WHERE call.silence_ns > if(is_named, pace.usual_interval_ns, pace.pause_ns)""",
            values=NEAR,
        ),
        CureStep(
            Target.HOST_CALL,
            Act.REMOVE,
            f"""SELECT call.host_call_id FROM thread_call AS call JOIN ({AROUND}) USING (source_id, pid, tid, interval_id)
            WHERE call.call_class = 'module'""",
            values=NEAR,
        ),
        CureStep(Target.SILENCE, Act.REMOVE, f"SELECT call.host_call_id {IN_TRIALS}"),
        CureStep(Target.HOST_CALL, Act.REMOVE, f"SELECT call.host_call_id {IN_TRIALS}"),
        CureStep(Target.DEVICE_OP, Act.REMOVE, f"SELECT device_op_id {IN_TRIALS} JOIN launch USING (host_call_id)"),
    ),
    at_most=(
        CureStep(
            Target.SILENCE,
            Act.SET_DURATION_NS,
            f"SELECT call.host_call_id, {LEFT} {STORM} AND call.silence_ns > pace.pause_ns",
            values=NEAR,
        ),
        CureStep(
            Target.HOST_CALL,
            Act.REMOVE,
            f"SELECT call.host_call_id {STORM} AND call.call_class IN ('module', 'sync')",
            values=NEAR,
        ),
    ),
)


class Compilations(NamedTuple):
    """Compilations behind the warm-up, or that never end."""

    event_count: int
    step_with_count: int
    compile_ns: int
    seen_as: str | None
    longest_start_ns: int | None
    longest_end_ns: int | None
    between_count: int
    step_count: int
    window_ns: int
    seen_share: float | None


def judge(row: Compilations) -> Verdict:
    """Compilations that come back."""
    if row.event_count < THRESHOLDS["min_events"].value or row.step_with_count < THRESHOLDS["min_steps"].value:
        return None
    share = row.compile_ns / row.window_ns
    where = f" in {row.step_with_count} of {row.step_count} steps" if not row.between_count else ""
    return Finding(
        summary=f"{format_counted(row.event_count, 'compilation')}{where}, {share:.0%} of the window",
        evidence=(
            Evidence("compilations", float(row.event_count), "compilations"),
            Evidence(
                "time in compilations",
                share,
                "share of window",
                Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns),
            ),
            Evidence("seen as", row.seen_as or "", "name"),
        ),
        cure=replace(
            CURE,
            spread=CURE.spread if share < THRESHOLDS["most_known"].value else 2.0,
            seen_share=row.seen_share or 1.0,
        ),
        confidence=0.85,
        cleared=f"{format_counted(row.event_count, 'compilation')} in the steps, at little cost",
    )


LOG_SQL = """
WITH ready AS (SELECT min(line_id) AS ready_line FROM engine_event WHERE event = 'serving')
SELECT count(*) FILTER (event = 'recompile_limit') AS limit_count, max(amount_count) FILTER (event = 'recompile_limit') AS most,
    count(*) FILTER (event = 'recompiled' AND line_id > coalesce(ready_line, -1)) AS event_count, bool_or(ready_line IS NOT NULL) AS is_ready_known
FROM engine_event, ready
"""


class LimitLines(NamedTuple):
    """Lines of Dynamo."""

    limit_count: int
    most: float | None
    event_count: int
    is_ready_known: bool | None


def judge_log(row: LimitLines) -> Verdict:
    """The limit, or recompilations behind the warm-up."""
    if not row.limit_count and row.event_count < THRESHOLDS["min_events"].value:
        return None
    if row.limit_count:
        shapes = f" after {row.most:.0f} compilations of one function" if row.most else ""
        return Finding(
            summary=f"Dynamo reached its recompile limit{shapes} and runs it eagerly from then on",
            evidence=(Evidence("lines about the limit", float(row.limit_count), "lines"),),
            severity=Severity.HIGH,
            confidence=0.9,
        )
    return Finding(
        summary=f"{format_counted(row.event_count, 'recompilation')} in the log"
        + (" after the server was ready" if row.is_ready_known else ""),
        evidence=(Evidence("recompilations", float(row.event_count), "lines"),),
        severity=Severity.HIGH if row.is_ready_known else Severity.MEDIUM,
        confidence=0.8 if row.is_ready_known else 0.5,
    )


FIXES = (
    Fix(
        "pytorch",
        "torch.compile(model, dynamic=True), or torch._dynamo.mark_dynamic(tensor, dim); TORCH_LOGS=recompiles names the guard;"
        " torch._dynamo.config.recompile_limit above the number of shapes",
        "one compilation serves all sizes",
        source="https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/torch.compiler_dynamic_shapes.html",
    ),
    Fix(
        "vllm",
        "leave the compilation cache on (VLLM_DISABLE_COMPILE_CACHE unset); --compilation-config"
        " '{\"compile_sizes\": [...]}' for the sizes that are served",
        "everything is compiled before the first request",
        source="https://docs.vllm.ai/en/latest/design/torch_compile.html",
    ),
    Fix(
        "sglang",
        "--enable-torch-compile only with --torch-compile-max-bs and captured sizes that cover the load",
        "every batch pads to a compiled size",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "torch_compile_config: {enable_full_graph: true, capture_num_tokens: [...]}",
        "token counts pad to compiled ones",
        source="https://nvidia.github.io/TensorRT-LLM/features/torch_compile_and_piecewise_cuda_graph.html",
    ),
    Fix(
        "transformers",
        'cache_implementation="static" and inputs padded with pad_to_multiple_of',
        "the compiled forward meets the same shapes",
        source="https://huggingface.co/docs/transformers/llm_optims",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Compilations,
    judge=judge,
    fixes=FIXES,
    verify="record again: no compilation after the second step; TORCH_LOGS=recompiles prints nothing while serving.",
    doc=__doc__,
    also=(Sign(("engine_event",), ("engine-log",), LOG_SQL, LimitLines, judge_log),),
)
