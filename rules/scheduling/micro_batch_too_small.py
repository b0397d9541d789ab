"""The step is cut into pieces too small to fill the device.

What happens: a batch is run as several micro-batches one after another. Each piece reads all weights again and pays
all launches again; a decode piece of one row takes as long as one of eight. The device is idle or bound by bandwidth
while the same answer could come from one pass.

How it is detected: in each usual step the rarest matrix product (the language-model head runs once a pass) comes m
times, and the operations between two of them are the same, kernel by kernel. The win is the run replayed with pieces
2 to m gone and the first piece a little longer: short kernels and products that are bound by weights do not grow with
rows; attention and long element-wise kernels do once every multiprocessor has a block of theirs, and a piece of one
sequence is far from that. Or the engine counted it: a benchmark says how many passes a step has.

When it is not this: layers repeat too, but the head does not; a loop over steps without a wait looks like pieces only
where steps cannot be told. Pipeline stages need pieces: there, keep at least four times as many as stages. A single
sequence cannot be merged with anything.
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
    Rule,
    Severity,
    Sign,
    Stage,
    Target,
    Threshold,
    Verdict,
    Where,
)

ABOUT = About(
    id="micro-batch-too-small",
    title="The step is cut into pieces too small for the device",
    stage=Stage.SPECIFIC,
    reads=("device_op", "thread_call"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_steps": Threshold(3, "steps cut alike", source="a cause seen once or twice is not what the run is made of"),
    "min_step_share": Threshold(
        0.8, "share of usual steps", source="own H200 recordings; guards against chance repeats"
    ),
    "short_ns": Threshold(
        5_000, "ns", source="own H200 recordings: below this a kernel's time does not depend on rows"
    ),
    "min_passes": Threshold(
        1.5, "forward passes a step", source="a few long prompts beside decodes make some steps two"
    ),
    "overhead_share": Threshold(0.1, "share of a piece", source="the fixed part of a piece that is worth leaving"),
}

SQL = """
WITH usual AS (
    SELECT mode(piece_count) AS piece_count, count(*) AS cut_step_count
    FROM piece_step JOIN usual_step USING (step_id)
),
alike AS (
    SELECT count(*) AS alike_count FROM piece_step JOIN usual_step USING (step_id), usual
    WHERE piece_step.piece_count = usual.piece_count
),
first_piece AS (
    SELECT avg(busy_ns) AS busy_ns, avg(grows_ns) AS grows_ns FROM (
        SELECT step_id, sum(device_op.end_ns - device_op.start_ns) AS busy_ns,
            sum(device_op.end_ns - device_op.start_ns)
                FILTER (device_op.end_ns - device_op.start_ns >= $short_ns AND family <> 'gemm') AS grows_ns
        FROM piece_op JOIN device_op USING (device_op_id) JOIN usual_step USING (step_id)
        WHERE piece = 0 GROUP BY step_id)
),
wave AS (
    SELECT median(grid_blocks) AS gemm_blocks FROM piece_op JOIN device_op USING (device_op_id) WHERE family = 'gemm'
)
SELECT usual.piece_count, alike.alike_count, (SELECT count(*) FROM usual_step) AS step_count,
    (SELECT avg(end_ns - start_ns) FROM usual_step) AS step_ns, first_piece.busy_ns, coalesce(first_piece.grows_ns, 0) AS grows_ns,
    wave.gemm_blocks, (SELECT max(sm_count) FROM device) AS sm_count,
    (SELECT min(start_ns) FROM usual_step JOIN piece_step USING (step_id)) AS first_start_ns,
    (SELECT min(end_ns) FROM usual_step JOIN piece_step USING (step_id)) AS first_end_ns
FROM usual, alike, first_piece, wave
WHERE usual.piece_count IS NOT NULL
"""

COUNTED_SQL = """
SELECT max(reading) FILTER (counted = 'pieces_per_step') AS pass_count, max(reading) FILTER (counted = 'decode_tokens_per_step') AS token_count
FROM bench_count GROUP BY source_id, row_id HAVING pass_count >= $min_passes ORDER BY pass_count DESC LIMIT 1
"""

LATER_CALLS = """
    FROM thread_call AS call
    JOIN (
        SELECT DISTINCT launching.source_id, launching.pid, launching.tid, launching.interval_id
        FROM piece_op JOIN launch USING (device_op_id) JOIN thread_call AS launching USING (host_call_id)
        WHERE piece > 0
    ) AS later USING (source_id, pid, tid, interval_id)
"""

STEPS = (
    CureStep(Target.DEVICE_OP, Act.REMOVE, "SELECT device_op_id FROM piece_op WHERE piece > 0"),
    CureStep(Target.HOST_CALL, Act.REMOVE, f"SELECT call.host_call_id {LATER_CALLS}"),
    CureStep(Target.SILENCE, Act.REMOVE, f"SELECT call.host_call_id {LATER_CALLS}"),
    CureStep(
        Target.DEVICE_OP,
        Act.SCALE,
        """SELECT device_op_id, CASE
            WHEN end_ns - start_ns < $short_ns THEN 1.0
            WHEN family = 'gemm' THEN 1.0 + 0.02 * (piece_count - 1)
            WHEN grid_blocks > 0 AND sm_count > 0
                THEN greatest(1.0, piece_count * grid_blocks / sm_count) / greatest(1.0, grid_blocks / sm_count)
            ELSE piece_count END
        FROM piece_op JOIN device_op USING (device_op_id),
            (SELECT max(sm_count)::DOUBLE AS sm_count FROM device) WHERE piece = 0""",
        values={"short_ns": THRESHOLDS["short_ns"].value},
    ),
)


class Pieces(NamedTuple):
    """How the usual steps of the window are cut."""

    piece_count: int
    alike_count: int
    step_count: int
    step_ns: float
    busy_ns: float | None
    grows_ns: float
    gemm_blocks: float | None
    sm_count: int | None
    first_start_ns: int | None
    first_end_ns: int | None


class Passes(NamedTuple):
    """What the engine counted in a benchmark."""

    pass_count: float
    token_count: float | None


def merge_factor(row: Pieces) -> int:
    """How many of today's pieces one pass should hold: so many that the fixed part is under a tenth, at most all.

    A piece takes `fixed + grows` ns; k pieces in one pass take `fixed + k * grows`. The fixed part is under the share s
    where k is at least (1 - s) / s * fixed / grows.
    """
    piece_ns = row.step_ns / row.piece_count
    fixed_ns = max(piece_ns - row.grows_ns, 0.0)
    if row.grows_ns <= 0:
        return row.piece_count
    share = THRESHOLDS["overhead_share"].value
    return max(2, min(row.piece_count, round((1 - share) / share * fixed_ns / row.grows_ns)))


def judge(row: Pieces) -> Verdict:
    """The same cut in nearly all usual steps."""
    if row.alike_count < THRESHOLDS["min_steps"].value:
        return None
    if row.alike_count < THRESHOLDS["min_step_share"].value * row.step_count:
        return None
    factor = merge_factor(row)
    waves = (
        (
            Evidence(
                "blocks of the median matrix product per multiprocessor", (row.gemm_blocks or 0) / row.sm_count, "waves"
            ),
        )
        if row.sm_count
        else ()
    )
    return Finding(
        summary=f"each step runs as {row.piece_count} like pieces, launched in {row.step_ns / row.piece_count / 1e6:.2f} ms each; the device"
        f" works {(row.busy_ns or 0) / 1e6:.2f} ms at one; put {factor} pieces into one pass",
        evidence=(
            Evidence("pieces per step", float(row.piece_count), "pieces"),
            Evidence("suggested merge", float(factor), "pieces in one pass"),
            Evidence(
                "piece",
                row.step_ns / row.piece_count / 1e6,
                "ms",
                Where(start_ns=row.first_start_ns, end_ns=row.first_end_ns),
            ),
            Evidence("device time of a piece that grows with rows", row.grows_ns / 1e6, "ms"),
            *waves,
        ),
        cure=Cure(steps=STEPS, device_divisor=float(row.piece_count), spread=1.5),
        confidence=0.85,
        cleared=f"each step runs as {row.piece_count} pieces, but merging them would save little",
        label=f"{row.piece_count} pieces a step",
        fixes=fixes_of(factor, is_whole=factor >= row.piece_count),
    )


def judge_count(row: Passes) -> Verdict:
    """More forward passes than steps."""
    tokens = "" if row.token_count is None else f" for {row.token_count:.1f} tokens of decoding"
    return Finding(
        summary=f"the engine counted {row.pass_count:.1f} forward passes a step{tokens}",
        evidence=(Evidence("forward passes per step", row.pass_count, "passes"),),
        severity=Severity.MEDIUM,
        speedup_bound=row.pass_count,
        label=f"{row.pass_count:.0f} pieces a step",
        fixes=fixes_of(round(row.pass_count), is_whole=True),
    )


def fixes_of(factor: int, *, is_whole: bool) -> tuple[Fix, ...]:
    """The fixes with the size to set: of the program's own setting, or of the limits that a server has."""
    times = f"{factor} x today's value"
    whole = " (the whole batch in one pass)" if is_whole else ""
    told = {"pytorch": f"micro_batch_size = {times}{whole}"}
    told |= {fix.target: f"{fix.setting}: {times}" for fix in FIXES if fix.setting.startswith("raise ")}
    return tuple(replace(fix, setting=told.get(fix.target, fix.setting)) for fix in FIXES)


FIXES = (
    Fix(
        "pytorch",
        "a larger micro_batch_size, the whole batch in one pass where it fits",
        "weights are read once and launches paid once for all rows; memory must hold their KV and activations",
        source="https://docs.pytorch.org/docs/stable/distributed.pipelining.html",
    ),
    Fix(
        "vllm",
        "raise --max-num-seqs and --max-num-batched-tokens",
        "the scheduler puts more sequences into a step",
        source="https://docs.vllm.ai/en/latest/configuration/optimization.html",
    ),
    Fix(
        "sglang",
        "raise --max-running-requests (with pipeline parallelism --max-micro-batch-size)",
        "more sequences run in one forward pass",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "raise max_batch_size and max_num_tokens",
        "the batch runs in one pass",
        source="https://nvidia.github.io/TensorRT-LLM/performance/perf-benchmarking.html",
    ),
    Fix(
        "transformers",
        "pass the sequences to generate() as one padded batch, or use generate_batch()",
        "one forward pass a token for all sequences",
        source="https://huggingface.co/docs/transformers/continuous_batching",
    ),
    Fix(
        "engine",
        "drop --micro-batch-size",
        "a step is one forward pass",
        source="python -m engine bench --help",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Pieces,
    judge=judge,
    fixes=FIXES,
    verify="record again: the language-model head runs once a step, and the step takes little longer than one piece did.",
    doc=__doc__,
    also=(Sign(("bench_count",), ("bench-table",), COUNTED_SQL, Passes, judge_count),),
)
