"""The host pauses between steps: scheduling, detokenising, sampling in Python, a lock.

What happens: between two steps the serving process decides what runs next, builds the batch, turns tokens into text and answers clients. Where that is done
on the thread that launches work, the device has nothing to do meanwhile.

How it is detected: a silence of a launching thread (no API call at all) that is twenty times its usual silence before a launch and at least 500 us (50 us on
a thread that replays whole steps as graphs, which has little else to do), in at least three steps, or between all steps of a recording of three. An
annotation range that covers it gives its name. The win is the run replayed with silences of the usual length, so a pause behind a full queue costs nothing,
and as often as a loop has them: between three steps lie two. At most the copies of what the host makes in a pause go too. In a log the host takes at least 15
% more than the device; or requests run, a process fills its core, and the device is busy for less than 70 %; or a server costs in a table.

When it is not this: silences around module loading are `lazy-module-load`; a thread that waits in a call is `sync-in-step`; many short silences are
`host-dispatch-bound`. A process that has no requests is idle, not slow, and its silences look alike. The host works where the operating system's calls were
recorded and show no wait, where an annotation, Python frames or operators fill the silence, where a step has begun or its results have not been fetched,
where the program trains, or where a log says that requests run. Else the finding is a question, and so is a single pause: low where the thread is seen to
wait (but for a sleep as long as each pause, which no request ends), medium at most, promising nothing.
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
    "min_wait": Threshold(0.8, "share of the pauses", source="own H200 recordings: 0.99 where no requests come"),
    "min_own": Threshold(0.5, "share of the pauses", source="the larger part tells what they are"),
    "min_idle": Threshold(0.02, "share of the window", source="below this nothing can be won"),
    "min_asked_ns": Threshold(1e6, "ns", source="a server that waited for each request would serve hundreds a second"),
    "min_loaded": Threshold(0.8, "share of a log's samples", source="requests run nearly always"),
    "min_pauses": Threshold(3, "steps with a pause", source="once or twice is no habit of the run"),
}

SQL = r"""
SELECT pause_count, step_count, silence_ns, idle_ns, longest_start_ns, longest_end_ns, range_name, named_ns, named_each_ns,
    EXISTS (SELECT 1 FROM step WHERE chosen_by = 'nvtx:' || regexp_replace(range_name, '\d+', '#', 'g')) AS is_named_step,
    wait_name, wait_ns, lock_ns, slept_ns, is_os_recorded, known_ns, waiting_range_share, own_share,
    (SELECT kind = 'training' FROM program) AS is_training,
    EXISTS (SELECT 1 FROM step WHERE regexp_matches(lower(chosen_by), 'nvtx:.*decode')) AS is_decoding,
    (SELECT sum(busy_count) / sum(sample_count) FROM engine_queue) AS loaded_share, (SELECT count(*) FROM step) AS all_step_count,
    EXISTS (SELECT 1 FROM step WHERE chosen_by LIKE 'nvtx:%') AS is_marked, (SELECT count(*) FROM device_busy) AS device_count,
    until_ns - from_ns AS window_ns, (SELECT seen_share FROM seen_share WHERE kind = 'pause') AS seen_share
FROM pause_sum, steady_window
"""


class Pauses(NamedTuple):
    """Long silences of launching threads in the window, and what is known of them."""

    pause_count: int
    step_count: int
    silence_ns: int
    idle_ns: int
    longest_start_ns: int | None
    longest_end_ns: int | None
    range_name: str | None
    named_ns: int
    named_each_ns: int | None
    is_named_step: bool
    wait_name: str | None
    wait_ns: int
    lock_ns: int
    slept_ns: int
    is_os_recorded: bool
    known_ns: int
    waiting_range_share: float
    own_share: float
    is_training: bool
    is_decoding: bool
    loaded_share: float | None
    all_step_count: int
    is_marked: bool
    device_count: int
    window_ns: int
    seen_share: float | None

    @property
    def name(self) -> str | None:
        """The range that most of the silence lies in, of the pauses that were looked into."""
        return self.range_name if self.named_ns >= 0.5 * self.known_ns else None

    @property
    def label(self) -> str:
        """What takes the time, and how long; a step's own range names no culprit within it, nor does one that holds far more."""
        is_told = self.name and self.named_each_ns and not self.is_named_step
        return f"{self.name} takes {(self.named_each_ns or 0) / 1e6:.3g} ms each time" if is_told else ""

    @property
    def idle_share(self) -> float:
        """Idle time of the devices in the pauses, of the window."""
        return self.idle_ns / (self.window_ns * max(self.device_count, 1))

    @property
    def is_wait_seen(self) -> bool:
        """True where the operating system, or the name of what covers the pauses, shows that the thread waits."""
        least = THRESHOLDS["min_wait"].value
        return self.wait_ns >= least * self.silence_ns or self.waiting_range_share >= least

    @property
    def is_lock(self) -> bool:
        """True where it waits in the way of Python's interpreter lock, which another thread holds."""
        return self.lock_ns >= 0.5 * max(self.wait_ns, 1)

    @property
    def is_asked(self) -> bool:
        """True where the pauses may as well be the want of requests."""
        is_worked_in = self.own_share >= THRESHOLDS["min_own"].value or (self.is_os_recorded and not self.is_wait_seen)
        is_loaded = (self.loaded_share or 0.0) >= THRESHOLDS["min_loaded"].value
        is_short = self.silence_ns < THRESHOLDS["min_asked_ns"].value * self.pause_count
        return not (is_worked_in or is_loaded or is_short or self.is_training or self.is_decoding or self.is_lock)


CURE = Cure(
    steps=(CureStep(Target.SILENCE, Act.SET_DURATION_NS, "SELECT host_call_id, usual_silence_ns FROM pause"),),
    # made ahead and pinned, or on the device, inputs cost the thread nothing
    at_most=(
        CureStep(Target.HOST_CALL, Act.REMOVE, "SELECT host_call_id FROM pause_input"),
        CureStep(Target.DEVICE_OP, Act.REMOVE, "SELECT device_op_id FROM pause_input"),
    ),
    spread=1.6,  # sleep stays, but the same Python took up to 1.6 times as long from one minute to the next (samples/README.md)
)


def judge(row: Pauses) -> Verdict:
    """Pauses that come back."""
    if not row.pause_count:
        return None
    seen = row.step_count if row.all_step_count else row.pause_count
    least = 1 if row.is_marked else 2  # one step that a mark calls a step is like the others
    is_in_all = row.all_step_count >= least and seen >= max(least, row.all_step_count - 1)
    is_periodic = seen >= 2 and (row.seen_share or 1.0) < 1  # rounds of as much work before, between and behind them
    recurring = is_in_all or is_periodic or seen >= THRESHOLDS["min_pauses"].value
    # in steps that nothing marks, which may be layers, a round of the loop may hold a single pause
    is_twice = not row.is_marked and seen >= 2 and row.pause_count >= THRESHOLDS["min_pauses"].value
    is_idle = row.idle_share >= THRESHOLDS["min_idle"].value
    computes = (row.name or "").startswith("aten::")  # an operator of PyTorch that works on the CPU
    meanwhile = "other things hold the run up" if is_idle else "the device had work meanwhile"
    finding = Finding(
        summary=_summary(row),
        evidence=_evidence(row),
        cure=replace(CURE, seen_share=row.seen_share or 1.0),
        confidence=0.6 if row.is_wait_seen else 0.9 if row.name else 0.75,
        cleared=f"{format_counted(row.pause_count, 'pause')} of the launching thread, but {meanwhile}",
        label=row.label,
        title="The host computes while the device waits" if computes else "",
        fixes=(COMPUTE_FIX, *FIXES) if computes else (DATA_FIX,) if "dataloader" in (row.name or "").lower() else (),
        max_severity=Severity.CRITICAL if recurring else Severity.MEDIUM if is_twice else Severity.LOW,
    )
    if row.pause_count == 1:
        label = f"{row.label.removesuffix(' each time')}: in every step?" if row.label else "once: does it come back?"
        finding = replace(finding, max_severity=min(finding.max_severity, Severity.MEDIUM), label=label, question=AGAIN)
    return _asked(finding, row) if row.is_asked else finding


def _asked(finding: Finding, row: Pauses) -> Finding:
    """The same as a question: the device idles, and nobody knows for what."""
    told = "at work, or without requests?" if not row.is_wait_seen else WAITS
    told = "it sleeps, for want of requests?" if row.is_wait_seen and "sleep" in (row.wait_name or "") else told
    is_own = row.slept_ns >= THRESHOLDS["min_wait"].value * row.silence_ns  # nobody wakes it when a request comes
    told = "it sleeps once each time, does it poll?" if is_own else told
    unknown = "; work outside of PyTorch, which was not recorded, looks like the want of requests"
    return replace(
        finding,
        summary=finding.summary + ("" if row.is_wait_seen else unknown),
        confidence=0.5,
        label=told,
        fixes=ASKING_FIXES,
        max_severity=min(finding.max_severity, Severity.LOW if row.is_wait_seen and not is_own else Severity.MEDIUM),
        question=QUESTION,
    )


def _summary(row: Pauses) -> str:
    inside = f", {row.named_ns / 1e6:.1f} ms of it inside `{row.name}`" if row.name else ""
    waiting = f", {_what_it_waits_for(row)}" if row.is_wait_seen and row.wait_name else ""
    fell = (
        f"the launching thread fell silent {format_counted(row.pause_count, 'time')}, for {row.silence_ns / 1e6:.1f} ms"
    )
    told = f"{fell}{'' if row.pause_count == 1 else ' in all'}{inside}{waiting}"
    return f"{told}; the device idled for {row.idle_share:.0%} of the window meanwhile"


def _evidence(row: Pauses) -> tuple[Evidence, ...]:
    longest_ns = (row.longest_end_ns or 0) - (row.longest_start_ns or 0)
    where = Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns, range=row.name)
    waits = Evidence(f"the thread in {row.wait_name}", row.wait_ns / row.silence_ns, "share of pauses")
    return (
        Evidence("longest pause", longest_ns / 1e6, "ms", where),
        Evidence("pauses", float(row.pause_count), "pauses"),
        Evidence("device idle in pauses", row.idle_share, "share of window"),
        *((waits,) if row.is_wait_seen and row.wait_name else ()),
    )


def _what_it_waits_for(row: Pauses) -> str:
    if "sleep" in (row.wait_name or ""):
        return f"asleep in {row.wait_name}"
    if row.is_lock:
        return f"waiting in {row.wait_name} as for Python's interpreter lock, which another thread holds"
    return f"waiting in {row.wait_name} for another thread{' or for requests' if row.is_asked else ''}"


LOG_SQL = "SELECT * FROM host_and_device"


class HostAndDevice(NamedTuple):
    """What logs, samples and tables say of the host between steps."""

    step_count: int
    host_ns: float | None
    device_ns: float | None
    busy_share: float | None
    cpu_share: float | None
    running_count: float | None
    server_hz: float | None
    library_hz: float | None
    server_busy_share: float | None


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
    if not is_full or not is_idle or not row.running_count:
        return None
    return Finding(
        summary=f"{row.running_count:.0f} requests run, a process of the engine fills its core ({row.cpu_share:.0%}), the device is busy for {row.busy_share:.0%}",
        evidence=(
            Evidence("CPU of the engine's process", row.cpu_share or 0.0, "cores"),
            Evidence("device busy", row.busy_share or 0.0, "share"),
        ),
        severity=Severity.HIGH,
        confidence=0.65,
        speedup_bound=1 / max(row.busy_share or 1.0, 0.1),
    )


def _without_the_server(row: HostAndDevice) -> Finding | None:
    if not row.server_hz or not row.library_hz or (row.server_busy_share or 0) > 0.75:
        return None
    ratio = row.library_hz / row.server_hz
    if ratio < THRESHOLDS["min_ratio"].value:
        return None
    is_busy_told = row.server_busy_share is not None
    busy = f"; with it the device is busy for {row.server_busy_share:.0%}" if is_busy_told else ""
    return Finding(
        summary=f"the same load is {ratio:.1f} times as fast without the server between{busy}",
        evidence=(Evidence("without the server against with it", ratio, "x"),),
        severity=Severity.HIGH,
        confidence=0.75 if is_busy_told else 0.55,
        speedup_bound=ratio,
    )


AGAIN = "record five steps or more behind the warm-up: what stands once in a recording is no loop, and nothing is promised for it."
WAITS = "it waits, for requests or for another thread"
QUESTION = (
    "look whether there were requests meanwhile: running and waiting ones in the server's log or metrics (give it beside the trace); then record"
    " under load what the host does: nsys --trace=cuda,nvtx,osrt, or torch.profiler with_stack=True. Without requests there is nothing to cure."
)

_METRICS = {
    "vllm": "GET /metrics: vllm:num_requests_running, vllm:num_requests_waiting; or the log's line `Running: N reqs, Waiting: N reqs`",
    "sglang": "--enable-metrics, GET /metrics: sglang:num_running_reqs, sglang:num_queue_reqs; or `#running-req`, `#queue-req` in the log",
}
_TOLD = "none running: the server is idle; some running: the pause is its own"
ASKING_FIXES = (
    Fix("vllm", _METRICS["vllm"], _TOLD, source="https://docs.vllm.ai/en/latest/usage/metrics.html"),
    Fix("sglang", _METRICS["sglang"], _TOLD, source="https://docs.sglang.ai/references/production_metrics.html"),
    Fix(
        "pytorch",
        'torch.profiler.profile(with_stack=True), or torch.profiler.record_function("schedule") and ("wait for requests") around what the loop does',
        "a name for what the thread does between passes",
        source="https://docs.pytorch.org/docs/stable/profiler.html",
    ),
)

DATA_FIX = Fix(
    "pytorch",
    "DataLoader(..., num_workers=N, prefetch_factor=4, persistent_workers=True, pin_memory=True)",
    "batches are read and prepared in other processes while the device works",
    source="https://docs.pytorch.org/docs/stable/data.html",
    fits=(ProgramKind.TRAINING, ProgramKind.VISION, ProgramKind.ENCODER),
)

COMPUTE_FIX = Fix(
    "pytorch",
    "keep on the device what this operator works on (an embedding, the output layer, logits, masks, sampling); no .cpu() before it",
    "the device does it in microseconds, and nothing has to come down and go up again",
    source="https://docs.pytorch.org/docs/stable/notes/cuda.html",
)

_ENGINE = {
    "--bookkeeping lean": "the pool is not checked in each step",
    "--bookkeeping lean --overlap": "the next step is scheduled while this one runs",
}
FIXES = (
    DATA_FIX,
    Fix(
        "pytorch",
        "schedule step n+1 while step n runs; move detokenising, HTTP and all other Python threads to another process",
        "the device finds its next step queued when it ends one",
        source="https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution",
        fits=(ProgramKind.GENERATION,),
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
        fits=(ProgramKind.GENERATION,),
    ),
    *(Fix("engine", setting, why, source="python -m engine bench --help") for setting, why in _ENGINE.items()),
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
