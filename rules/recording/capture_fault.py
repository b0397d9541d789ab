"""The recording misses what it was made for: launches without kernels, or no device work at all.

What happens: the profiler followed the parent process while a worker did the work; it lacked the right to read the
device; events were dropped; or the window holds only the capture of CUDA graphs, whose launches run nothing. A program
that computes on the CPU, and a device of another make, leave no device work either. The diagnosis of such a file would
be the diagnosis of something else.

How it is detected: launch calls whose correlation id no kernel carries (calls made while a stream is captured run
nothing and are told apart); a recording without any device work; the recorder's own words about lost events; a table of PyTorch's profiler that has
operators and no column of the device.

When it is not this: the few launches at the edges of a window; launches of a graph that was recorded at graph level;
graphs that are launched as often as they are captured, which is serving (`graph-recapture`).
"""

from dataclasses import replace
from typing import NamedTuple

from doctor.rule import (
    About,
    Evidence,
    Finding,
    Fix,
    Rule,
    Severity,
    Sign,
    Stage,
    Threshold,
    Verdict,
)

ABOUT = About(
    id="capture-fault",
    title="The recording misses the work",
    stage=Stage.RECORDING,
    reads=("source",),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_missing_share": Threshold(
        0.1, "share of launches without device work", source="edges of a window lose a few launches"
    ),
    "min_launches": Threshold(20, "launches", source="fewer say nothing"),
}

SQL = r"""
WITH capture_edge AS (
    SELECT source_id, pid, tid, start_ns,
        sum(CASE WHEN base_name LIKE '%BeginCapture%' THEN 1 WHEN base_name LIKE '%EndCapture%' THEN -1 ELSE 0 END)
            OVER (PARTITION BY source_id, pid, tid ORDER BY host_call_id) AS open_count
    FROM host_call WHERE base_name LIKE '%Capture' AND call_class = 'capture'
),
called AS (
    SELECT host_call_id, host_call.source_id, host_call.pid, host_call.tid, host_call.start_ns, call_class,
        op_count > 0 AS has_work
    FROM host_call WHERE call_class IN ('launch', 'graph')
),
capturing AS (
    SELECT DISTINCT source_id, pid, tid FROM capture_edge
),
judged AS (  -- most threads never capture, and most launches are theirs
    SELECT *, false AS is_captured FROM called ANTI JOIN capturing USING (source_id, pid, tid)
    UNION ALL
    SELECT called.*, coalesce(open_count, 0) > 0
    FROM (SELECT * FROM called SEMI JOIN capturing USING (source_id, pid, tid)) AS called
    ASOF LEFT JOIN capture_edge ON called.source_id = capture_edge.source_id AND called.pid = capture_edge.pid
        AND called.tid = capture_edge.tid AND called.start_ns >= capture_edge.start_ns
),
-- launches behind the last one with work are waiting in the queue when the recording ends: an edge, not a fault
reached AS (
    SELECT source_id, pid, tid, max(start_ns) FILTER (has_work) AS last_ns, bool_or(has_work) AS has_any_work
    FROM judged GROUP BY source_id, pid, tid
),
told AS (
    SELECT string_agg(message, ' | ') AS messages FROM (
        SELECT DISTINCT message FROM diagnostic
        WHERE regexp_matches(lower(message), 'dropped|could not parse|lost|not enough|buffer.*(full|overflow)')
        ORDER BY message LIMIT 3)
)
SELECT (SELECT count(*) FROM judged WHERE NOT is_captured) AS launch_count,
    (SELECT count(*) FROM judged JOIN reached USING (source_id, pid, tid)
        WHERE NOT is_captured AND NOT has_work AND (NOT has_any_work OR start_ns < last_ns)) AS missing_count,
    (SELECT count(*) FROM judged WHERE is_captured) AS captured_count,
    (SELECT count(*) FROM graph_capture WHERE is_instantiated) AS graph_count,
    (SELECT count(*) FROM judged WHERE call_class = 'graph' AND has_work) AS replay_count,
    (SELECT count(*) FROM device_op) AS op_count,
    (SELECT count(*) FROM (SELECT 1 FROM api_call UNION ALL SELECT 1 FROM nvtx_range UNION ALL SELECT 1 FROM os_call
        UNION ALL SELECT 1 FROM host_op)) AS host_event_count,
    (SELECT count(*) FROM api_call) AS api_call_count,
    (SELECT messages FROM told) AS messages,
    (SELECT count(*) FROM source WHERE kind IN ('nsys-report', 'nsys-sqlite', 'nsys-columnar', 'kineto')) AS recording_count,
    (SELECT count(*) FROM source WHERE NOT is_complete) AS damaged_count,
    (SELECT count(*) FROM source WHERE kind = 'kineto') AS torch_trace_count,
    (SELECT count(*) FROM host_op WHERE op_kind = 'cpu_op') AS operator_count,
    (SELECT arg_max(text.text, length_ns) FROM (SELECT name_id, max(end_ns - start_ns) AS length_ns FROM host_op WHERE op_kind = 'cpu_op'
        GROUP BY name_id) JOIN text ON text_id = name_id) AS longest_operator,
    (SELECT max(regexp_extract(notes, 'events of category ((?:mtia|xpu|privateuse1|hpu)\w*) are not read', 1)) FROM source) AS other_device
"""


class Captured(NamedTuple):
    """Launches, and the device work that belongs to them."""

    launch_count: int
    missing_count: int
    captured_count: int
    graph_count: int
    replay_count: int
    op_count: int
    host_event_count: int
    api_call_count: int
    messages: str | None
    recording_count: int
    damaged_count: int
    torch_trace_count: int
    operator_count: int
    longest_operator: str | None
    other_device: str | None


def judge(row: Captured) -> Verdict:
    """No device work, or a good part of it missing."""
    if not row.recording_count:
        return None
    said = (Evidence("the recorder says", row.messages, "words"),) if row.messages else ()
    fault = _fault(row)
    if fault is not None:
        return (
            _damaged(_left(row) or fault.summary, said)
            if row.damaged_count
            else replace(fault, evidence=(*fault.evidence, *said))
        )
    if row.messages:
        return Finding("the recorder says that events are missing", said, severity=Severity.INFO, confidence=0.8)
    return None


def _fault(row: Captured) -> Finding | None:
    missing = row.missing_count / max(row.launch_count, 1)
    if not row.op_count and row.operator_count and not row.api_call_count:
        return _of_no_device(row)
    if not row.op_count:
        summary = (
            f"the recording holds {row.launch_count:,} launches and no kernel"
            if row.launch_count
            else f"the recording holds no device work at all ({row.host_event_count:,} events of the host,"
            f" {row.api_call_count:,} API calls)"
        )
        return Finding(
            summary,
            (Evidence("device operations", 0.0, "operations"),),
            severity=Severity.HIGH,
            confidence=0.95,
            fixes=TORCH_FIXES if row.torch_trace_count == row.recording_count else (),
        )
    if row.launch_count >= THRESHOLDS["min_launches"].value and missing >= THRESHOLDS["min_missing_share"].value:
        return Finding(
            f"{row.missing_count:,} of {row.launch_count:,} launches have no device work in the recording",
            (Evidence("launches without device work", missing, "share of launches"),),
            severity=Severity.HIGH,
            confidence=0.9,
        )
    is_served = row.replay_count >= max(row.graph_count, 1)
    if not is_served and row.captured_count > max(row.launch_count, THRESHOLDS["min_launches"].value):
        return Finding(
            f"{row.captured_count:,} launches were made while a CUDA graph was being captured and ran nothing; only"
            f" {row.launch_count:,} ran: this is a recording of start-up, not of serving",
            (Evidence("launches under capture", float(row.captured_count), "launches"),),
            severity=Severity.HIGH,
            confidence=0.9,
        )
    return None


def _of_no_device(row: Captured) -> Finding:
    """Operators, and not one call to a GPU."""
    evidence = (
        Evidence("operators", float(row.operator_count), "operators"),
        Evidence("the longest operator", row.longest_operator or "unnamed", ""),
    )
    if row.other_device:
        return Finding(
            f"the device of this recording is of another kind: its events ({row.other_device}) are not read, and there is no call to a GPU",
            evidence,
            severity=Severity.HIGH,
            confidence=0.95,
            label="its device is no GPU that is read here",
            fixes=(
                Fix("pytorch", "record the same program on a GPU of NVIDIA or AMD", "their calls and kernels are read"),
            ),
        )
    return Finding(
        f"{row.operator_count:,} operators and not one call to a GPU: the program computed on the CPU, or the profiler was"
        " told to record the CPU alone",
        evidence,
        severity=Severity.HIGH,
        confidence=0.95,
        label="no call to a GPU was recorded",
        fixes=(*CPU_FIXES, *TORCH_FIXES),
    )


def _left(row: Captured) -> str:
    """What is said of a file whose calls and kernels may stand in the part that is gone; empty where they can be told."""
    is_of_operators = bool(row.operator_count) and not row.op_count and not row.api_call_count
    return (
        f"{row.operator_count:,} operators, and the rest, with the calls to a GPU, is missing"
        if is_of_operators
        else ""
    )


def _damaged(summary: str, said: tuple[Evidence, ...]) -> Finding:
    """The file lost its kernels, not the recorder."""
    return Finding(
        f"the file could be read in part only: {summary}",
        said,
        severity=Severity.HIGH,
        confidence=0.95,
        label="the file is damaged",
        fixes=(
            Fix(
                "system",
                "copy or export the file again, and compare its size with the original's",
                "what is cut off cannot be read",
            ),
        ),
    )


SUMS_SQL = """
SELECT count(*) FILTER (report = 'operator') AS operator_count, coalesce(sum(total_ns) FILTER (report = 'operator'), 0)::BIGINT AS operator_ns,
    count(*) FILTER (report = 'api') AS call_kind_count,
    coalesce(arg_max(name, total_ns) FILTER (report = 'operator'), '') AS longest
FROM profile_work HAVING count(*) FILTER (report = 'kernel') = 0
"""


class HostSums(NamedTuple):
    """A table of operators without any time of the device."""

    operator_count: int
    operator_ns: int
    call_kind_count: int
    longest: str


def judge_sums(row: HostSums) -> Verdict:
    """Either the device was not recorded, or nothing ran on it."""
    if row.operator_count < 2:
        return None
    calls = (
        "it has calls of CUDA, so that the device worked unseen"
        if row.call_kind_count
        else "it has no call of CUDA either: the device was not recorded, or the model ran on the CPU"
    )
    return Finding(
        summary=f"the table sums {row.operator_count} operators on the host (the longest: {row.longest[:60]}) and has no column of the device; {calls}",
        evidence=(Evidence("operators without time on the device", row.operator_count, "operators"),),
        severity=Severity.MEDIUM,
        confidence=0.85,
        label="no column of the device",
        fixes=(*TORCH_FIXES, *(() if row.call_kind_count else CPU_FIXES[:1])),
        question="print(next(model.parameters()).device), then record again with ProfilerActivity.CUDA: is there time on the device?",
    )


CPU_FIXES = (
    Fix(
        "pytorch",
        'model.to("cuda"), and the inputs too; torch.cuda.is_available() tells whether PyTorch sees a GPU',
        "where the program runs on the CPU there is no GPU to wait for",
        source="https://docs.pytorch.org/docs/stable/notes/cuda.html",
    ),
    Fix(
        "engine",
        "no --device cpu, on a machine where PyTorch sees a GPU: --device auto takes it",
        "on the CPU there is no device to wait for; what the engine counts says more there: `python -m engine bench`"
        " without --profile, and its JSON to doctor diagnose",
        source="engine/config.py",
    ),
)
TORCH_FIXES = (
    Fix(
        "pytorch",
        "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])",
        "calls and kernels are recorded beside the operators; without experimental_config, whose counters replace kernels",
        source="https://docs.pytorch.org/docs/stable/profiler.html",
    ),
)

FIXES = (
    Fix(
        "system",
        "nsys profile --trace=cuda,nvtx --trace-fork-before-exec=true --cuda-graph-trace=node",
        "workers started by the server are followed",
        source="https://docs.nvidia.com/nsight-systems/UserGuide/index.html",
    ),
    Fix(
        "vllm",
        "VLLM_WORKER_MULTIPROC_METHOD=spawn; --profiler-config with the torch profiler, start and stop over HTTP",
        "the engine's own process is recorded, in steady state",
        source="https://docs.vllm.ai/en/latest/contributing/profiling.html",
    ),
    Fix(
        "sglang",
        "POST /start_profile with num_steps once the server is warm",
        "steady steps in place of start-up",
        source="https://docs.sglang.ai/developer_guide/benchmark_and_profiling.html",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Captured,
    judge=judge,
    fixes=FIXES,
    verify="record again: every launch has its kernel.",
    doc=__doc__,
    also=(Sign(("profile_sum",), ABOUT.needs, SUMS_SQL, HostSums, judge_sums),),
)
