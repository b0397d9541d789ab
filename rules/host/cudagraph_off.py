"""Decode steps run without CUDA graphs: every kernel of every step is launched by the host.

What happens: a decode step repeats the same kernels at the same shapes. Captured once as a CUDA graph, the whole step
is one launch; run eagerly, it is hundreds or thousands of launches, each paid for by the host.

How it is detected: usual steps (those that come back with about the same work) hold no graph launch and more than 200
kernel launches. By itself this wins nothing: it is named only where the run is bound by dispatch, and shares that
gain. In a log or a configuration: graphs are switched off (enforce_eager, disable_cuda_graph and the like) and none was
captured, or every decode line says that no graph was replayed (of two to four lines: with less confidence). A table of two runs that differ in graphs only says what they win.

When it is not this: where the device is busy anyway, graphs win little; that is said under ruled out. Graphs that are
captured again and again are a fault of their own.
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
    "min_lines": Threshold(5, "decode lines", source="fewer lines are a moment, not a state"),
    "few_lines": Threshold(
        2, "decode lines", source="SGLang logs one in forty steps: two lines that agree are eighty steps"
    ),
    "small_batch": Threshold(
        8, "requests", source="every engine captures graphs for batches this small, unless told not to"
    ),
    "min_ratio": Threshold(1.1, "x", source="rule of thumb: less is within the noise of a comparison"),
    "eager_cost": Threshold(
        4.1, "x", source="Project-MONAI/VLM-Surgical-Agent-Framework#5: 11.2 against 45.9 tokens a second"
    ),
    "min_steps": Threshold(3, "steps", source="a cause seen once or twice is not what the run is made of"),
}

SQL = """
SELECT count(DISTINCT step_id) AS step_count,
    count(*) FILTER (call_class = 'launch') AS launch_count,
    count(*) FILTER (call_class = 'graph') AS graph_launch_count,
    min(start_ns) FILTER (step_id = (SELECT min(step_id) FROM usual_step)) AS first_start_ns,
    max(end_ns) FILTER (step_id = (SELECT min(step_id) FROM usual_step)) AS first_end_ns,
    (SELECT kind = 'generation' FROM program) AS is_generation
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
    is_generation: bool | None


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
        title="" if row.is_generation else "Steps run without CUDA graphs",
        cleared=f"{per_step:,.0f} launches a step without CUDA graphs, but they do not hold the run up",
    )


SETTING_SQL = """
WITH said AS (SELECT max(spelled) AS spelled, max(engine) AS engine, max(said_by) AS said_by FROM engine_choice WHERE setting = 'eager' AND told = 'true'),
mode AS (SELECT max(spelled) AS mode_spelled FROM engine_choice WHERE setting = 'graph_mode' AND told = 'none'),
seen AS (SELECT count(*) AS eager_events FROM engine_event WHERE event = 'eager'),
captured AS (SELECT count(*) AS capture_count FROM engine_event WHERE event = 'graph_capture_end'),
decode AS (
    SELECT count(graph_share) AS line_count, median(running_count) AS running_median, count(*) FILTER (graph_share < 0.5
            AND running_count <= coalesce((SELECT max(told_count) FROM engine_choice WHERE setting = 'graph_max_batch'), running_count)) AS eager_count
    FROM engine_load WHERE running_count > 0 AND (phase = 'decode' OR (phase = 'state' AND graph_share IS NOT NULL
        AND (EXISTS (SELECT 1 FROM gpu_sample) OR EXISTS (SELECT 1 FROM device))))  -- on a CPU there are no graphs
),
compared AS (
    SELECT max(fast_hz / slow_hz) AS ratio FROM bench_comparison
    WHERE regexp_matches(word, 'graph|eager|mode|condition|config|variant') AND slow_hz IS NOT NULL
        AND CASE WHEN word = 'eager' THEN slow_told IN ('true', 'yes', '1', 'on') ELSE regexp_matches(slow_told, 'eager|off|false|no_graph') END
)
SELECT coalesce(spelled, mode_spelled) AS spelled, engine, said_by, eager_events, capture_count, line_count, eager_count, running_median, ratio
FROM said, mode, seen, captured, decode, compared
WHERE NOT EXISTS (SELECT 1 FROM engine_choice WHERE setting = 'device' AND told = 'cpu')
"""


class EagerByChoice(NamedTuple):
    """What settings, log lines and a comparison say of graphs."""

    spelled: str | None
    engine: str | None
    said_by: str | None
    eager_events: int
    capture_count: int
    line_count: int
    eager_count: int
    running_median: float | None
    ratio: float | None


def judge_setting(row: EagerByChoice) -> Verdict:
    """Switched off, or never replayed; a log that captured graphs clears a mere wish."""
    never = row.line_count >= THRESHOLDS["few_lines"].value and row.eager_count == row.line_count
    is_moment = row.line_count < THRESHOLDS["min_lines"].value
    if never and is_moment and not row.spelled and not row.eager_events:
        return _of_few_lines(row)
    if not row.spelled and not row.eager_events and not (never and not row.capture_count):
        return None
    if row.capture_count and not never:
        return None
    who = row.spelled or ("the log says that graphs are off" if row.eager_events else "no decode line replays a graph")
    bound = row.ratio if row.ratio and row.ratio > 1 else THRESHOLDS["eager_cost"].value
    return Finding(
        summary=f"decode runs without CUDA graphs: {who}"
        + (f"; with them the same load is {row.ratio:.1f} times as fast" if row.ratio and row.ratio > 1 else ""),
        evidence=(
            Evidence("switched off by", row.spelled or "the engine", ""),
            *((Evidence("decode without a graph", 1.0, "share of decode lines"),) if never else ()),
            *(
                (Evidence("requests running", row.running_median, "requests at the median"),)
                if row.running_median
                else ()
            ),
        ),
        severity=Severity.HIGH,
        confidence=0.9 if row.ratio or never else 0.75,
        speedup_bound=bound,
        speedup_expected=row.ratio if row.ratio and row.ratio > 1 else None,
    )


def _of_few_lines(row: EagerByChoice) -> Verdict:
    """A short paste in which every line says the same."""
    if row.capture_count:
        return None  # some graphs there are: the batch is above them, or the lines are of its first moment
    is_small = (row.running_median or 0.0) <= THRESHOLDS["small_batch"].value
    return Finding(
        summary=f"none of the {row.line_count} decode lines replays a CUDA graph: graphs are off"
        + ("" if is_small else f", or {row.running_median:.0f} requests are more than any was captured for"),
        evidence=(
            Evidence("decode without a graph", 1.0, "share of decode lines"),
            Evidence("decode lines", row.line_count, "lines"),
            *(
                (Evidence("requests running", row.running_median, "requests at the median"),)
                if row.running_median
                else ()
            ),
        ),
        severity=Severity.MEDIUM,
        confidence=0.7 if is_small else 0.5,
        speedup_bound=THRESHOLDS["eager_cost"].value,
    )


COMPARED_SQL = """
SELECT fast_hz / slow_hz AS ratio, slow_hz, fast_hz FROM bench_comparison
WHERE word = 'eager' AND slow_told = 'true' AND slow_hz IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM engine_choice WHERE setting = 'eager' AND told = 'true') AND NOT EXISTS (SELECT 1 FROM engine_event WHERE event = 'eager')
ORDER BY ratio DESC LIMIT 1
"""


class Compared(NamedTuple):
    """Two runs of one load, without graphs and with them."""

    ratio: float
    slow_hz: float
    fast_hz: float


def judge_compared(row: Compared) -> Verdict:
    """Graphs win; which of the two runs is in use, nobody says."""
    if row.ratio < THRESHOLDS["min_ratio"].value:
        return None
    return Finding(
        summary=f"without CUDA graphs the same load runs at {row.slow_hz:,.1f} a second in place of {row.fast_hz:,.1f}",
        evidence=(Evidence("with graphs against without", row.ratio, "x"),),
        severity=Severity.MEDIUM,
        confidence=0.6,
        speedup_bound=row.ratio,
        speedup_expected=row.ratio,
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
        fits=(ProgramKind.GENERATION,),
    ),
    Fix(
        "engine",
        "--cuda-graphs",
        "a decode step is one graph launch",
        source="python -m engine bench --help",
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
    also=(
        Sign(("engine_evidence",), ("engine-log", "engine-config"), SETTING_SQL, EagerByChoice, judge_setting),
        Sign(("bench_comparison",), ("bench-table",), COMPARED_SQL, Compared, judge_compared),
    ),
)
