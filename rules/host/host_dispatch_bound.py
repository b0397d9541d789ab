"""The GPU waits for launches: the host takes longer to launch a kernel than the kernel takes to run.

What happens: every kernel is launched by a call on the host. Eager PyTorch spends 5 to 30 us on each one; a decode step of a small batch needs a
thousand kernels of 2 to 5 us. The stream runs empty after every kernel, and the device idles until the next launch arrives.

How it is detected: a gap on the device counts as caused by dispatch when the operation that ends it started within 10 us of the return of its launch,
so that nothing stood in the queue. The gain is not the sum of those gaps, which would promise ten times too much: the run is replayed with launches of
1.5 us and no ordinary silence between calls, and only in steps that come back at least three times. A prefill that happens once is low at most. Where
several threads of one process launch at the same time, each is replayed as a host of its own; the cure is one of them alone with the rows of all, as
quick as launches are in which the others are not at work. Threads that train are a question. A table of one load at two SM clocks shows it too.

When it is not this: one long silence a step is `step-gap-scheduler`, and so is any silence between graphs that hold whole steps; waits for the device are
`sync-in-step`; cudaMalloc between launches is `alloc-in-hot-loop`; code loading is `lazy-module-load`; the same work cut into pieces is
`micro-batch-too-small`. A recording distorts this rule most of all: the profiler adds 3 to 7 us to every launch, taken out of the expected gain.
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
from doctor.units import format_counted

ABOUT = About(
    id="host-dispatch-bound",
    title="The GPU waits for kernel launches",
    stage=Stage.GENERAL,
    reads=("device_op", "thread_call"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
    group="launch",
    group_rank=0,
)

THRESHOLDS = {
    "min_idle_share": Threshold(0.02, "share of the window", source="below this nothing can be won"),
    "min_steps": Threshold(3, "steps", source="a cause seen once or twice is not what the run is made of"),
    "min_same_share": Threshold(0.8, "share of the kernels", source="one kernel in a loop is its own step"),
    "min_same_kernels": Threshold(100, "kernels", source="fewer may be a start-up"),
    "min_repeated": Threshold(0.8, "share of distinct kernels", source="what a pass launches once comes back in each"),
    "min_clock_ratio": Threshold(1.3, "x", source="less tells little beside the noise of two runs"),
    "min_blocking": Threshold(0.95, "share of launches", source="as in sync-in-step, whose cure they are"),
    "min_waits": Threshold(2, "waits a step", source="one, for its results, comes behind a graph"),
    "max_clock_effect": Threshold(0.34, "of the clock lost", source="sglang-omni#907: -55 % clock, -10 % throughput"),
    "max_clock_busy": Threshold(0.9, "share of the time", source="a device that always works waits for its memory"),
    "launch_ns": Threshold(1_500, "ns a launch", source="a node of a graph, or a lean C++ loop: order of magnitude"),
}

SQL = """SELECT window_ns, device_count, busy_ns, idle_ns, gap_count, longest_start_ns, longest_end_ns, launch_count, step_count, kernel_median_ns, kernel_count, launch_interval_ns, same_count, marked_count, thread_count, repeated_share, load_ns, pause_idle_ns, lock_share, wait_count, graph_step_count, eager_step_count, (SELECT kind FROM program) AS program_kind, blocking_share, EXISTS (SELECT 1 FROM step WHERE chosen_by LIKE '%maybe layers of one attention each') AS is_of_layers
FROM launch_scene
"""


class Dispatch(NamedTuple):
    """Launches and the idle time in front of them, over the window."""

    window_ns: int
    device_count: int
    busy_ns: int
    idle_ns: int | None
    gap_count: int
    longest_start_ns: int | None
    longest_end_ns: int | None
    launch_count: int
    step_count: int
    kernel_median_ns: float | None
    kernel_count: int
    launch_interval_ns: float | None
    same_count: int | None
    marked_count: int
    thread_count: int | None
    repeated_share: float | None
    load_ns: int
    pause_idle_ns: int
    lock_share: float | None
    wait_count: int
    graph_step_count: int
    eager_step_count: int
    program_kind: str | None
    blocking_share: float | None
    is_of_layers: bool

    @property
    def waits_per_step(self) -> float:
        """Calls in a usual step that wait for the device; no graph can hold them."""
        return self.wait_count / max(self.step_count, 1)

    @property
    def replays_graphs(self) -> bool:
        """True where most steps are graphs already, and others are left."""
        least = max(THRESHOLDS["min_steps"].value, self.eager_step_count)
        return self.graph_step_count >= least and self.eager_step_count > 0

    @property
    def free_share(self) -> float:
        """Idle time with an empty queue in which no code was loaded and no thread paused, of the window."""
        free_ns = (self.idle_ns or 0) - self.load_ns * self.device_count - self.pause_idle_ns
        return max(free_ns, 0) / (self.window_ns * max(self.device_count, 1))

    @property
    def is_crowded(self) -> bool:
        """True where threads that launch at the same time go through the same passes again and again."""
        is_long = self.kernel_count >= THRESHOLDS["min_same_kernels"].value
        is_repeated = (self.repeated_share or 0.0) >= THRESHOLDS["min_repeated"].value
        return is_long and is_repeated and self.free_share >= THRESHOLDS["min_idle_share"].value

    @property
    def has_steps(self) -> bool:
        """True where launches are seen in steps that come back: three of them, or one that a mark calls a step."""
        return self.step_count >= THRESHOLDS["min_steps"].value or 0 < self.step_count <= self.marked_count

    @property
    def repeats_one_kernel(self) -> bool:
        """True where there is no step but one kernel after the other, the same again and again."""
        least = max(THRESHOLDS["min_same_share"].value * self.kernel_count, THRESHOLDS["min_same_kernels"].value)
        return not self.step_count and (self.same_count or 0) >= least


def cure(*, recurring: bool) -> Cure:
    """Launches of 1.5 us, no ordinary silence, no housekeeping calls; in usual steps only where `recurring`."""
    where = "call.step_kind = 'usual'" if recurring else "true"
    of_no = "(source_id, pid, tid, interval_id) NOT IN (SELECT source_id, pid, tid, interval_id FROM"
    uncaptured = f"{of_no} graph_capture)"  # what is launched in a capture is that capture's cost
    outside_loads = f"{uncaptured} AND {of_no} code_load)"
    paced = f"SELECT host_call_id FROM thread_call AS call JOIN launch_pace USING (source_id, pid, tid) WHERE {where}"
    calls = f"{paced} AND end_ns - start_ns <= pause_ns"  # what lasts as long as a pause loads a kernel at its first use, or waits
    launches = f"{calls} AND call_class = 'launch' AND {uncaptured}"
    others = f"{calls} AND call_class IN ('other', 'event', 'memset', 'module') AND {outside_loads}"
    silences = f"{paced} AND silence_ns <= pause_ns AND {outside_loads}"
    return Cure(
        steps=(
            CureStep(Target.HOST_CALL, Act.SET_DURATION_NS, launches, value=THRESHOLDS["launch_ns"].value),
            CureStep(Target.HOST_CALL, Act.REMOVE, others),
            CureStep(Target.SILENCE, Act.SET_DURATION_NS, silences, value=0),
        ),
        spread=1.3,
    )


_OTHERS = "SELECT host_call_id FROM crowded_call WHERE launcher_id > 0"
_KEPT = "SELECT host_call_id, left_share FROM crowded_call WHERE launcher_id = 0"
_GROWN = "SELECT device_op_id, 1 / alone_share FROM crowded_op WHERE launcher_id = 0"
BATCHED = Cure(  # one thread launches for all: nobody is in its way, and its kernels hold the rows of all
    steps=(
        CureStep(Target.DEVICE_OP, Act.REMOVE, "SELECT device_op_id FROM crowded_op WHERE launcher_id > 0"),
        CureStep(Target.HOST_CALL, Act.REMOVE, _OTHERS),
        CureStep(Target.SILENCE, Act.REMOVE, _OTHERS),
        CureStep(Target.SILENCE, Act.SCALE, _KEPT),
        CureStep(Target.HOST_CALL, Act.SCALE, f"{_KEPT} AND call_class NOT IN ('sync', 'copy', 'alloc', 'graph')"),
        CureStep(Target.DEVICE_OP, Act.SCALE, _GROWN),
    ),
    spread=2.0,  # as structural cures: fifteen of eighteen recordings of nine programs on an H200 lie within it, fourteen within 1.7
    at_most=(
        CureStep(Target.SILENCE, Act.REMOVE, "SELECT host_call_id FROM crowded_call WHERE is_at_work OR is_loading"),
        *cure(recurring=False).steps,
    ),
)


def judge(row: Dispatch) -> Verdict:
    """Idle time behind an empty queue makes the suspicion; the replay says what it is worth."""
    if not row.device_count or not row.kernel_count:
        return None
    idle_share = (row.idle_ns or 0) / (row.window_ns * row.device_count)
    if idle_share < THRESHOLDS["min_idle_share"].value or row.longest_start_ns is None:
        return None
    if row.launch_count < row.step_count:
        return Cleared(
            f"the device stood idle for {idle_share:.0%} of the window until the next launch came, but a step is replayed as a graph: {format_counted(row.launch_count, 'kernel launch', 'kernel launches')} in {format_counted(row.step_count, 'step')}"
        )
    if row.is_crowded:
        return _training(_crowded(row, idle_share)) if row.program_kind == "training" else _crowded(row, idle_share)
    recurring = row.has_steps
    quick = cure(recurring=recurring)
    if (row.blocking_share or 0) >= THRESHOLDS["min_blocking"].value:  # what waits for its kernel goes on to do so
        quick = replace(quick, steps=quick.steps[1:])
    launches = row.launch_count / row.step_count if recurring else row.launch_count
    per_step = f"{launches:,.0f} launches a step" if recurring else format_counted(row.kernel_count, "kernel")
    if row.replays_graphs:
        per_step = f"{row.graph_step_count} steps replay graphs, {row.eager_step_count} launch each kernel"
    return Finding(
        summary=f"the device ran out of work {format_counted(row.gap_count, 'time')} and stood idle for {idle_share:.0%} of the window until the next launch came ({per_step}, median kernel {(row.kernel_median_ns or 0) / 1e3:.1f} us)",
        evidence=_evidence(
            row,
            Evidence("launches per step" if recurring else "launches", launches, "launches"),
            Evidence("usual time from launch to launch", (row.launch_interval_ns or 0) / 1e3, "us"),
        ),
        cure=quick,
        confidence=0.9 if recurring else 0.6,
        cleared=f"the queue ran empty {format_counted(row.gap_count, 'time')}, but in the steps that come back the launches keep ahead of the device",
        fixes=_fixes(row),
        max_severity=Severity.CRITICAL if recurring or row.repeats_one_kernel else Severity.LOW,
    )


def _evidence(row: Dispatch, *told: Evidence) -> tuple[Evidence, ...]:
    """What every form of the problem shows, around what is its own."""
    window_ns, longest_ns = row.window_ns * row.device_count, (row.longest_end_ns or 0) - (row.longest_start_ns or 0)
    longest = Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns)
    return (
        Evidence("idle with an empty queue", (row.idle_ns or 0) / window_ns, "share of window"),
        *told,
        Evidence("median kernel", (row.kernel_median_ns or 0) / 1e3, "us"),
        Evidence("longest wait for a launch", longest_ns / 1e3, "us", longest),
        Evidence("device busy", row.busy_ns / window_ns, "share of window"),
    )


def _fixes(row: Dispatch) -> tuple[Fix, ...]:
    """Graphs for the steps that have none; where a step waits inside, a graph comes second."""
    if row.replays_graphs:
        left = "steps with prompts" if row.program_kind == "generation" else "steps of other shapes"
        told = f"{row.graph_step_count} steps replay graphs already; the {row.eager_step_count} that do not are {left}, or larger ones"
        first = {fix.target: fix for fix in reversed(FIXES)}
        return tuple(replace(first[target], setting=setting, why=told) for target, setting in WIDER_GRAPHS.items())
    if row.waits_per_step < (0.5 if row.is_of_layers else THRESHOLDS["min_waits"].value):
        return ()
    waited = "waits out of the layers" if row.is_of_layers else f"{row.waits_per_step:,.0f} waits out of the step"
    waits = f"first take the {waited} (.item(), nonzero, .cpu(), synchronize: no graph can hold them); then"
    able = (fix for fix in FIXES if fix.target != "engine" or "--layer-boundary free" in fix.setting)
    return tuple(replace(fix, setting=f"{waits} {fix.setting}") if _is_graph_of_step(fix) else fix for fix in able)


def _is_graph_of_step(fix: Fix) -> bool:
    """A fix that captures the user's own step; engines know what no graph can hold, and batches need none."""
    return fix.target in {"pytorch", "transformers"} and ("Graph" in fix.setting or "compile" in fix.setting)


def _crowded(row: Dispatch, idle_share: float) -> Finding:
    """Threads that stand in each other's way."""
    locked = row.lock_share or 0
    lock = f", {locked:.0%} of it in waits as for Python's interpreter lock" if locked >= 0.05 else ""
    return Finding(
        summary=f"{row.thread_count} threads of one process launch at the same time{lock}; the device ran out of work {format_counted(row.gap_count, 'time')} and stood idle for {idle_share:.0%} of the window until the next launch came"
        f" ({format_counted(row.kernel_count, 'kernel')}, median {(row.kernel_median_ns or 0) / 1e3:.1f} us)",
        evidence=_evidence(
            row,
            Evidence("the same without loads and pauses", row.free_share, "share of window"),
            Evidence("threads that launch at the same time", float(row.thread_count or 0), "threads"),
        ),
        cure=BATCHED,
        confidence=0.85,
        label=f"{row.thread_count} threads launch in each other's way",
        fixes=(*CROWD_FIXES, FIXES[2]),
        verify="record again: one thread launches, few and large kernels, idle with an empty queue under 5 % of the window.",
    )


def _training(crowd: Finding) -> Finding:
    """Each thread trains a model of its own: no batch holds them, and their backward passes share a thread."""
    return replace(
        crowd,
        summary=f"{crowd.summary}; backward passes of one process take turns on the one thread that PyTorch has for a device",
        cure=cure(recurring=False),
        confidence=0.6,
        label=crowd.label.replace("launch in each other's way", "train in each other's way, for how much?"),
        fixes=(*CROWD_FIXES[1:], FIXES[1]),
        max_severity=Severity.MEDIUM,
        question="time one of the threads alone: where it takes much less than all together, each wants a process of its own.",
    )


CLOCK_SQL = "SELECT * FROM clock_pair WHERE $min_clock_ratio * clock_share <= 1 ORDER BY clock_share LIMIT 1"


class Clocks(NamedTuple):
    """One load at two clocks of the device, the widest apart."""

    clock_share: float
    rate_share: float
    slow_busy_share: float | None


def judge_clocks(row: Clocks) -> Verdict:
    """A device that is not waited for may be slowed down."""
    lost, clock_lost, busy = 1 - row.rate_share, 1 - row.clock_share, row.slow_busy_share
    said = f"an SM clock {clock_lost:.0%} lower costs {lost:.0%} of the throughput"
    if lost > THRESHOLDS["max_clock_effect"].value * clock_lost:
        return Cleared(f"{said}: the device's own speed counts")
    if busy is not None and busy >= THRESHOLDS["max_clock_busy"].value:
        return Cleared(f"{said}, but the device works {busy:.0%} of the time: it waits for its memory")
    seen = " unless memory is what it waits for" if busy is None else f" it works {busy:.0%} of the time"
    return Finding(
        summary=f"{said}: the device waits for its launches,{seen}",
        evidence=(Evidence("throughput lost", lost, "share"), Evidence("clock lost", clock_lost, "share")),
        severity=Severity.MEDIUM if busy is None else Severity.HIGH,
        confidence=0.5 if busy is None else 0.75,
    )


CROWD_FIXES = (
    Fix(
        "pytorch",
        "one thread that launches: put the requests of all threads into a queue, and run what is in it as one batch",
        "threads share Python's interpreter lock and launch no faster than one; a batch needs as many launches as one request",
        source="https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution",
    ),
    Fix(
        "pytorch",
        "where requests cannot be batched: a process for each worker (torch.multiprocessing, spawn) and nvidia-cuda-mps-control -d",
        "processes have a lock each, and MPS lets their kernels run side by side",
        source="https://docs.nvidia.com/deploy/mps/index.html",
    ),
)
_GRAPHS = {
    "vllm": "drop --enforce-eager; keep the decode batch within --max-cudagraph-capture-size (before 0.11: --cuda-graph-sizes)",
    "sglang": "drop --disable-cuda-graph; --cuda-graph-max-bs at least the running batch",
    "tensorrt-llm": "cuda_graph_config: {enable_padding: true, max_batch_size: N}",
}
_DOCS = {
    "vllm": "https://docs.vllm.ai/en/latest/design/cuda_graphs.html",
    "sglang": "https://docs.sglang.ai/advanced_features/server_arguments.html",
    "tensorrt-llm": "https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html",
}
_CAPTURABLE = "--cuda-graphs --attention auto --kv paged --layer-boundary free --staging pinned --moe-routing grouped"
_ENGINE = {
    "--cuda-graphs": "a decode step is one graph launch",
    _CAPTURABLE: "leaves out what keeps a step from being recorded as a graph",
    f"{_CAPTURABLE} --weight-offload 0": "and keeps the weights on the device, where they fit: a graph cannot wait for the host",
}
FIXES = (
    Fix(
        "pytorch",
        "several inputs in one pass: batches of like length, padded; what one needs launches as much as many do",
        "a batch is about as quick as one input while the device waits for launches",
        source="own H200 recordings: an encoder is 7x as quick with graphs, 60x with batches",
        fits=(ProgramKind.ENCODER, ProgramKind.VISION),
    ),
    Fix(
        "pytorch",
        "torch.optim.AdamW(..., fused=True), where it is not yet, and torch.compile(model); most is won by a torch.cuda.CUDAGraph around the step",
        "the optimizer launches a few kernels for all parameters, not ten for each",
        source="https://docs.pytorch.org/docs/stable/optim.html#algorithms",
        fits=(ProgramKind.TRAINING,),
    ),
    Fix(
        "pytorch",
        'torch.cuda.CUDAGraph around the step, or torch.compile(model, mode="reduce-overhead")',
        "one graph launch replaces every kernel launch of the step",
        source="https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs",
    ),
    Fix(
        "pytorch",
        "more sequences in each step, where more are waiting: prompts of like length as one padded batch, or continuous batching",
        "a step launches as much for one sequence as for many, and takes about as long",
        source="own H200 recordings: eight sequences together 7.9x as quick as one after the other",
        fits=(ProgramKind.GENERATION,),
    ),
    *(
        Fix(name, setting, "decode steps replay captured graphs", source=_DOCS[name])
        for name, setting in _GRAPHS.items()
    ),
    Fix(
        "transformers",
        'generate(..., cache_implementation="static") after model.forward = torch.compile(model.forward, mode="reduce-overhead")',
        "a static cache keeps shapes fixed, so that the step can be captured",
        source="https://huggingface.co/docs/transformers/llm_optims",
        fits=(ProgramKind.GENERATION,),
    ),
    *(Fix("engine", setting, why, source="python -m engine bench --help") for setting, why in _ENGINE.items()),
)

# Graphs in pieces around attention hold steps of any mix; checked in the documentation of vLLM 0.19, SGLang 0.5 and TensorRT-LLM 1.4.0rc1.
WIDER_GRAPHS = {
    "pytorch": 'pad prompts to a few lengths and capture a graph for each, or torch.compile(model, mode="reduce-overhead") over padded prompts',
    "vllm": '--compilation-config \'{"cudagraph_mode": "FULL_AND_PIECEWISE"}\' and a larger --max-cudagraph-capture-size',
    "sglang": "drop --disable-piecewise-cuda-graph (in older versions --enable-piecewise-cuda-graph); --piecewise-cuda-graph-max-tokens 2048",
    "tensorrt-llm": "prefill_cuda_graph_backend: piecewise, prefill_capture_num_tokens: [...] (before 1.4 torch_compile_config: {enable_piecewise_cuda_graph: true, capture_num_tokens: [...]})",
    "engine": "--cuda-graphs --max-cudagraph-capture-size 2048, or as many tokens as a step with prompts holds (--max-num-batched-tokens)",
}

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Dispatch,
    judge=judge,
    fixes=FIXES,
    verify="record again: one graph launch a step instead of hundreds of kernel launches, idle with an empty queue under 5 % of the window."
    " To be sure beforehand: lower the SM clock by 30 %; a dispatch-bound step gets less than 10 % slower.",
    doc=__doc__,
    also=(Sign(("bench_comparison",), ("bench-table",), CLOCK_SQL, Clocks, judge_clocks),),
)
