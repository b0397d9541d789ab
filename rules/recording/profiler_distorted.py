"""The recorder itself takes a good part of the time: host figures are too high.

What happens: each recorded call, operator, Python frame or graph node costs the recorder some time on the thread that
makes it. Thousands of short operations a second turn microseconds into a multiple of the plain run time: a public case
took 4.2 times as long under the recorder. Kernels keep their durations; whatever the host does looks slower than it is.

How it is detected: the recorder's own overhead rows as a share of the window; Python frames a second; CUDA graphs
recorded node by node; more than 20,000 short operations a second that were launched one by one; a table of the same run
with and without the recorder. Each of these alone lowers the trust in absolute host times. The finding has no win:
expected speed-ups are already corrected for it.

When it is not this: a slow host shows in the plain run too. Give the plain run's wall time with `--unprofiled-seconds` to
tell the two. A recording at graph level hides kernels in place of slowing launches: `trace-blind`.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict

ABOUT = About(
    id="profiler-distorted",
    title="The recorder slows down what it records",
    stage=Stage.RECORDING,
    reads=("device_op", "steady_window"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_os_calls": Threshold(
        100_000, "calls", source="NVIDIA/DeepLearningExamples#1336: 4.2 times as long with the OS runtime traced"
    ),
    "min_overhead_share": Threshold(
        0.05, "share of the window in overhead rows", source="NVIDIA/DeepLearningExamples#1336: 2 to 4.2 x"
    ),
    "max_ratio": Threshold(
        1.2,
        "x the plain run",
        source="NVIDIA/DeepLearningExamples#1336: 2.0 to 4.2 with OS runtime and libraries traced",
    ),
    "min_frames_per_s": Threshold(
        20_000, "Python frames a second", source="a frame costs the recorder about a microsecond: 2 % of the time"
    ),
    "min_short_ops_per_s": Threshold(
        20_000, "short operations a second", source="own H200 recordings: 7 us a kernel, 14 % of the time at this rate"
    ),
    "min_count": Threshold(1_000, "frames, nodes or kernels", source="fewer cost less than a millisecond or two"),
    "short_ns": Threshold(10_000, "ns", source="kernels shorter than this do not hide what their launch costs"),
}

SQL = """
WITH overhead AS (
    -- loading and compiling code and a full launch queue are in these rows too, but the program's own
    SELECT pid, tid, greatest(start_ns + shift_ns, from_ns) AS start_ns, least(end_ns + shift_ns, until_ns) AS end_ns
    FROM profiler_overhead JOIN timeline_source USING (source_id) LEFT JOIN text ON text_id = name_id, steady_window
    WHERE end_ns + shift_ns > from_ns AND start_ns + shift_ns < until_ns
        AND NOT regexp_matches(lower(coalesce(text, '')), 'loading|compiler|command buffer full')
        AND (source_id, tid) IN (SELECT source_id, tid FROM launching_thread)
),
fresh AS (
    SELECT pid, tid, end_ns - greatest(start_ns, coalesce(max(end_ns) OVER (
        PARTITION BY pid, tid ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start_ns)) AS fresh_ns
    FROM overhead
),
on_thread AS (
    SELECT sum(greatest(fresh_ns, 0))::BIGINT AS overhead_ns FROM fresh GROUP BY pid, tid
),
work AS (
    SELECT count(*) FILTER (kind = 'kernel' AND end_ns - start_ns < $short_ns) AS short_count,
        count(*) FILTER (graph_node_id IS NOT NULL) AS node_count
    FROM device_op, steady_window WHERE start_ns >= from_ns AND start_ns < until_ns
),
called AS (
    SELECT count(*) AS launch_count FROM thread_call WHERE call_class = 'launch' AND is_launching
),
frame AS (
    SELECT count(*) AS frame_count
    FROM host_op JOIN timeline_source USING (source_id), steady_window
    WHERE op_kind = 'python_function' AND start_ns + shift_ns >= from_ns AND start_ns + shift_ns < until_ns
)
SELECT coalesce((SELECT max(overhead_ns) FROM on_thread), 0)::BIGINT AS overhead_ns,
    -- kernels of a graph are short too, but one call launches them
    least(short_count, launch_count) AS short_count, node_count, frame_count,
    -- a Kineto trace always holds graph nodes: nothing that could be set
    (SELECT bool_or(graph_trace_level = 'node' AND kind <> 'kineto') FROM source JOIN timeline_source USING (source_id)) AS is_node_level,
    (SELECT until_ns - from_ns FROM steady_window) AS window_ns
FROM work, called, frame
"""

TABLE_SQL = """
WITH run AS (
    SELECT source_id, row_id, condition::JSON AS condition, coalesce(latency_ns::DOUBLE, 1e9 / nullif(coalesce(output_token_hz, total_token_hz, request_hz), 0)) AS taken_ns,
        coalesce(batch_count, concurrency_count) AS load_count
    FROM bench_row WHERE condition IS NOT NULL
),
told AS (
    SELECT run.*, word, json_extract_string(condition, '$."' || word || '"') AS told
    FROM run, unnest(json_keys(condition)) AS named (word) WHERE regexp_matches(word, '^(profil|nsys|recorder)')
),
plain AS (
    SELECT * FROM told WHERE regexp_matches(told, '^(no|none|off|false|without|0|-)$')
)
SELECT told.told, told.taken_ns, plain.taken_ns AS plain_ns
FROM told JOIN plain USING (source_id, word)
WHERE told.told <> plain.told AND told.load_count IS NOT DISTINCT FROM plain.load_count AND plain.taken_ns > 0
    AND json_merge_patch(told.condition, json_object(word, '')) = json_merge_patch(plain.condition, json_object(word, ''))
ORDER BY told.taken_ns / plain.taken_ns DESC LIMIT 1
"""


class RecorderWork(NamedTuple):
    """What the recorder did in the window."""

    overhead_ns: int
    short_count: int
    node_count: int
    frame_count: int
    is_node_level: bool | None
    window_ns: int


def judge(row: RecorderWork) -> Verdict:
    """Any of the four signs."""
    seconds = row.window_ns / 1e9
    overhead = row.overhead_ns / row.window_ns
    counts = (row.frame_count, row.short_count, row.node_count)
    frames, shorts, nodes = (count / seconds if count >= THRESHOLDS["min_count"].value else 0.0 for count in counts)
    signs: list[tuple[str, Evidence]] = []
    if overhead >= THRESHOLDS["min_overhead_share"].value:
        signs.append(
            (f"its own rows take {overhead:.0%} of the window", Evidence("overhead rows", overhead, "share of window"))
        )
    if frames >= THRESHOLDS["min_frames_per_s"].value:
        signs.append((f"{frames:,.0f} Python frames a second", Evidence("Python frames", frames, "frames a second")))
    if row.is_node_level and nodes >= THRESHOLDS["min_short_ops_per_s"].value:
        signs.append((f"{nodes:,.0f} graph nodes a second, each recorded", Evidence("graph nodes", nodes, "a second")))
    if shorts >= THRESHOLDS["min_short_ops_per_s"].value:
        signs.append(
            (
                f"{shorts:,.0f} short kernels a second, launched one by one",
                Evidence("short kernels", shorts, "kernels a second"),
            )
        )
    if not signs:
        return None
    return Finding(
        summary=f"the host is slower here than without the recorder: {'; '.join(words for words, _ in signs)}",
        evidence=tuple(evidence for _, evidence in signs),
        severity=Severity.INFO,
        confidence=0.7,
    )


class Timed(NamedTuple):
    """A run that was recorded beside the same one that was not."""

    told: str
    taken_ns: float
    plain_ns: float


def judge_table(row: Timed) -> Verdict:
    """Recording itself makes the run longer: nothing is to be compared by recorded times."""
    ratio = row.taken_ns / row.plain_ns
    if ratio <= THRESHOLDS["max_ratio"].value:
        return Cleared(f"the recorded run takes {ratio:.2f} times as long as the plain one")
    return Finding(
        summary=f"the run takes {ratio:.1f} times as long when it is recorded ({row.told}): recorded times say nothing of how fast it is",
        evidence=(
            Evidence("recorded against plain", ratio, "x"),
            Evidence("plain run", row.plain_ns / 1e9, "s"),
            Evidence("recorded run", row.taken_ns / 1e9, "s"),
        ),
        severity=Severity.INFO,
        confidence=0.9,
    )


SUMS_SQL = """
SELECT coalesce(sum(call_count), 0)::BIGINT AS os_count, arg_max(name, call_count) AS name,
    (SELECT coalesce(max(launch_count), 0) FROM profile_total)::BIGINT AS launch_count
FROM profile_work WHERE report = 'os' AND NOT EXISTS (SELECT 1 FROM timeline_source)
"""


class OsSums(NamedTuple):
    """Calls of the operating system that were recorded, against launches."""

    os_count: int
    name: str | None
    launch_count: int


def judge_sums(row: OsSums) -> Verdict:
    """Their times are those of sleeping threads and tell nothing; that so many were recorded does."""
    if row.os_count < THRESHOLDS["min_os_calls"].value or row.os_count < row.launch_count:
        return None
    return Finding(
        summary=f"{row.os_count:,} calls of the operating system were recorded (most of them {row.name}), beside {row.launch_count:,} launches: each costs the"
        " recorded program a few microseconds",
        evidence=(Evidence("recorded calls of the operating system", row.os_count, "calls"),),
        severity=Severity.INFO,
        confidence=0.6,
        question="time the run without the recorder, and record again without osrt: is it the same length?",
    )


FIXES = (
    Fix(
        "system",
        "nsys profile --trace=cuda,nvtx --sample=none --cpuctxsw=none, a short --capture-range; --cuda-graph-trace=graph"
        " for totals",
        "fewer recorded calls; a graph launch costs one row",
        source="https://docs.nvidia.com/nsight-systems/UserGuide/index.html",
    ),
    Fix(
        "pytorch",
        "torch.profiler.profile(with_stack=False, record_shapes=False, profile_memory=False), three active steps",
        "no Python frame is recorded",
        source="https://docs.pytorch.org/docs/stable/profiler.html",
    ),
    Fix(
        "vllm",
        '--profiler-config \'{"profiler": "torch", "torch_profiler_with_stack": false, ...}\' (VLLM_TORCH_PROFILER_WITH_STACK=0 in'
        " older versions); take throughput from a run without it",
        "stacks are on by default",
        source="https://docs.vllm.ai/en/latest/contributing/profiling.html",
    ),
    Fix(
        "sglang",
        'POST /start_profile {"num_steps": 5, "with_stack": false, "record_shapes": false}',
        "no Python frame is recorded",
        source="https://docs.sglang.ai/developer_guide/benchmark_and_profiling.html",
    ),
    Fix(
        "tensorrt-llm",
        "TLLM_PROFILE_START_STOP=100-110 with nsys profile -c cudaProfilerApi",
        "only ten iterations are recorded",
        source="https://nvidia.github.io/TensorRT-LLM/developer-guide/perf-analysis.html",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=RecorderWork,
    judge=judge,
    fixes=FIXES,
    verify="time the same steps without the recorder: the recorded ones take at most a tenth longer.",
    doc=__doc__,
    also=(
        Sign(("bench_row",), ("bench-table",), TABLE_SQL, Timed, judge_table),
        Sign(("profile_sum",), ("nsys-report",), SUMS_SQL, OsSums, judge_sums),
    ),
)
