"""Large copies between host and device go through pageable memory: slow, and the host waits for each.

What happens: the device can only reach pinned host memory by itself. From pageable memory the driver stages the copy
through a small pinned buffer: a third of the link's rate or less, and a call that was meant to be asynchronous returns
only when the copy is done. Neither the copy nor the launches behind it overlap anything.

How it is detected: copies of 64 KiB or more whose host side is pageable, by bytes and by the host's time in them. They
are invisible in gaps, since the copy itself keeps the device busy: the win is the run replayed with calls of 5 us and
copies at the rate of pinned memory on a stream of their own, which still has to carry every byte. Where the same sizes
come up again and again, the most that can be won is the run without them: what keeping the data on the device gives.

In the sums of `nsys stats` and nvprof: copying calls take a fifth of the time in calls and at least twice as long as the device's copies of
large pieces. That is a question, since no sum names the kind of memory.

When it is not this: copies of a few bytes (positions, tokens) cost their launch and nothing more. Weights that come up
again every step should stay on the device: pinning them is second best. A load phase before the steady window is not
counted.
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
    id="pageable-copies",
    title="Copies go through pageable host memory",
    stage=Stage.SPECIFIC,
    reads=("device_op",),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "large_bytes": Threshold(65_536, "bytes", source="CUDA Runtime API: smaller pageable copies are staged at once"),
    "min_bytes_share": Threshold(
        0.2, "share of bytes between host and device", source="vllm-project/vllm#32965 and like"
    ),
    "min_steps": Threshold(3, "steps or copies", source="a cause seen once or twice is not what the run is made of"),
    "one_way_share": Threshold(0.9, "share of bytes", source="the rest are inputs up, or tokens down"),
    "min_again_share": Threshold(
        0.4, "share of bytes", source="what goes up for its turn and back is half of them each way"
    ),
    "call_ns": Threshold(5_000, "ns", source="own H200 recordings: an asynchronous copy from pinned memory"),
}

SQL = """
WITH copy AS (
    SELECT op.*, 'pageable' IN (src_kind, dst_kind) AND size_bytes >= $large_bytes AS is_large_pageable,
        call.start_ns AS call_start_ns, call.end_ns - call.start_ns AS call_ns, call.step_id
    FROM device_op AS op
    LEFT JOIN launch USING (device_op_id)
    LEFT JOIN (SELECT host_call_id, start_ns, end_ns, step_id FROM thread_call) AS call USING (host_call_id), steady_window
    WHERE kind = 'memcpy' AND copy_kind IN ('htod', 'dtoh') AND op.start_ns >= from_ns AND op.start_ns < until_ns
),
repeated AS (
    SELECT max(same_count) AS repeated_count FROM (
        SELECT count(*) AS same_count FROM copy WHERE is_large_pageable AND copy_kind = 'htod' GROUP BY size_bytes)
)
SELECT count(*) FILTER (is_large_pageable) AS copy_count, coalesce(sum(size_bytes) FILTER (is_large_pageable), 0)::BIGINT AS pageable_bytes,
    coalesce(sum(size_bytes), 0)::BIGINT AS all_bytes, coalesce(sum(end_ns - start_ns) FILTER (is_large_pageable), 0)::BIGINT AS copy_ns,
    coalesce(sum(call_ns) FILTER (is_large_pageable), 0)::BIGINT AS call_ns,
    count(DISTINCT step_id) FILTER (is_large_pageable) AS step_with_count,
    coalesce(sum(size_bytes) FILTER (is_large_pageable AND copy_kind = 'htod'), 0)::BIGINT AS up_bytes,
    (SELECT repeated_count FROM repeated) AS repeated_count, (SELECT count(*) FROM step) AS step_count,
    arg_max(start_ns, end_ns - start_ns) FILTER (is_large_pageable) AS longest_start_ns,
    arg_max(end_ns, end_ns - start_ns) FILTER (is_large_pageable) AS longest_end_ns,
    (SELECT until_ns - from_ns FROM steady_window) AS window_ns,
    (SELECT max(memory_bytes) FROM device) AS memory_bytes
FROM copy
"""

LARGE = """
    FROM device_op AS op
    LEFT JOIN launch USING (device_op_id), steady_window
    WHERE op.kind = 'memcpy' AND op.copy_kind IN ('htod', 'dtoh') AND 'pageable' IN (op.src_kind, op.dst_kind)
        AND op.size_bytes >= 65536 AND op.start_ns >= from_ns AND op.start_ns < until_ns
"""

UPLOADS = """
    SELECT device_op_id, host_call_id
    FROM device_op AS op JOIN launch USING (device_op_id), steady_window
    WHERE kind = 'memcpy' AND op.start_ns >= from_ns AND op.start_ns < until_ns AND (copy_kind = 'htod' AND src_kind = 'pageable'
        -- what comes down and goes up again, as parts that are moved for their turn, may stay too
        OR copy_kind = 'dtoh' AND dst_kind = 'pageable' AND size_bytes >= 65536
            AND size_bytes IN (SELECT size_bytes FROM device_op WHERE kind = 'memcpy' AND copy_kind = 'htod' AND src_kind = 'pageable'))
"""

# The rate of the link: the best pinned copy of this recording; without one, what PCIe of the device's generation carries
# (5 from compute capability 9 and on AMD's data-centre parts, 4 from 8, else 3), and never less than what was seen.
PINNED_RATE = """
    SELECT greatest(
        coalesce((SELECT max(size_bytes / (end_ns - start_ns)) FROM device_op
            WHERE kind = 'memcpy' AND copy_kind IN ('htod', 'dtoh') AND size_bytes >= 1048576 AND end_ns > start_ns), 0),
        CASE WHEN EXISTS (SELECT 1 FROM device_op WHERE kind = 'memcpy' AND size_bytes >= 1048576
                AND 'pinned' IN (src_kind, dst_kind)) THEN 0
            ELSE coalesce((SELECT CASE WHEN compute_major >= 9 THEN 50 WHEN compute_major = 8 THEN 24 ELSE 12 END
                FROM device WHERE compute_major IS NOT NULL ORDER BY memory_bytes DESC NULLS LAST LIMIT 1), 24) END
    ) AS bytes_per_ns
"""

CURE = Cure(
    steps=(
        CureStep(
            Target.HOST_CALL,
            Act.SET_DURATION_NS,
            f"SELECT DISTINCT host_call_id {LARGE} AND host_call_id IS NOT NULL",
            value=THRESHOLDS["call_ns"].value,
        ),
        CureStep(
            Target.HOST_CALL,
            Act.REMOVE,
            f"""SELECT following.host_call_id
            FROM thread_call AS following
            JOIN thread_call AS copy_call ON copy_call.source_id = following.source_id AND copy_call.pid = following.pid
                AND copy_call.tid = following.tid AND following.interval_id = copy_call.interval_id + 1
            WHERE following.call_class = 'sync' AND copy_call.is_launching
                AND copy_call.host_call_id IN (SELECT host_call_id {LARGE})""",
        ),
        CureStep(
            Target.DEVICE_OP,
            Act.SET_DURATION_NS,
            f"SELECT op.device_op_id, op.size_bytes / (SELECT bytes_per_ns FROM ({PINNED_RATE})) {LARGE}",
        ),
        CureStep(Target.DEVICE_OP, Act.MOVE_TO_SIDE_STREAM, f"SELECT op.device_op_id {LARGE}"),
    ),
    is_host_work=False,
    spread=1.3,
)
# A copy goes with all that the host does for it: the calls and silences since the launch before, and the wait behind it.
FOR_COPIES = f"""
    SELECT call.host_call_id FROM thread_call AS call JOIN launch_pace AS pace USING (source_id, pid, tid)
    JOIN (
        SELECT launching.source_id, launching.pid, launching.tid, launching.interval_id
        FROM ({UPLOADS}) JOIN thread_call AS launching USING (host_call_id)
    ) AS copying ON copying.source_id = call.source_id AND copying.pid = call.pid AND copying.tid = call.tid
"""
RESIDENT = (
    CureStep(Target.DEVICE_OP, Act.REMOVE, f"SELECT device_op_id FROM ({UPLOADS})"),
    CureStep(Target.HOST_CALL, Act.REMOVE, f"{FOR_COPIES} AND copying.interval_id = call.interval_id"),
    CureStep(
        Target.SILENCE,
        Act.REMOVE,
        f"{FOR_COPIES} AND copying.interval_id = call.interval_id AND call.silence_ns <= pace.pause_ns",
    ),
    CureStep(
        Target.HOST_CALL,
        Act.REMOVE,
        f"{FOR_COPIES} AND copying.interval_id + 1 = call.interval_id AND call.call_class = 'sync'",
    ),
)
"""What comes up again may as well stay, its small parts too: then nothing is copied, and nobody asks for it."""

NOTHING_COPIED = (
    CureStep(Target.DEVICE_OP, Act.REMOVE, f"SELECT op.device_op_id {LARGE}"),
    CureStep(Target.HOST_CALL, Act.REMOVE, f"SELECT DISTINCT host_call_id {LARGE} AND host_call_id IS NOT NULL"),
)
"""What comes down may be reduced on the device to next to nothing."""


class LargeCopies(NamedTuple):
    """Copies between host and device in the window."""

    copy_count: int
    pageable_bytes: int
    all_bytes: int
    copy_ns: int
    call_ns: int
    step_with_count: int
    up_bytes: int
    repeated_count: int | None
    step_count: int
    longest_start_ns: int | None
    longest_end_ns: int | None
    window_ns: int
    memory_bytes: int | None


def judge(row: LargeCopies) -> Verdict:
    """A fifth of the bytes or more, again and again."""
    least = THRESHOLDS["min_steps"].value
    if not row.copy_count or row.pageable_bytes < THRESHOLDS["min_bytes_share"].value * row.all_bytes:
        return None
    recurring = (row.step_with_count if row.step_count else row.copy_count) >= least
    rate = row.pageable_bytes / max(row.copy_ns, 1)
    per_step = row.pageable_bytes / max(row.step_with_count, 1) / 2**20
    comes_again = (row.repeated_count or 0) >= least and (
        row.up_bytes >= THRESHOLDS["min_again_share"].value * row.pageable_bytes
    )
    goes_down = not comes_again and row.up_bytes < 0.5 * row.pageable_bytes
    return Finding(
        summary=f"{format_counted(row.copy_count, 'pageable copy', 'pageable copies')}, {row.pageable_bytes / 2**30:.2f} GiB{_direction(row)} at {rate:.1f} GB/s, {'holds' if row.copy_count == 1 else 'hold'} the host for"
        f" {row.call_ns / row.window_ns:.0%} of the window",
        evidence=(
            Evidence("bytes through pageable memory", row.pageable_bytes / max(row.all_bytes, 1), "share of bytes"),
            Evidence("rate of these copies", rate, "GB/s"),
            Evidence("host time in their calls", row.call_ns / row.window_ns, "share of window"),
            Evidence("per step", per_step, "MiB"),
            Evidence(
                "longest copy",
                ((row.longest_end_ns or 0) - (row.longest_start_ns or 0)) / 1e6,
                "ms",
                Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns),
            ),
        ),
        cure=replace(CURE, at_most=RESIDENT if comes_again else NOTHING_COPIED if goes_down else ()),
        confidence=0.9,
        cleared=f"{format_counted(row.copy_count, 'pageable copy', 'pageable copies')} ({row.pageable_bytes / 2**20:.0f} MiB), at little cost here",
        fixes=(KEEP_RESIDENT, *FIXES) if comes_again else DOWN_FIXES if goes_down else (),
        max_severity=Severity.CRITICAL if recurring else Severity.LOW,
    )


def _direction(row: LargeCopies) -> str:
    """Where nearly all of it goes one way."""
    up = row.up_bytes / max(row.pageable_bytes, 1)
    return (
        " to the device"
        if up >= THRESHOLDS["one_way_share"].value
        else " to the host"
        if up <= 1 - THRESHOLDS["one_way_share"].value
        else ""
    )


SUMS_SQL = """
SELECT copy_call_count, copy_call_ns, api_ns, nullif(device_copy_ns, 0) AS device_copy_ns, h2d_bytes / nullif(h2d_ns / 1e9, 0) AS bytes_per_s
FROM profile_total WHERE is_staged ORDER BY copy_call_ns / api_ns DESC, run_id LIMIT 1
"""


class CopySums(NamedTuple):
    """Copying calls of a whole profile against what the device copied."""

    copy_call_count: int
    copy_call_ns: int
    api_ns: int
    device_copy_ns: int | None
    bytes_per_s: float | None


def judge_sums(row: CopySums) -> Verdict:
    """Calls that last longer than their copies stage them; the kind of memory itself is in no sum."""
    share, call_us = row.copy_call_ns / row.api_ns, row.copy_call_ns / row.copy_call_count / 1e3
    ratio = None if row.device_copy_ns is None else row.copy_call_ns / row.device_copy_ns
    against = "" if ratio is None else f", {ratio:.1f} times as long as the device copies"
    return Finding(
        summary=f"{row.copy_call_count:,} copying calls take {share:.0%} of the time in calls, {call_us:.0f} us each{against}: calls from pinned memory"
        " return in a few us",
        evidence=(
            Evidence("copying calls", share, "share of the time in calls"),
            Evidence("a copying call", call_us, "us"),
            *((Evidence("time in calls against the device's", ratio, "x"),) if ratio is not None else ()),
            *((Evidence("rate up", row.bytes_per_s, "bytes/s"),) if row.bytes_per_s else ()),
        ),
        severity=Severity.MEDIUM,
        confidence=0.65 if ratio is not None else 0.45,
        question="the recording itself names the kind of memory of each copy: `doctor diagnose REPORT.nsys-rep`; in it srcKind is Pageable, or the calls"
        " wait for something else.",
    )


KEEP_RESIDENT = Fix(
    "pytorch",
    "keep on the device what comes up again every step (weights, tables, the parts of a pipeline): move it once, before the loop, and not back",
    "the same sizes are copied up step after step; where they fit in memory, not copying beats copying fast",
    source="own H200 recordings: resident weights 24x, pinned copies 5.9x",
    fits=(ProgramKind.GENERATION, ProgramKind.ENCODER),  # elsewhere what comes up in equal pieces are inputs
)

DOWN_FIXES = (
    Fix(
        "pytorch",
        "reduce on the device and copy the result alone (argmax, topk, a mean); what has to come down goes into a buffer made once with pin_memory=True:"
        " buffer.copy_(tensor, non_blocking=True), read an event later",
        "a copy into pinned memory runs at the link's rate beside the next step",
        source="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
    ),
    Fix(
        "transformers",
        "generate without output_scores, output_logits and output_hidden_states; logits_to_keep=1",
        "only the tokens come down",
        source="https://huggingface.co/docs/transformers/main_classes/text_generation",
    ),
    Fix(
        "engine",
        "--staging pinned --kv-copies pinned",
        "KV is copied into pinned memory, without a wait",
        source="python -m engine bench --help",
    ),
)

FIXES = (
    Fix(
        "pytorch",
        "DataLoader(..., pin_memory=True) and batch.to(device, non_blocking=True)",
        "a thread pins each batch ahead, and the copy runs beside the computation",
        source="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
        fits=(ProgramKind.TRAINING, ProgramKind.VISION),
    ),
    Fix(
        "pytorch",
        "tensor.pin_memory() once, then .to(device, non_blocking=True) on a stream of its own",
        "copies run at the link's rate beside the computation",
        source="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
    ),
    Fix(
        "vllm",
        "keep pinned memory available (not under WSL); --cpu-offload-gb 0 where the model fits",
        "input tensors are staged in pinned buffers",
        source="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html",
    ),
    Fix(
        "sglang",
        "--cpu-offload-gb 0 where the model fits",
        "weights stay on the device",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "kv_cache_config: {host_cache_size: 0} unless blocks are reused from the host",
        "no copies of cold blocks",
        source="https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html",
    ),
    Fix(
        "transformers",
        'device_map={"": 0} in place of CPU offload; DataLoader(pin_memory=True)',
        "weights stay on the device, inputs are pinned",
        source="https://huggingface.co/docs/accelerate/usage_guides/big_modeling",
    ),
    Fix(
        "engine",
        "--weight-offload 0",
        "weights stay on the device where they fit",
        source="python -m engine bench --help",
    ),
    Fix(
        "engine",
        "--weight-copies prefetch",
        "the next layer comes from pinned memory while this one is computed",
        source="python -m engine bench --help",
    ),
    Fix(
        "engine",
        "--staging pinned --kv-copies pinned",
        "inputs and KV are copied from pinned memory, without a wait",
        source="python -m engine bench --help",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=LargeCopies,
    judge=judge,
    fixes=FIXES,
    verify="record again: these copies are gone, or their source kind is Pinned, their rate the link's (20 GB/s and more on"
    " PCIe 4), and they overlap kernels.",
    doc=__doc__,
    also=(Sign(("profile_sum",), ABOUT.needs, SUMS_SQL, CopySums, judge_sums),),
)
