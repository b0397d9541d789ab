"""Pipeline stages wait for each other: too few micro-batches in flight.

What happens: with p stages and m micro-batches a stage works m of m + p - 1 slots and stands still in the others, in a
receive that the next stage's work has not yet reached. One request in flight keeps one stage busy, whatever the number
of devices.

How it is detected: two or more devices that send to and receive from each other; time in which a stage computes nothing,
holes under 100 us closed, is at least 20 % on the mean over stages; and for a fifth of the computing time some stages
work while others do not. The win is the run replayed with work that waits for no receive, as there is always another
micro-batch to compute, and takes longer by the bubble of eight micro-batches a stage, (p - 1) / (9p - 1). Or a table has
the same devices faster where fewer of them are stages. Or a log shows fewer requests running than keep that bubble under 20 %, while
others wait: then it is told from the formula, with less confidence.

When it is not this: experts exchanged between devices send and receive too, but all devices do so at once: `comm-exposed`.
A device that waits for its own host shows holes everywhere: `host-dispatch-bound`. Low load idles too: without waiting
requests there is nothing to fill the pipeline with.
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
    Severity,
    Sign,
    Stage,
    Target,
    Threshold,
    Verdict,
    Where,
)

ABOUT = About(
    id="pp-bubble",
    title="Pipeline stages wait for each other",
    stage=Stage.SPECIFIC,
    reads=("device_op", "kernel", "device_busy"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_bubble": Threshold(
        0.2, "share of the window", source="NVIDIA/TensorRT-LLM#1144; (p - 1) / (m + p - 1), m = 4p"
    ),
    "min_apart": Threshold(
        0.2,
        "share of the time in which any stage computes",
        source="twice the bubble in a pipeline, next to nothing in lockstep",
    ),
    "hole_ns": Threshold(100_000, "ns", source="launches and exchanges between layers leave shorter holes"),
    "min_waiting": Threshold(
        0.5, "share of lines with running requests", source="an idle server has empty stages, too"
    ),
    "min_ratio": Threshold(1.2, "x", source="NVIDIA/TensorRT-LLM#1144: 1.6x; single runs differ by a tenth"),
    "min_exchanges": Threshold(6, "sends and receives a device", source="fewer say nothing about a habit"),
}

EXCHANGES = """
    SELECT op.device_op_id, op.source_id, op.device_id, op.start_ns, op.end_ns
    FROM device_op AS op JOIN kernel_name USING (name_id), steady_window
    WHERE op.family = 'collective' AND op.start_ns >= from_ns AND op.start_ns < until_ns
        AND regexp_matches(lower(name), 'send_?recv|nccl.*(_send|_recv)|rccl.*(_send|_recv)')
"""

COMPUTING = f"""
    SELECT op.device_op_id FROM device_op AS op JOIN (SELECT DISTINCT source_id, device_id FROM ({EXCHANGES})) USING (source_id, device_id), steady_window
    WHERE op.family <> 'collective' AND op.start_ns >= from_ns AND op.start_ns < until_ns
"""

SQL = f"""
WITH exchange AS ({EXCHANGES}),
stage AS (
    SELECT source_id, device_id, count(*) AS exchange_count, sum(end_ns - start_ns)::BIGINT AS exchange_ns,
        arg_max(start_ns, end_ns - start_ns) AS longest_start_ns, arg_max(end_ns, end_ns - start_ns) AS longest_end_ns
    FROM exchange GROUP BY source_id, device_id HAVING count(*) >= $min_exchanges
),
computing AS (
    SELECT op.source_id, op.device_id, op.start_ns, op.end_ns, max(op.end_ns) OVER (
        PARTITION BY op.source_id, op.device_id ORDER BY op.start_ns, op.end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS until_before_ns
    FROM device_op AS op JOIN stage USING (source_id, device_id), steady_window
    WHERE op.family NOT IN ('collective', 'memcpy', 'memset') AND op.start_ns >= from_ns AND op.start_ns < until_ns
),
numbered AS (
    SELECT *, sum((until_before_ns IS NULL OR start_ns > until_before_ns + $hole_ns)::INTEGER) OVER (
        PARTITION BY source_id, device_id ORDER BY start_ns, end_ns ROWS UNBOUNDED PRECEDING) AS run
    FROM computing
),
run AS (
    SELECT source_id, device_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM numbered GROUP BY source_id, device_id, run
),
edge AS (
    SELECT time_ns, sum(change) AS change
    FROM (SELECT start_ns AS time_ns, 1 AS change FROM run UNION ALL SELECT end_ns, -1 FROM run) GROUP BY time_ns
),
level AS (
    SELECT sum(change) OVER (ORDER BY time_ns) AS working_count, lead(time_ns) OVER (ORDER BY time_ns) - time_ns AS span_ns FROM edge
),
together AS (
    SELECT coalesce(sum(span_ns) FILTER (working_count > 0), 0)::BIGINT AS any_ns,
        coalesce(sum(span_ns) FILTER (working_count = (SELECT count(*) FROM stage)), 0)::BIGINT AS all_ns
    FROM level
)
SELECT (SELECT count(*) FROM stage) AS stage_count, (SELECT sum(end_ns - start_ns)::BIGINT FROM run) AS working_ns, any_ns, all_ns,
    (SELECT sum(exchange_ns)::BIGINT FROM stage) AS exchange_ns, (SELECT max(longest_start_ns) FROM stage) AS longest_start_ns,
    (SELECT max(longest_end_ns) FROM stage) AS longest_end_ns, until_ns - from_ns AS window_ns
FROM together, steady_window
"""


class Stages(NamedTuple):
    """Devices of a pipeline, and how much of the window they compute, alone and together."""

    stage_count: int
    working_ns: int | None
    any_ns: int
    all_ns: int
    exchange_ns: int | None
    longest_start_ns: int | None
    longest_end_ns: int | None
    window_ns: int


def judge(row: Stages) -> Verdict:
    """A bubble, and stages that take turns."""
    if row.stage_count < 2 or not row.any_ns or row.working_ns is None or not row.exchange_ns:
        return None
    bubble = 1 - row.working_ns / (row.stage_count * row.window_ns)
    apart = 1 - row.all_ns / row.any_ns
    if bubble < THRESHOLDS["min_bubble"].value or apart < THRESHOLDS["min_apart"].value:
        return None
    ideal = (row.stage_count - 1) / (9 * row.stage_count - 1)
    return Finding(
        summary=f"{row.stage_count} stages stand still for {bubble:.0%} of the window on the mean; for {apart:.0%} of the computing"
        f" time some work while others wait; eight micro-batches a stage leave {ideal:.0%}",
        evidence=(
            Evidence(
                "stages standing still",
                bubble,
                "share of window",
                Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns),
            ),
            Evidence("stages working apart", apart, "share of computing time"),
            Evidence("in sends and receives", row.exchange_ns / (row.stage_count * row.window_ns), "share of window"),
            Evidence("bubble of eight micro-batches a stage", ideal, "share of window"),
        ),
        cure=Cure(
            steps=(
                CureStep(
                    Target.DEVICE_OP,
                    Act.SCALE,
                    f"SELECT device_op_id FROM ({EXCHANGES})",
                    value=min(ideal / bubble, 1.0),
                ),
                CureStep(Target.DEVICE_OP, Act.MOVE_TO_SIDE_STREAM, f"SELECT device_op_id FROM ({EXCHANGES})"),
                CureStep(Target.DEVICE_OP, Act.SCALE, COMPUTING, value=1 / (1 - ideal)),
            ),
            is_host_work=False,
            spread=2.0,
        ),
        confidence=0.7,
        cleared=f"stages stand still for {bubble:.0%} of the window, but not inside receives",
    )


LAYOUT_SQL = """
WITH layout AS (
    SELECT source_id, tool, row_id, coalesce(tensor_parallel_count, 1) AS tensor_count, coalesce(pipeline_parallel_count, 1) AS stage_count,
        coalesce(batch_count, concurrency_count) AS load_count, request_rate_hz, prompt_token_count, condition,
        nullif(coalesce(output_token_hz, total_token_hz, request_hz), 0) AS rate_hz,
        nullif(coalesce(latency_ns, latency_p99_ns, tpot_p50_ns), 0) AS taken_ns
    FROM bench_row WHERE coalesce(data_parallel_count, 1) = 1
)
SELECT deep.tensor_count AS deep_tensor_count, deep.stage_count AS deep_stage_count, flat.tensor_count AS flat_tensor_count,
    flat.stage_count AS flat_stage_count, flat.rate_hz / deep.rate_hz AS rate_ratio, deep.taken_ns / flat.taken_ns AS latency_ratio
FROM layout AS deep JOIN layout AS flat ON flat.source_id = deep.source_id AND flat.tool = deep.tool
    AND flat.tensor_count * flat.stage_count = deep.tensor_count * deep.stage_count AND flat.stage_count < deep.stage_count
    AND flat.load_count IS NOT DISTINCT FROM deep.load_count AND flat.request_rate_hz IS NOT DISTINCT FROM deep.request_rate_hz
    AND flat.prompt_token_count IS NOT DISTINCT FROM deep.prompt_token_count AND flat.condition IS NOT DISTINCT FROM deep.condition
WHERE rate_ratio IS NOT NULL OR latency_ratio IS NOT NULL
ORDER BY greatest(coalesce(rate_ratio, 0), coalesce(latency_ratio, 0)) DESC, deep.row_id, flat.row_id LIMIT 1
"""


class Layouts(NamedTuple):
    """The same devices as stages and as shares of layers: the widest difference in a table."""

    deep_tensor_count: int
    deep_stage_count: int
    flat_tensor_count: int
    flat_stage_count: int
    rate_ratio: float | None
    latency_ratio: float | None


def judge_layouts(row: Layouts) -> Verdict:
    """Fewer stages of the same devices are faster."""
    deep = f"pp {row.deep_stage_count:.0f} x tp {row.deep_tensor_count:.0f}"
    flat = f"pp {row.flat_stage_count:.0f} x tp {row.flat_tensor_count:.0f}"
    rate, latency = row.rate_ratio or 0.0, row.latency_ratio or 0.0
    ratio = max(rate, latency)
    if ratio < THRESHOLDS["min_ratio"].value:
        return Cleared(f"{deep} is at most {max(ratio - 1, 0):.0%} slower than {flat} on as many devices")
    longer = f"takes {latency:.1f} times as long as {flat} on as many devices: stages never shorten a single request"
    fewer = f"does {1 / rate:.0%} of the work of {flat} a second" if rate > 1 else ""
    both = (Evidence("their throughput against it", rate, "x"),) if rate and latency > rate else ()
    return Finding(
        summary=f"{deep} " + " and ".join(part for part in (fewer, longer if latency > 1 else "") if part),
        evidence=(Evidence("fewer stages against more", ratio, "x"), *both),
        severity=Severity.of_share(1 - 1 / ratio),
        confidence=0.75,
        speedup_bound=rate if rate > 1 else ratio,
        label=f"{deep} against {flat}",
    )


FIXES = (
    Fix(
        "pytorch",
        "torch.distributed.pipelining ScheduleInterleaved1F1B with n_microbatches at least 4 x stages",
        "a stage works m of m + p - 1 slots",
        source="https://docs.pytorch.org/docs/stable/distributed.pipelining.html",
    ),
    Fix(
        "vllm",
        "--max-num-seqs at least 4 x --pipeline-parallel-size x today's running requests a batch; VLLM_PP_LAYER_PARTITION for"
        " even stages; --tensor-parallel-size in place of pipelining inside a node",
        "more batches are in flight",
        source="https://docs.vllm.ai/en/latest/serving/parallelism_scaling.html",
    ),
    Fix(
        "sglang",
        "--pp-max-micro-batch-size smaller, so that the running requests make at least 4 x --pp-size micro-batches;"
        " --tp-size in place of --pp-size inside a node",
        "more micro-batches are in flight",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "pipeline_parallel_size: 1 and tensor_parallel_size over the devices of a node; else raise max_batch_size",
        "no bubble inside a node; more in-flight batches across nodes",
        source="https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html",
    ),
    Fix(
        "transformers",
        'tp_plan="auto" in place of device_map="auto"',
        "device_map runs the devices one after another",
        source="https://huggingface.co/docs/transformers/perf_infer_gpu_multi",
    ),
)

FLIGHT_SQL = """
SELECT max(told_count) FILTER (setting = 'pipeline_parallel') AS stage_count, any_value(running_median_count) AS running_count,
    any_value(waiting_median_count) AS waiting_count, any_value(waiting_sample_count / nullif(busy_count, 0)) AS waiting_share
FROM engine_choice, (SELECT * FROM engine_queue WHERE busy_count > 0 ORDER BY sample_count DESC LIMIT 1)
HAVING stage_count >= 2
"""


class Flight(NamedTuple):
    """How many requests are on their way through the stages, as the log tells."""

    stage_count: float
    running_count: float | None
    waiting_count: float | None
    waiting_share: float | None


def judge_flight(row: Flight) -> Verdict:
    """Fewer requests than a pipeline needs, while others wait: even one micro-batch a request leaves stages empty."""
    if not row.running_count or not row.waiting_share or row.waiting_share < THRESHOLDS["min_waiting"].value:
        return None
    bubble = (row.stage_count - 1) / (row.running_count + row.stage_count - 1)
    if bubble < THRESHOLDS["min_bubble"].value:
        return None
    return Finding(
        summary=f"{row.running_count:.0f} requests run through {row.stage_count:.0f} stages while {row.waiting_count or 0:.0f} wait: even as so many"
        f" micro-batches they leave the stages empty {bubble:.0%} of the time",
        evidence=(
            Evidence("stages", row.stage_count, "stages"),
            Evidence("requests running", row.running_count, "requests at the median"),
            Evidence("least bubble", bubble, "share of the time"),
        ),
        severity=Severity.HIGH,
        confidence=0.6,
        speedup_bound=1 / (1 - bubble),
    )


RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Stages,
    judge=judge,
    fixes=FIXES,
    verify="record all stages again under load: each computes for nine tenths of the window.",
    doc=__doc__,
    also=(
        Sign(("bench_row",), ("bench-table",), LAYOUT_SQL, Layouts, judge_layouts),
        Sign(("engine_queue", "engine_choice"), ("engine-log", "metrics"), FLIGHT_SQL, Flight, judge_flight),
    ),
)
