"""Many tiny collectives: each pays the latency of a meeting for a few kilobytes.

What happens: a collective over a few rows takes what it takes for its ranks to meet, not what its bytes take. Two a layer
in a deep model, or one for every tensor, are hundreds of meetings a step, and each holds up the kernels behind it.

How it is detected: more than 100 collectives a step, or more than 2.5 a layer where the model's configuration tells its
layers, whose median transfer is under 20 us. Where all ranks were recorded, waiting for the last rank is told from
transfer, and only transfer counts. The win is the run replayed with 6 us for each, what a fused or one-shot all-reduce
takes inside a node.

When it is not this: few large collectives are `comm-exposed`. Time spent waiting for a slow rank is `straggler-rank`;
waiting for a rank whose host is late is `host-dispatch-bound` there.
"""

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
    Rule,
    Stage,
    Target,
    Threshold,
    Verdict,
    Where,
)

ABOUT = About(
    id="comm-sync-points-many",
    title="Many tiny collectives in every step",
    stage=Stage.SPECIFIC,
    reads=("device_op", "step_work"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_per_step": Threshold(100, "collectives a step", source="rule of thumb: two a layer in fifty layers"),
    "min_per_layer": Threshold(2.5, "collectives a layer", source="tensor parallelism needs two"),
    "max_median_ns": Threshold(
        20_000, "ns of transfer", source="rule of thumb: latency, not bytes, up to about 256 KiB"
    ),
    "reachable_ns": Threshold(6_000, "ns", source="one-shot and fused all-reduce kernels inside a node: 4 to 8 us"),
}

SPENT = """
    SELECT op.device_op_id, op.start_ns, op.end_ns, transfer_ns, waiting_ns
    FROM device_op AS op LEFT JOIN meeting_member AS member USING (device_op_id), steady_window
    WHERE op.family = 'collective' AND op.start_ns >= from_ns AND op.start_ns < until_ns
"""

SQL = f"""
WITH spent AS ({SPENT}),
counted AS (
    SELECT median(op_count) AS per_step FROM step_work WHERE family = 'collective'
)
SELECT per_step, count(*) AS collective_count, count(transfer_ns) AS member_count,
    median(coalesce(transfer_ns, end_ns - start_ns)) AS transfer_ns, median(end_ns - start_ns) AS kernel_ns,
    sum(coalesce(transfer_ns, end_ns - start_ns))::BIGINT AS all_transfer_ns, min(start_ns) AS first_start_ns,
    (SELECT sum(until_ns - from_ns)::BIGINT FROM device_busy, steady_window) AS window_ns,
    (SELECT max(layer_count) FROM model_shape) AS layer_count
FROM spent, counted GROUP BY per_step
"""

CURE = Cure(
    steps=(
        CureStep(
            Target.DEVICE_OP,
            Act.SET_DURATION_NS,
            f"""SELECT device_op_id, CASE
                WHEN transfer_ns IS NOT NULL THEN waiting_ns + least(transfer_ns, $reachable_ns)
                WHEN end_ns - start_ns < $max_median_ns THEN $reachable_ns
                ELSE end_ns - start_ns END AS left_ns
            FROM ({SPENT})""",
            values={name: THRESHOLDS[name].value for name in ("max_median_ns", "reachable_ns")},
        ),
    ),
    is_host_work=False,
    spread=1.5,
)


class Meetings(NamedTuple):
    """Collectives of the window."""

    per_step: float | None
    collective_count: int
    member_count: int
    transfer_ns: float | None
    kernel_ns: float | None
    all_transfer_ns: int | None
    first_start_ns: int | None
    window_ns: int | None
    layer_count: float | None


def judge(row: Meetings) -> Verdict:
    """So many, and each so short."""
    least = THRESHOLDS["min_per_step"].value
    if row.layer_count:
        least = min(least, THRESHOLDS["min_per_layer"].value * row.layer_count)
    if not row.per_step or row.per_step <= least or not row.window_ns:
        return None
    transfer_us, kernel_us = (row.transfer_ns or 0) / 1e3, (row.kernel_ns or 0) / 1e3
    if (row.transfer_ns or 0) >= THRESHOLDS["max_median_ns"].value:
        return None
    if transfer_us * 1e3 <= THRESHOLDS["reachable_ns"].value:
        return Cleared(
            f"{row.per_step:,.0f} collectives a step, but {transfer_us:.0f} us of transfer each is what they can reach"
        )
    knows_waiting = row.member_count > 0.5 * row.collective_count
    told = (
        f" ({kernel_us:.0f} us with waiting)" if knows_waiting else "; one rank alone cannot tell waiting from transfer"
    )
    a_layer = f" ({row.per_step / row.layer_count:.1f} a layer)" if row.layer_count else ""
    return Finding(
        summary=f"{row.per_step:,.0f} collectives a step{a_layer}, {transfer_us:.0f} us of transfer each{told}",
        evidence=(
            Evidence("collectives per step", row.per_step, "collectives", Where(start_ns=row.first_start_ns)),
            Evidence("median transfer", transfer_us, "us"),
            Evidence("transfer", (row.all_transfer_ns or 0) / row.window_ns, "share of window"),
        ),
        cure=CURE,
        confidence=0.75 if knows_waiting else 0.5,
        cleared=f"{row.per_step:,.0f} collectives a step, but other things hold the run up",
    )


FIXES = (
    Fix(
        "pytorch",
        "torch.distributed._symmetric_memory one-shot all-reduce for small tensors; join small tensors into one"
        " (all_reduce_coalesced); torch.compile with torch._inductor.config.reorder_for_compute_comm_overlap = True",
        "fewer and shorter meetings",
        source="https://docs.pytorch.org/docs/stable/symmetric_memory.html",
    ),
    Fix(
        "vllm",
        "keep custom all-reduce on (drop --disable-custom-all-reduce); --compilation-config"
        ' \'{"pass_config": {"fuse_allreduce_rms": true}}\'; lower --tensor-parallel-size',
        "one-shot kernels, fused with the norm behind them",
        source="https://docs.vllm.ai/en/latest/design/fusions.html",
    ),
    Fix(
        "sglang",
        "keep custom all-reduce on (drop --disable-custom-all-reduce); --flashinfer-allreduce-fusion-backend auto (--enable-flashinfer-allreduce-fusion in older versions); lower --tp-size",
        "one-shot kernels, fused with the norm behind them",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "allreduce_strategy: AUTO (or ONESHOT for small batches)",
        "one-shot all-reduce, fused with residual and norm",
        source="https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html",
    ),
    Fix(
        "transformers",
        'fewer devices for tp_plan="auto": the smallest number that holds weights and KV',
        "a meeting that does not take place costs nothing",
        source="https://huggingface.co/docs/transformers/perf_infer_gpu_multi",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Meetings,
    judge=judge,
    fixes=FIXES,
    verify="record all ranks again: fewer than two collectives a layer, or under 8 us of transfer each.",
    doc=__doc__,
)
