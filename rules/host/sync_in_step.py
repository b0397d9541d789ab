"""The host waits for the device many times a step: .item(), nonzero, .cpu(), synchronize.

What happens: a call that returns a device value to Python returns only when everything before it is done. The queue is empty afterwards, and the
device idles until the host has launched anew. Done once a step it is the price of reading the token; done per layer, per sequence or per expert it
serialises host and device.

How it is detected: at least five waiting calls (stream, device or event synchronisation, small copies to the host) a usual step; where what comes
back is too little for a forward pass, or waits for an upload each time it comes (the layers of one long prompt), fifteen in all: the end of a step
waits for what comes down. The win is the run replayed without them, the longest one left in place, since one wait a step is needed. Where eight waits
of a step or more follow the same few operations, none of them a matrix product, a Python loop handles rows one by one: all but the first go too.

Launches that wait are another form of it: under CUDA_LAUNCH_BLOCKING=1, left on after an error was looked for, each launch returns only when its
kernel has ended. Then at least 95 % of the launches return after the end of their kernels, longer ones than a launch takes among them; the win is the
run replayed with launches that return 2 us before their kernels start. Launches of CUDA graphs are not counted.

The sums of `nsys stats` and nvprof tell the same at most as a question: a waiting call for every 32 kernels or fewer, which no sum can show the cost
of.

When it is not this: a wait behind a busy device costs nothing, however long the call is: the replay then finds no win and the waits are named under
ruled out. A kernel ends before its launch returns by chance where the host is held up, never nearly always. A tool that runs one kernel at a time
(compute-sanitizer, a serialising profiler) makes launches wait as the variable does: unset it first, then look whether such a tool ran. Waits that
belong to a large pageable copy are `pageable-copies`; waits inside cudaMalloc or cudaFree are `alloc-in-hot-loop`.
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
    id="sync-in-step",
    title="The host waits for the device inside the step",
    stage=Stage.SPECIFIC,
    reads=("device_op", "thread_call"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_per_step": Threshold(
        5, "waits a step", source="vllm PR#16039 and like cases; healthy engines wait once or twice"
    ),
    "min_steps": Threshold(3, "steps", source="a cause seen once or twice is not what the run is made of"),
    "min_step_ops": Threshold(8, "device operations a step", source="one layer of a transformer has as many"),
    "min_upload_share": Threshold(0.8, "share of the waits", source="NVIDIA/TensorRT-LLM PR#16680: one in every layer"),
    "min_blocking_share": Threshold(
        0.95, "share of launches", source="own H200 recordings: 100 % with it, under 1 % without"
    ),
    "longer_ns": Threshold(5_000, "ns", source="a launch takes 2 to 5 us: a kernel so long ends behind it"),
    "min_longer": Threshold(24, "launches", source="four a layer; fewer are less than a small model"),
    "lead_ns": Threshold(2_000, "ns", source="own H200 recordings: a kernel starts 1 to 5 us after its launch"),
    "most_apart": Threshold(32, "kernels a wait", source="NVIDIA/TensorRT-LLM PR#16680: a layer of 10 to 30"),
    "min_sum_waits": Threshold(100, "waits", source="fewer are one a step, or the start's"),
    "min_sum_share": Threshold(0.05, "share of the time in calls", source="below it they cost next to nothing"),
    "small_copy_bytes": Threshold(65_536, "bytes", source="CUDA Runtime API: copies up to 64 KiB are staged"),
}


SQL = """
SELECT count(*) FILTER (call_class = 'sync') AS sync_count, count(*) AS wait_count,
    coalesce(sum(dur_ns) / (SELECT count(DISTINCT (source_id, pid, tid)) FROM step_wait JOIN thread_call USING (host_call_id)), 0)::BIGINT AS wait_ns,
    (SELECT count(*) FROM usual_step) AS step_count, arg_max(start_ns, dur_ns) AS longest_start_ns, arg_max(end_ns, dur_ns) AS longest_end_ns,
    (SELECT until_ns - from_ns FROM steady_window) AS window_ns,
    (SELECT avg(idle_ns) FROM device_busy) AS idle_ns, (SELECT median(op_count) FROM usual_step) AS step_op_count,
    (SELECT count(*) FROM thread_call WHERE call_class = 'graph') AS graph_count,
    (SELECT count(*) FROM device_op JOIN launch USING (device_op_id) JOIN thread_call AS up USING (host_call_id)
        JOIN thread_call AS behind ON behind.source_id = up.source_id AND behind.pid = up.pid AND behind.tid = up.tid
            AND behind.interval_id = up.interval_id + 1
        WHERE kind = 'memcpy' AND copy_kind = 'htod' AND size_bytes <= $small_copy_bytes AND behind.call_class = 'sync' AND behind.step_kind = 'usual')
        AS upload_wait_count,
    (SELECT median(piece_count) FROM row_loop) AS row_count, (SELECT median(op_count) FROM row_loop) AS row_op_count,
    (SELECT count(DISTINCT step_id) FROM row_loop) AS row_step_count,
    EXISTS (SELECT 1 FROM step WHERE chosen_by LIKE '%maybe layers of one attention each') AS is_of_layers
FROM step_wait
"""

_ALL_BUT_THE_LONGEST = "WHERE host_call_id <> (SELECT arg_max(host_call_id, dur_ns) FROM step_wait)"

_REPEATED = "SELECT host_call_id FROM row_loop_call WHERE is_repeated"
AROUND_WAITS = f"""
    WITH around AS (  -- a copy ends its launch-to-launch interval, other waits lie within theirs
        SELECT DISTINCT source_id, pid, tid, interval_id + if(is_launching, 1, 0) AS interval_id
        FROM step_wait JOIN thread_call USING (host_call_id) {_ALL_BUT_THE_LONGEST}
    )
"""

CURE = Cure(
    steps=(
        CureStep(Target.HOST_CALL, Act.REMOVE, f"SELECT host_call_id FROM step_wait {_ALL_BUT_THE_LONGEST}"),
        CureStep(
            Target.DEVICE_OP,
            Act.REMOVE,
            f"SELECT device_op_id FROM step_wait JOIN launch USING (host_call_id) {_ALL_BUT_THE_LONGEST}",
        ),
        CureStep(Target.HOST_CALL, Act.REMOVE, _REPEATED),
        CureStep(Target.SILENCE, Act.REMOVE, _REPEATED),
        CureStep(
            Target.DEVICE_OP, Act.REMOVE, f"SELECT device_op_id FROM launch JOIN ({_REPEATED}) USING (host_call_id)"
        ),
    ),
    at_most=(  # what is done for the sake of a wait: events that time it, the value that is read, the code that asks for it
        CureStep(
            Target.HOST_CALL,
            Act.REMOVE,
            f"{AROUND_WAITS} SELECT host_call_id FROM thread_call JOIN around USING (source_id, pid, tid, interval_id)"
            " WHERE call_class IN ('event', 'other', 'sync') AND NOT is_launching",
        ),
        CureStep(
            Target.SILENCE,
            Act.SET_DURATION_NS,
            f"{AROUND_WAITS} SELECT host_call_id, least(silence_ns, usual_silence_ns) FROM thread_call JOIN around USING (source_id, pid, tid, interval_id)"
            " JOIN launch_pace USING (source_id, pid, tid) WHERE silence_ns <= pause_ns",
        ),
    ),
)


class StepWaits(NamedTuple):
    """Waiting calls in the usual steps of the window."""

    sync_count: int
    wait_count: int
    wait_ns: int
    step_count: int
    longest_start_ns: int | None
    longest_end_ns: int | None
    window_ns: int
    idle_ns: float | None
    step_op_count: float | None
    graph_count: int
    upload_wait_count: int
    row_count: float | None
    row_op_count: float | None
    row_step_count: int
    is_of_layers: bool

    @property
    def is_by_row(self) -> bool:
        """True where most steps handle the rows of a batch one after the other."""
        return self.row_step_count >= max(THRESHOLDS["min_steps"].value, 0.5 * self.step_count)

    @property
    def is_of_parts(self) -> bool:
        """True where what comes back is a layer, not a step: too little, as much as one, or waiting for uploads only."""
        is_small = (self.step_op_count or 0) < THRESHOLDS["min_step_ops"].value
        is_of_uploads = self.upload_wait_count >= THRESHOLDS["min_upload_share"].value * max(self.wait_count, 1)
        return not self.graph_count and (is_small or is_of_uploads or self.is_of_layers)


def judge(row: StepWaits) -> Verdict:
    """More waits a step than reading a token needs."""
    if row.step_count < THRESHOLDS["min_steps"].value:
        return None
    per_step = row.wait_count / row.step_count
    least = THRESHOLDS["min_per_step"].value
    is_of_parts = row.is_of_parts and per_step < least
    if per_step < least and not (is_of_parts and row.wait_count >= least * THRESHOLDS["min_steps"].value):
        return None
    told = (
        f"{row.wait_count:,} waits for the device, one to {row.step_op_count or 0:.0f} operations"
        if is_of_parts
        else f"{per_step:,.0f} waits for the device a step"
    )
    if row.is_by_row:
        told += f", {row.row_count or 0:.0f} of them in a loop over rows that launches the same {row.row_op_count or 0:.0f} operations for each"
    return Finding(
        summary=f"{told} ({row.wait_ns / row.window_ns:.0%} of the window spent in them)",
        evidence=(
            Evidence("waits per step", per_step, "calls"),
            Evidence("time in waiting calls", row.wait_ns / row.window_ns, "share of window"),
            Evidence(
                "longest wait",
                ((row.longest_end_ns or 0) - (row.longest_start_ns or 0)) / 1e3,
                "us",
                Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns),
            ),
        ),
        cure=replace(CURE, spread=1.5) if row.is_by_row else CURE,  # other kernels do the work of the loop
        confidence=0.85,
        title="Rows are handled one by one, each with a wait" if row.is_by_row else "",
        fixes=(ROW_FIX, *FIXES) if row.is_by_row else (),
        cleared=f"{format_counted(row.wait_count, 'wait')} for the device ({per_step:,.0f} a step), but only where the host waits anyway",
    )


BLOCKING_SQL = """
SELECT count(*) AS launch_count, count(*) FILTER (is_blocking) AS blocking_count,
    count(*) FILTER (kernel_ns >= $longer_ns) AS longer_count, count(*) FILTER (kernel_ns >= $longer_ns AND is_blocking) AS longer_blocking_count,
    coalesce(sum(call_ns) FILTER (is_blocking), 0)::BIGINT AS call_ns, coalesce(sum(kernel_ns) FILTER (is_blocking), 0)::BIGINT AS kernel_ns,
    arg_max(start_ns, call_ns) FILTER (is_blocking) AS longest_start_ns, arg_max(end_ns, call_ns) FILTER (is_blocking) AS longest_end_ns
FROM sampled_launch
"""

BLOCKING_CURE = Cure(
    steps=(
        CureStep(
            Target.HOST_CALL,
            Act.SET_DURATION_NS,
            """SELECT host_call_id, greatest(op.start_ns - call.start_ns - $lead_ns, 1000)::DOUBLE AS call_ns
            FROM device_op AS op JOIN launch USING (device_op_id) JOIN thread_call AS call USING (host_call_id)
            WHERE call_class = 'launch' AND op.kind = 'kernel' AND call.end_ns >= op.end_ns AND op.start_ns >= call.start_ns""",
            values={"lead_ns": THRESHOLDS["lead_ns"].value},
        ),
    ),
    spread=1.5,  # what a launch takes without its wait is not in the recording
)


class BlockingLaunches(NamedTuple):
    """Launches of the window, and those that return only after their kernels have ended."""

    launch_count: int
    blocking_count: int
    longer_count: int
    longer_blocking_count: int
    call_ns: int
    kernel_ns: int
    longest_start_ns: int | None
    longest_end_ns: int | None


def judge_blocking(row: BlockingLaunches) -> Verdict:
    """Nearly every launch waits, of long kernels as of short ones."""
    least = THRESHOLDS["min_blocking_share"].value
    if row.longer_count < THRESHOLDS["min_longer"].value or row.blocking_count < least * row.launch_count:
        return None
    if row.longer_blocking_count < least * row.longer_count:
        return None
    share = row.blocking_count / row.launch_count
    longest = Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns)
    return Finding(
        summary=f"{share:.0%} of the launches return only when their kernels have ended, as under CUDA_LAUNCH_BLOCKING=1"
        f" ({row.kernel_ns / row.call_ns:.0%} of the time in them their kernels run)",
        evidence=(
            Evidence("launches that return after their kernels", share, "share of launches", longest),
            Evidence("a launch call", row.call_ns / row.blocking_count / 1e3, "us, mean"),
            Evidence("of it the kernel runs", row.kernel_ns / row.call_ns, "share"),
        ),
        cure=BLOCKING_CURE,
        confidence=0.9,
        title="Every launch waits for its kernel",
        fixes=BLOCKING_FIXES,
        verify="record again: launch calls return before their kernels start, and take a few us each.",
        cleared="each launch returns only when its kernel has ended, as under CUDA_LAUNCH_BLOCKING=1, but other things hold the run up",
    )


SUMS_SQL = """
SELECT wait_count, sync_ns, api_ns, work_count
FROM (SELECT *, sync_count + blocking_copy_count AS wait_count, greatest(kernel_count, launch_count) AS work_count FROM profile_total)
WHERE wait_count > 0 AND api_ns > 0 AND NOT is_graphed AND NOT is_staged ORDER BY work_count / wait_count, run_id LIMIT 1
"""


class WaitSums(NamedTuple):
    """Waiting calls of a whole profile against its kernels."""

    wait_count: int
    sync_ns: int
    api_ns: int
    work_count: int


def judge_sums(row: WaitSums) -> Verdict:
    """A wait for every few kernels: no sum tells whether the device idles behind it."""
    apart, share = row.work_count / row.wait_count, row.sync_ns / row.api_ns
    if row.wait_count < THRESHOLDS["min_sum_waits"].value or not 0 < apart <= THRESHOLDS["most_apart"].value:
        return None
    if share < THRESHOLDS["min_sum_share"].value:
        return None
    return Finding(
        summary=f"{row.wait_count:,} calls wait for the device, one for every {apart:.0f} kernels, and take {share:.0%} of the time in calls; how long"
        " the device idles behind them no sum tells",
        evidence=(
            Evidence("kernels between two waits", apart, "kernels"),
            Evidence("waiting calls", row.wait_count, "calls"),
            Evidence("of the time in calls", share, "share"),
        ),
        severity=Severity.MEDIUM,
        confidence=0.6,
        question="look at the recording itself, `doctor diagnose REPORT.nsys-rep`: the device idles behind each wait, or it works on.",
    )


ROW_FIX = Fix(
    "pytorch",
    "no Python loop over rows: one call for the whole batch (torch.multinomial(probs, 1), gather, torch.where), and one .tolist() a step",
    "a batch is as quick as one row",
    source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#avoid-unnecessary-cpu-gpu-synchronization",
)
BLOCKING_FIXES = (
    Fix(
        "system",
        "unset CUDA_LAUNCH_BLOCKING (HIP_LAUNCH_BLOCKING and AMD_SERIALIZE_KERNEL on AMD); set it only while an error is looked for",
        "launches return at once, and the host prepares the next kernels while the device works",
        source="https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution",
    ),
)

FIXES = (
    Fix(
        "pytorch",
        'keep the stop test on the device; read tokens once a step with .to("cpu", non_blocking=True) and an event;'
        " torch.where in place of nonzero",
        "one wait a step is left",
        source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#avoid-unnecessary-cpu-gpu-synchronization",
        fits=(ProgramKind.GENERATION,),
    ),
    Fix(
        "pytorch",
        "keep losses, metrics and results on the device (total += loss.detach()) and read them once in many steps; no .item(), .cpu(), print(tensor)"
        " or bool(tensor) inside a step; torch.where in place of nonzero and boolean masks",
        "the host runs ahead of the device again",
        source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#avoid-unnecessary-cpu-gpu-synchronization",
        fits=(ProgramKind.TRAINING, ProgramKind.ENCODER, ProgramKind.VISION),
    ),
    Fix(
        "vllm",
        "--async-scheduling; drop per-request logits processors that read values on the host",
        "sampling results are read asynchronously",
        source="https://docs.vllm.ai/en/latest/configuration/engine_args.html",
    ),
    Fix(
        "sglang",
        "drop --disable-overlap-schedule; avoid custom logit processors",
        "the overlap scheduler reads results a step late",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "disable_overlap_scheduler: false",
        "results are read a step late",
        source="https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html",
    ),
    Fix(
        "transformers",
        "avoid streamers and Python stopping criteria in the loop; fixed max_new_tokens",
        "each of them reads a device value every token",
        source="https://huggingface.co/docs/transformers/llm_optims",
        fits=(ProgramKind.GENERATION,),
    ),
    Fix(
        "engine",
        "--layer-boundary free",
        "nothing waits inside a step",
        source="python -m engine bench --help",
    ),
    Fix(
        "engine",
        "--step-wait event --overlap",
        "only the copy of the tokens is waited for, while the next step runs",
        source="python -m engine bench --help",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=StepWaits,
    judge=judge,
    fixes=FIXES,
    verify="record again: waits per step fall to one or two, and the step gets shorter by about the expected gain.",
    doc=__doc__,
    also=(
        Sign(ABOUT.reads, ABOUT.needs, BLOCKING_SQL, BlockingLaunches, judge_blocking),
        Sign(("profile_sum",), ABOUT.needs, SUMS_SQL, WaitSums, judge_sums),
    ),
)
