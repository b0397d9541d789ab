"""The host waits for the device many times a step: .item(), nonzero, .cpu(), synchronize.

What happens: a call that returns a device value to Python returns only when everything before it is done. The queue is
empty afterwards, and the device idles until the host has launched anew. Done once a step it is the price of reading
the token; done per layer, per sequence or per expert it serialises host and device.

How it is detected: at least five waiting calls (stream, device or event synchronisation, small copies to the host) a
usual step; where what comes back is too little for a forward pass, or waits for an upload each time it comes (the layers of one
long prompt), fifteen in all: the end of a step waits for what comes down. The win is the run replayed without them, the longest one left in place, since one wait a step is needed.

When it is not this: a wait behind a busy device costs nothing, however long the call is: the replay then finds no win
and the waits are named under ruled out. Waits that belong to a large pageable copy are `pageable-copies`; waits inside
cudaMalloc or cudaFree are `alloc-in-hot-loop`.
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
    "small_copy_bytes": Threshold(65_536, "bytes", source="CUDA Runtime API: copies up to 64 KiB are staged"),
}

WAITS = """
    WITH copied AS (
        SELECT host_call_id FROM device_op JOIN launch USING (device_op_id)
        WHERE kind = 'memcpy' AND copy_kind = 'dtoh' AND size_bytes <= 65536 AND coalesce(dst_kind, 'pageable') = 'pageable'
    ),
    behind_copy AS (  -- waits that complete a large pageable copy belong to that copy
        SELECT DISTINCT call.source_id, call.pid, call.tid, call.interval_id + 1 AS interval_id
        FROM device_op JOIN launch USING (device_op_id) JOIN thread_call AS call USING (host_call_id)
        WHERE kind = 'memcpy' AND size_bytes > 65536 AND 'pageable' IN (src_kind, dst_kind)
    ),
    wait AS MATERIALIZED (
        SELECT host_call_id, end_ns - start_ns AS dur_ns, call_class, start_ns, end_ns
        FROM thread_call ANTI JOIN behind_copy USING (source_id, pid, tid, interval_id)
        WHERE step_kind = 'usual' AND call_class = 'sync'
        UNION ALL
        SELECT host_call_id, end_ns - start_ns, call_class, start_ns, end_ns
        FROM thread_call JOIN copied USING (host_call_id)
        WHERE step_kind = 'usual' AND call_class <> 'sync'
    )
"""

SQL = f"""{WAITS}
SELECT count(*) FILTER (call_class = 'sync') AS sync_count, count(*) AS wait_count, coalesce(sum(dur_ns), 0)::BIGINT AS wait_ns,
    (SELECT count(*) FROM usual_step) AS step_count,
    arg_max(start_ns, dur_ns) AS longest_start_ns, arg_max(end_ns, dur_ns) AS longest_end_ns,
    (SELECT until_ns - from_ns FROM steady_window) AS window_ns,
    (SELECT avg(idle_ns) FROM device_busy) AS idle_ns, (SELECT median(op_count) FROM usual_step) AS step_op_count,
    (SELECT count(*) FROM thread_call WHERE call_class = 'graph') AS graph_count,
    (SELECT count(*) FROM device_op JOIN launch USING (device_op_id) JOIN thread_call AS up USING (host_call_id)
        JOIN thread_call AS behind ON behind.source_id = up.source_id AND behind.pid = up.pid AND behind.tid = up.tid
            AND behind.interval_id = up.interval_id + 1
        WHERE kind = 'memcpy' AND copy_kind = 'htod' AND size_bytes <= $small_copy_bytes AND behind.call_class = 'sync' AND behind.step_kind = 'usual')
        AS upload_wait_count
FROM wait
"""

_ALL_BUT_THE_LONGEST = "WHERE host_call_id <> (SELECT arg_max(host_call_id, dur_ns) FROM wait)"

CURE = Cure(
    steps=(
        CureStep(Target.HOST_CALL, Act.REMOVE, f"{WAITS} SELECT host_call_id FROM wait {_ALL_BUT_THE_LONGEST}"),
        CureStep(
            Target.DEVICE_OP,
            Act.REMOVE,
            f"{WAITS} SELECT device_op_id FROM wait JOIN launch USING (host_call_id) {_ALL_BUT_THE_LONGEST}",
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

    @property
    def is_of_parts(self) -> bool:
        """True where what comes back is a layer of a long prompt, not a step: too little, or waiting for uploads only."""
        is_small = (self.step_op_count or 0) < THRESHOLDS["min_step_ops"].value
        is_of_uploads = self.upload_wait_count >= THRESHOLDS["min_upload_share"].value * max(self.wait_count, 1)
        return not self.graph_count and (is_small or is_of_uploads)


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
        cure=CURE,
        confidence=0.85,
        cleared=f"{format_counted(row.wait_count, 'wait')} for the device ({per_step:,.0f} a step), but only where the host waits anyway",
    )


FIXES = (
    Fix(
        "pytorch",
        'keep the stop test on the device; read tokens once a step with .to("cpu", non_blocking=True) and an event;'
        " torch.where in place of nonzero",
        "one wait a step is left",
        source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#avoid-unnecessary-cpu-gpu-synchronization",
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
)
