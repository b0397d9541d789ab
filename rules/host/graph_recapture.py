"""CUDA graphs are captured or instantiated again while serving.

What happens: a graph fits one batch size and one set of shapes. A batch that no captured size covers makes some engines
capture anew; capture runs the step once without executing it and instantiation takes milliseconds.

How it is detected: more than one capture or instantiation in fifty usual steps. The win is the run replayed without all
that lies between the start of a capture and the end of its instantiation: the step that is run without being executed
costs more than the calls that begin and end it. torch.cuda.graph begins with a wait, a collection of garbage and an
emptied cache, and the first launch of a graph uploads it: these go with it. At most all goes that comes before the launch.

When it is not this: captures before the steady steps are start-up; captures in the first quarter of the steps, and none
behind them, are the first use of each size: they are reported as information. A recording of start-up alone, whose graphs are not
launched, is `capture-fault`.
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
    Severity,
    Stage,
    Target,
    Threshold,
    Verdict,
    Where,
)

ABOUT = About(
    id="graph-recapture",
    title="CUDA graphs are captured again while serving",
    stage=Stage.SPECIFIC,
    reads=("device_op", "thread_call"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_per_step": Threshold(
        0.02, "captures a step", source="rule of thumb: a served batch size recurs within fifty steps"
    ),
    "warm_up_share": Threshold(
        0.25, "share of the steps", source="as in lazy-module-load: what comes in the first quarter is warm-up"
    ),
    "launch_again_ns": Threshold(
        20_000,
        "ns",
        source="H200: 8 to 20 us for a graph of 80 to 700 kernels that was launched before, 260 us for a new one",
    ),
}

SQL = """
SELECT count(*) AS capture_count, coalesce(sum(end_ns - start_ns), 0)::BIGINT AS capture_ns, count(DISTINCT step_id) AS step_with_count,
    (SELECT count(*) FROM step) AS step_count, arg_max(start_ns, end_ns - start_ns) AS longest_start_ns,
    arg_max(end_ns, end_ns - start_ns) AS longest_end_ns, (SELECT until_ns - from_ns FROM steady_window) AS window_ns,
    (SELECT count(*) FROM step WHERE step_id <= (SELECT max(step_id) FROM graph_capture)) AS last_place
FROM graph_capture WHERE step_id IS NOT NULL
"""

CAPTURING = """
    FROM graph_capture AS capture JOIN thread_call AS call ON call.source_id = capture.source_id AND call.pid = capture.pid
        AND call.tid = capture.tid AND call.interval_id BETWEEN capture.interval_id - 2 AND capture.interval_id
    WHERE capture.step_id IS NOT NULL
"""
# the old graph is destroyed where the new one takes its place
OF_THE_CAPTURE = """
    AND NOT is_launching AND (host_call_id BETWEEN prepared_host_call_id AND last_host_call_id OR base_name IN ('cudaGraphDestroy', 'cudaGraphExecDestroy'))
"""
# a graph's first launch uploads it; the later ones do not
LAUNCH_AGAIN = f"""
    SELECT host_call_id, least(end_ns - start_ns, coalesce((
        SELECT median(end_ns - start_ns) FROM thread_call ANTI JOIN graph_capture USING (source_id, pid, tid, interval_id) WHERE call_class = 'graph'
    ), {THRESHOLDS["launch_again_ns"].value:.0f}))
    FROM (SELECT host_call_id, call.start_ns, call.end_ns {CAPTURING} AND call_class = 'graph' AND call.interval_id = capture.interval_id)
"""

CURE = Cure(
    steps=(
        CureStep(Target.HOST_CALL, Act.REMOVE, f"SELECT host_call_id {CAPTURING} {OF_THE_CAPTURE}"),
        CureStep(
            Target.SILENCE,
            Act.SET_DURATION_NS,
            f"SELECT host_call_id, 0 {CAPTURING} AND host_call_id > prepared_host_call_id AND host_call_id <= last_host_call_id",
        ),
        CureStep(Target.HOST_CALL, Act.SET_DURATION_NS, LAUNCH_AGAIN),
    ),
    at_most=(
        CureStep(Target.HOST_CALL, Act.REMOVE, f"SELECT host_call_id {CAPTURING} AND NOT is_launching"),
        CureStep(Target.SILENCE, Act.SET_DURATION_NS, f"SELECT host_call_id, 0 {CAPTURING}"),
    ),
)


class Captures(NamedTuple):
    """Graph captures inside steps."""

    capture_count: int
    capture_ns: int
    step_with_count: int
    step_count: int
    longest_start_ns: int | None
    longest_end_ns: int | None
    window_ns: int
    last_place: int


def judge(row: Captures) -> Verdict:
    """Captures that come back."""
    if row.step_with_count < 2 or row.capture_count <= THRESHOLDS["min_per_step"].value * row.step_count:
        return None
    is_warm_up = row.last_place <= THRESHOLDS["warm_up_share"].value * row.step_count
    when = f", and in none after the first {row.last_place} (warm-up)" if is_warm_up else ""
    return Finding(
        summary=f"{row.capture_count} graphs were captured or instantiated in {row.step_with_count} of {row.step_count} steps{when}",
        evidence=(
            Evidence(
                "captures per step",
                row.capture_count / row.step_count,
                "captures",
                Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns),
            ),
            Evidence("time in captures", row.capture_ns / row.window_ns, "share of window"),
        ),
        cure=CURE,
        confidence=0.8,
        label="at the first use of each size" if is_warm_up else "",
        max_severity=Severity.INFO if is_warm_up else Severity.CRITICAL,
        cleared=f"{row.capture_count} graph captures in the steps, but they cost little",
    )


FIXES = (
    Fix(
        "pytorch",
        "keep each torch.cuda.CUDAGraph and replay() it: one for each batch bucket, captured before serving; pad batches to a bucket",
        "a graph is launched again in microseconds; no step meets a new size",
        source="https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs",
    ),
    Fix(
        "vllm",
        "--max-cudagraph-capture-size (before 0.11: --cuda-graph-sizes) covering --max-num-seqs",
        "every batch size pads to a captured one",
        source="https://docs.vllm.ai/en/latest/design/cuda_graphs.html",
    ),
    Fix(
        "sglang",
        "--cuda-graph-bs / --cuda-graph-max-bs covering --max-running-requests",
        "every batch pads to a captured one",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "cuda_graph_config: {enable_padding: true}",
        "batches pad to a captured size",
        source="https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html",
    ),
    Fix(
        "transformers",
        'cache_implementation="static" and inputs padded to a multiple',
        "torch.compile meets the same shapes",
        source="https://huggingface.co/docs/transformers/llm_optims",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Captures,
    judge=judge,
    fixes=FIXES,
    verify="record again: no capture or instantiation inside steps.",
    doc=__doc__,
)
