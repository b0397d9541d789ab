"""The host pauses between steps: scheduling, detokenising, sampling in Python, a lock.

What happens: between two steps the serving process decides what runs next, builds the batch, turns tokens into text
and answers clients. Where that is done on the thread that launches work, the device has nothing to do meanwhile.

How it is detected: a silence of a launching thread (no API call at all) that is twenty times its usual silence before
a launch and at least 500 us (50 us on a thread that replays whole steps as graphs, which has little else to do), in at
least three steps, or between all steps of a recording of three. An annotation range that covers it gives its name.
Where calls of the operating system are recorded, a thread that waits in one of them does no work of its own: it waits
for another thread, or no request came; the summary says so, and the server's log tells which. The win is the run
replayed with silences of the usual length, so a pause behind a full queue costs nothing. In a log that tells host and
device time of each step, the host takes at least 15 % more; or requests run, a process fills its core, and the device
is busy for less than 70 %; or a table has the same load faster without the server between.

When it is not this: silences around module loading are `lazy-module-load`; a thread that waits in a call is
`sync-in-step`; many short silences are `host-dispatch-bound`. A process that has no requests is idle, not slow.
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
    Sign,
    Stage,
    Target,
    Threshold,
    Verdict,
    Where,
)
from doctor.units import format_counted

ABOUT = About(
    id="step-gap-scheduler",
    title="The host pauses between steps",
    stage=Stage.SPECIFIC,
    reads=("device_op", "thread_call"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_gap": Threshold(0.15, "share of the step", source="vllm-project/vllm#580: half of the device's time"),
    "min_logged": Threshold(20, "steps", source="rule of thumb: fewer are a moment, not a state"),
    "min_cpu": Threshold(0.9, "of one core", source="vllm-project/vllm#580: one Python process at 100 %"),
    "max_busy": Threshold(0.7, "share of the time", source="vllm-project/vllm#580: 50 % served, 90 to 100 % offline"),
    "min_ratio": Threshold(1.2, "x", source="rule of thumb: a server costs less than that"),
    "min_wait": Threshold(
        0.8, "share of the pauses", source="own H200 recordings: 0.99 where a server has no requests"
    ),
    "min_pauses": Threshold(
        3, "steps with a pause", source="a cause seen once or twice is not what the run is made of"
    ),
}

SQL = """
WITH named AS (
    SELECT range_name, sum(silence_ns) AS named_ns FROM pause WHERE range_name IS NOT NULL
    GROUP BY range_name ORDER BY named_ns DESC, range_name LIMIT 1
),
blocked AS (  -- calls of the operating system that let the thread wait, in the pause that they end in
    SELECT text.text AS name, least(wait.end_ns, pause.end_ns) - greatest(wait.start_ns, pause.start_ns) AS wait_ns
    FROM (
        SELECT source_id, tid, name_id, start_ns + shift_ns AS start_ns, end_ns + shift_ns AS end_ns
        FROM os_call JOIN timeline_source USING (source_id) WHERE end_ns - start_ns >= 20000
    ) AS wait
    JOIN text ON text_id = name_id AND regexp_matches(text.text, '^(sem_(timed)?wait|pthread_cond_(timed)?wait|p?poll|p?select|epoll_p?wait|futex'
        || '|recv|accept|(clock_)?nanosleep|usleep|sleep)')
    ASOF JOIN pause ON pause.source_id = wait.source_id AND pause.tid = wait.tid AND wait.end_ns >= pause.start_ns
),
wait AS (
    SELECT name, sum(wait_ns) AS wait_ns FROM blocked WHERE wait_ns > 0 GROUP BY name ORDER BY wait_ns DESC, name LIMIT 1
)
SELECT count(*) AS pause_count, count(DISTINCT step_id) AS step_count, coalesce(sum(silence_ns), 0)::BIGINT AS silence_ns,
    coalesce(sum(silence_ns) FILTER (step_id IS NOT NULL), 0)::BIGINT AS step_silence_ns,
    coalesce(sum(idle_ns), 0)::BIGINT AS idle_ns,
    arg_max(start_ns, silence_ns) AS longest_start_ns, arg_max(end_ns, silence_ns) AS longest_end_ns,
    (SELECT range_name FROM named) AS range_name, coalesce((SELECT named_ns FROM named), 0)::BIGINT AS named_ns,
    (SELECT name FROM wait) AS wait_name, coalesce((SELECT wait_ns FROM wait), 0)::BIGINT AS wait_ns,
    (SELECT count(*) FROM step) AS all_step_count, (SELECT count(*) FROM device_busy) AS device_count,
    (SELECT until_ns - from_ns FROM steady_window) AS window_ns
FROM pause
"""


class Pauses(NamedTuple):
    """Long silences of launching threads in the window."""

    pause_count: int
    step_count: int
    silence_ns: int
    step_silence_ns: int
    idle_ns: int
    longest_start_ns: int | None
    longest_end_ns: int | None
    range_name: str | None
    named_ns: int
    wait_name: str | None
    wait_ns: int
    all_step_count: int
    device_count: int
    window_ns: int


CURE = Cure(
    steps=(CureStep(Target.SILENCE, Act.SET_DURATION_NS, "SELECT host_call_id, usual_silence_ns FROM pause"),),
    # A pause may be sleep or Python's own work: the replay cannot tell and takes it as it was. The same Python took up to
    # 1.6 times as long on one machine from one minute to the next (samples/README.md).
    spread=1.6,
)


def judge(row: Pauses) -> Verdict:
    """Pauses that come back."""
    if not row.pause_count:
        return None
    seen = row.step_count if row.all_step_count else row.pause_count
    is_in_all = row.all_step_count > 1 and seen >= max(2, row.all_step_count - 1)
    recurring = seen >= THRESHOLDS["min_pauses"].value or is_in_all
    name = row.range_name if row.named_ns >= 0.5 * row.silence_ns else None
    inside = f" inside `{name}`" if name else ""
    each_ms = row.step_silence_ns / 1e6 / max(seen, 1)  # all pauses may lie between steps
    is_of_steps = row.step_silence_ns >= 0.5 * row.silence_ns
    idle_share = row.idle_ns / (row.window_ns * max(row.device_count, 1))
    lasting = f"{each_ms:.1f} ms a step" if is_of_steps else f"{row.silence_ns / 1e6:.1f} ms in all"
    waiting = f", {_what_it_waits_for(row)}" if row.wait_ns >= THRESHOLDS["min_wait"].value * row.silence_ns else ""
    return Finding(
        summary=f"the launching thread fell silent {format_counted(row.pause_count, 'time')}, {lasting}{inside}{waiting};"
        f" the device idled for {idle_share:.0%} of the window meanwhile",
        evidence=(
            Evidence(
                "longest pause",
                ((row.longest_end_ns or 0) - (row.longest_start_ns or 0)) / 1e6,
                "ms",
                Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns, range=name),
            ),
            Evidence("pauses", float(row.pause_count), "pauses"),
            Evidence("device idle in pauses", idle_share, "share of window"),
            *(
                (Evidence(f"the thread in {row.wait_name}", row.wait_ns / row.silence_ns, "share of pauses"),)
                if waiting
                else ()
            ),
        ),
        cure=CURE,
        confidence=0.6 if waiting else 0.9 if name else 0.75,
        cleared=f"{format_counted(row.pause_count, 'pause')} of the launching thread, but the device had work meanwhile",
        label=f"{name} takes {each_ms:.2g} ms a step" if name and is_of_steps else "",
        fixes=DATA_FIXES if name and "dataloader" in name.lower() else (),
        max_severity=Severity.CRITICAL if recurring else Severity.LOW,
    )


def _what_it_waits_for(row: Pauses) -> str:
    if "sleep" in (row.wait_name or ""):
        return f"asleep in {row.wait_name}"
    return f"waiting in {row.wait_name} for another thread or for requests"


LOG_SQL = """
WITH step AS (
    SELECT count(*) AS step_count, sum(step_ns)::DOUBLE AS host_ns, sum(least(device_step_ns, step_ns))::DOUBLE AS device_ns
    FROM engine_load WHERE step_ns > 0 AND device_step_ns > 0 AND coalesce(new_token_count, 0) = 0
),
device AS (SELECT avg(busy_share) AS busy_share FROM gpu_sample WHERE busy_share IS NOT NULL),
thread AS (
    SELECT max(cpu_share) AS cpu_share FROM host_process
    WHERE regexp_matches(lower(coalesce(name, '')), 'python|vllm|sglang|trtllm|text-generation|lmdeploy|enginecore')
),
load AS (SELECT max(running_median_count) AS running FROM engine_queue),
compared AS (
    SELECT max(fast_hz / slow_hz) AS ratio, arg_max(slow_busy_share, fast_hz / slow_hz) AS slow_busy FROM bench_comparison
    WHERE slow_hz IS NOT NULL AND regexp_matches(slow_told, 'server|http|api|online|stream')
        AND regexp_matches(fast_told, 'offline|library|no.?stream|in.?process')
)
SELECT step_count, host_ns, device_ns, busy_share, cpu_share, running, ratio, slow_busy
FROM step, device, thread, load, compared
"""


class HostAndDevice(NamedTuple):
    """What logs, samples and tables say of the host between steps."""

    step_count: int
    host_ns: float | None
    device_ns: float | None
    busy_share: float | None
    cpu_share: float | None
    running: float | None
    ratio: float | None
    slow_busy: float | None


def judge_log(row: HostAndDevice) -> Verdict:
    """The host takes longer than the device, one way or another."""
    gap = 1 - row.device_ns / row.host_ns if row.host_ns and row.device_ns else None
    if gap is not None and row.step_count >= THRESHOLDS["min_logged"].value and gap >= THRESHOLDS["min_gap"].value:
        return Finding(
            summary=f"the device works {1 - gap:.0%} of a decode step, the host needs the rest, over {row.step_count} logged steps",
            evidence=(Evidence("device idle between steps", gap, "share of the step"),),
            severity=Severity.of_share(gap),
            confidence=0.75,
            speedup_bound=1 / max(1 - gap, 0.05),
        )
    return _beside_a_full_core(row) or _without_the_server(row)


def _beside_a_full_core(row: HostAndDevice) -> Finding | None:
    is_full = row.cpu_share is not None and row.cpu_share >= THRESHOLDS["min_cpu"].value
    is_idle = row.busy_share is not None and row.busy_share <= THRESHOLDS["max_busy"].value
    if not is_full or not is_idle or not row.running:
        return None
    return Finding(
        summary=f"{row.running:.0f} requests run, a process of the engine fills its core ({row.cpu_share:.0%}), and the device is busy for"
        f" {row.busy_share:.0%} of the time",
        evidence=(
            Evidence("CPU of the engine's process", row.cpu_share or 0.0, "cores"),
            Evidence("device busy", row.busy_share or 0.0, "share of the time"),
        ),
        severity=Severity.HIGH,
        confidence=0.65,
        speedup_bound=1 / max(row.busy_share or 1.0, 0.1),
    )


def _without_the_server(row: HostAndDevice) -> Finding | None:
    if row.ratio is None or row.ratio < THRESHOLDS["min_ratio"].value or (row.slow_busy or 0) > 0.75:
        return None
    return Finding(
        summary=f"the same load is {row.ratio:.1f} times as fast without the server between"
        + (f"; with it the device is busy for {row.slow_busy:.0%}" if row.slow_busy is not None else ""),
        evidence=(Evidence("without the server against with it", row.ratio, "x"),),
        severity=Severity.HIGH,
        confidence=0.75 if row.slow_busy is not None else 0.55,
        speedup_bound=row.ratio,
    )


DATA_FIXES = (
    Fix(
        "pytorch",
        "DataLoader(..., num_workers=N, prefetch_factor=4, persistent_workers=True, pin_memory=True)",
        "batches are read and prepared in other processes while the device works",
        source="https://docs.pytorch.org/docs/stable/data.html",
    ),
)

FIXES = (
    Fix(
        "pytorch",
        "schedule step n+1 while step n runs; move detokenising and HTTP to another process",
        "the device finds its next step queued when it ends one",
        source="https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution",
    ),
    Fix(
        "vllm",
        "--async-scheduling; --api-server-count N; a larger --stream-interval",
        "scheduling overlaps the step; the API leaves the engine's core",
        source="https://docs.vllm.ai/en/latest/configuration/engine_args.html",
    ),
    Fix(
        "sglang",
        "drop --disable-overlap-schedule",
        "the overlap scheduler prepares the next batch during the step",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "disable_overlap_scheduler: false",
        "the next batch is prepared during the step",
        source="https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html",
    ),
    Fix(
        "transformers",
        "move stopping criteria, streamers and logits processors off the decode loop",
        "Python between steps is what the device waits for",
        source="https://huggingface.co/docs/transformers/llm_optims",
    ),
    Fix(
        "engine",
        "--bookkeeping lean",
        "the pool is not checked in each step",
        source="python -m engine bench --help",
    ),
    Fix(
        "engine",
        "--bookkeeping lean --overlap",
        "the next step is scheduled while this one runs",
        source="python -m engine bench --help",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Pauses,
    judge=judge,
    fixes=FIXES,
    verify="record again: the gap from the last kernel of a step to the first of the next is under 5 % of the step.",
    doc=__doc__,
    also=(Sign(("engine_witness",), ("engine-log", "nvml", "bench-table"), LOG_SQL, HostAndDevice, judge_log),),
)
