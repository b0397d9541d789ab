"""CUDA graphs are captured or instantiated again while serving.

What happens: a graph fits one batch size and one set of shapes. A batch that no captured size covers makes some engines
capture anew; capture runs the step once without executing it and instantiation takes milliseconds.

How it is detected: more than one capture or instantiation in fifty usual steps. The win is the run replayed without these
calls.

When it is not this: captures before the steady steps are start-up. A recording of start-up alone is `capture-fault`.
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
}

SQL = """
SELECT count(*) FILTER (base_name LIKE '%Instantiate%' OR base_name LIKE '%BeginCapture%') AS capture_count,
    coalesce(sum(end_ns - start_ns), 0)::BIGINT AS capture_ns, count(DISTINCT step_id) AS step_with_count,
    (SELECT count(*) FROM step) AS step_count, arg_max(start_ns, end_ns - start_ns) AS longest_start_ns,
    arg_max(end_ns, end_ns - start_ns) AS longest_end_ns, (SELECT until_ns - from_ns FROM steady_window) AS window_ns
FROM thread_call WHERE call_class = 'capture' AND step_id IS NOT NULL
    AND (base_name LIKE '%Instantiate%' OR base_name LIKE '%BeginCapture%' OR base_name LIKE '%EndCapture%')
"""

CURE = Cure(
    steps=(
        CureStep(
            Target.HOST_CALL,
            Act.REMOVE,
            "SELECT host_call_id FROM thread_call WHERE call_class = 'capture' AND step_id IS NOT NULL",
        ),
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


def judge(row: Captures) -> Verdict:
    """Captures that come back."""
    if row.step_with_count < 2 or row.capture_count <= THRESHOLDS["min_per_step"].value * row.step_count:
        return None
    return Finding(
        summary=f"{row.capture_count} graph captures or instantiations in {row.step_with_count} of {row.step_count} steps",
        evidence=(
            Evidence(
                "captures per step",
                row.capture_count / row.step_count,
                "calls",
                Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns),
            ),
            Evidence("time in capture calls", row.capture_ns / row.window_ns, "share of window"),
        ),
        cure=CURE,
        confidence=0.8,
        cleared=f"{row.capture_count} graph captures in the steps, but they cost little",
    )


FIXES = (
    Fix(
        "pytorch",
        "capture every batch bucket before serving; pad batches to a bucket",
        "no step meets a new size",
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
