"""Decode steps run without CUDA graphs: every kernel of every step is launched by the host.

What happens: a decode step repeats the same kernels at the same shapes. Captured once as a CUDA graph, the whole step
is one launch; run eagerly, it is hundreds or thousands of launches, each paid for by the host.

How it is detected: usual steps (those that come back with about the same work) hold no graph launch and more than 200
kernel launches. By itself this wins nothing: it is named only where the run is bound by dispatch, and shares that
gain.

When it is not this: where the device is busy anyway, graphs win little; that is said under ruled out. Graphs that are
captured again and again are a fault of their own.
"""

from typing import NamedTuple

from doctor.rule import (
    About,
    Evidence,
    Finding,
    Fix,
    Rule,
    Stage,
    Threshold,
    Verdict,
    Where,
)

ABOUT = About(
    id="cudagraph-off",
    title="Decode runs without CUDA graphs",
    stage=Stage.GENERAL,
    reads=("device_op", "thread_call"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
    group="launch",
    group_rank=1,
)

THRESHOLDS = {
    "min_launches": Threshold(200, "launches a step", source="vllm-project/vllm#6038 and like reports: 4x from graphs"),
    "min_steps": Threshold(3, "steps", source="a cause seen once or twice is not what the run is made of"),
}

SQL = """
SELECT count(DISTINCT step_id) AS step_count,
    count(*) FILTER (call_class = 'launch') AS launch_count,
    count(*) FILTER (call_class = 'graph') AS graph_launch_count,
    min(start_ns) FILTER (step_id = (SELECT min(step_id) FROM usual_step)) AS first_start_ns,
    max(end_ns) FILTER (step_id = (SELECT min(step_id) FROM usual_step)) AS first_end_ns
FROM thread_call
WHERE step_kind = 'usual'
"""


class StepLaunches(NamedTuple):
    """Launches in the usual steps of the window."""

    step_count: int
    launch_count: int
    graph_launch_count: int
    first_start_ns: int | None
    first_end_ns: int | None


def judge(row: StepLaunches) -> Verdict:
    """Many launches a step and not one graph."""
    if row.step_count < THRESHOLDS["min_steps"].value or row.graph_launch_count:
        return None
    per_step = row.launch_count / row.step_count
    if per_step <= THRESHOLDS["min_launches"].value:
        return None
    return Finding(
        summary=f"{per_step:,.0f} kernel launches a step and no graph launch in {row.step_count} steps",
        evidence=(
            Evidence(
                "kernel launches per step",
                per_step,
                "launches",
                Where(start_ns=row.first_start_ns, end_ns=row.first_end_ns),
            ),
            Evidence("graph launches per step", 0.0, "launches"),
        ),
        confidence=0.9,
        cleared=f"{per_step:,.0f} launches a step without CUDA graphs, but the device does not wait for them",
    )


FIXES = (
    Fix(
        "pytorch",
        "g = torch.cuda.CUDAGraph(); with torch.cuda.graph(g): step(); then g.replay()",
        "the step becomes one launch",
        source="https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs",
    ),
    Fix(
        "vllm",
        "drop --enforce-eager",
        "graphs are on by default",
        source="https://docs.vllm.ai/en/latest/design/cuda_graphs.html",
    ),
    Fix(
        "sglang",
        "drop --disable-cuda-graph",
        "graphs are on by default",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "cuda_graph_config: {}",
        "an empty block switches graphs on",
        source="https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html",
    ),
    Fix(
        "transformers",
        'cache_implementation="static" and torch.compile(model.forward, mode="reduce-overhead")',
        "fixed shapes let the step be captured",
        source="https://huggingface.co/docs/transformers/llm_optims",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=StepLaunches,
    judge=judge,
    fixes=FIXES,
    verify="record again: graph launches equal steps.",
    doc=__doc__,
)
