"""Long prefills run between decode steps: everybody waits for one prompt.

What happens: a prompt that is computed in one piece takes as long as dozens of decode steps, and the sequences that were
being decoded get no token meanwhile. The mean hardly shows it; the 99th percentile of the time between tokens does.

How it is detected: at least three steps, or runs of steps, each directly behind a usual decode step, that take at least
five times the median step, hold at least three times its device work, and keep the device busy for at least half of their
length. The finding states what it does to the time between tokens; no work would go away, so no speed-up is promised. In a log:
at least three prefills in a row, each of more than four times 4,096 prompt tokens, while requests are being decoded; or at least
three lines of state in which prompts are computed beside requests that ran before, and all of these together get less than a
fifth of the tokens that they got on the line before. A benchmark of prompts of 4,096 tokens and more whose 99th percentile between
tokens is five times the median raises the suspicion.

When it is not this: a long step without device work is a pause: `step-gap-scheduler`. A program that answers one request
after another has the same picture and nobody who waits: look at whether sequences were running. The first prefill of a
recording stands behind no decode step.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict, Where
from doctor.units import format_counted

ABOUT = About(
    id="prefill-blocks-decode",
    title="Long prefills hold up decode steps",
    stage=Stage.SPECIFIC,
    reads=("device_op", "step_work", "usual_step"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_ratio": Threshold(5, "x the median step", source="sgl-project/sglang PR#14050: between-token p99 over p50"),
    "min_chunks": Threshold(4, "x a usual chunk", source="sgl-project/sglang PR#14050: prefills of 32 to 35 thousand"),
    "chunk_tokens": Threshold(4096, "prompt tokens a step", source="vLLM and SGLang advise 2,048 to 8,192"),
    "min_runs": Threshold(3, "runs of long steps", source="sgl-project/sglang PR#14050: prefill after prefill"),
    "min_prompt_hz": Threshold(100, "prompt tokens a second", source="fewer are short prompts"),
    "min_work_ratio": Threshold(3, "x the median step's device work", source="a prompt is more work than a token"),
    "min_step_ops": Threshold(8, "device operations a step", source="one layer of a transformer has as many"),
    "min_busy": Threshold(0.5, "share of a long step", source="a step that mostly idles is a pause"),
    "min_share": Threshold(0.1, "share of the window", source="rule of thumb: below this one token in ten waits"),
}

SQL = """
WITH worked AS (
    SELECT step_id, sum(device_ns)::BIGINT AS device_ns, sum(op_count) AS op_count, bool_or(family = 'graph') AS is_graph
    FROM step_work GROUP BY step_id
),
-- a forward pass has more operations, unless it is a graph: what comes back with fewer is an expert or an exchange, not a decode step
usual AS (
    SELECT source_id, pid, median(length_ns) AS length_ns, median(device_ns) AS device_ns
    FROM (SELECT step_id, source_id, pid, end_ns - start_ns AS length_ns FROM step) JOIN worked USING (step_id)
    GROUP BY source_id, pid HAVING median(op_count) >= $min_step_ops OR bool_or(is_graph)
),
sorted AS (
    SELECT step.source_id, step.pid, step.start_ns, step.end_ns, worked.device_ns,
        step.end_ns - step.start_ns >= $min_ratio * usual.length_ns AND worked.device_ns >= $min_work_ratio * usual.device_ns
            AND worked.device_ns >= $min_busy * (step.end_ns - step.start_ns) AS is_long,
        step.end_ns - step.start_ns < 2 * usual.length_ns AS is_usual, usual.length_ns AS usual_ns
    FROM step JOIN worked USING (step_id) JOIN usual ON usual.source_id = step.source_id AND usual.pid = step.pid
),
opened AS (
    SELECT *, is_long AND coalesce(lag(is_usual) OVER (PARTITION BY source_id, pid ORDER BY start_ns), false) AS is_run_start FROM sorted
)
SELECT count(*) AS step_count, count(*) FILTER (is_long) AS long_count, count(*) FILTER (is_run_start) AS run_count,
    coalesce(sum(end_ns - start_ns) FILTER (is_long), 0)::BIGINT AS long_ns, median(usual_ns) AS usual_ns,
    quantile_cont(end_ns - start_ns, 0.99) AS p99_ns, max(end_ns - start_ns) FILTER (is_long) AS longest_ns,
    arg_max(start_ns, end_ns - start_ns) FILTER (is_long) AS longest_start_ns, arg_max(end_ns, end_ns - start_ns) FILTER (is_long) AS longest_end_ns,
    max(start_ns) FILTER (is_usual) > max(start_ns) FILTER (is_long) AS decodes_afterwards,
    (SELECT until_ns - from_ns FROM steady_window) AS window_ns
FROM opened
"""


class LongSteps(NamedTuple):
    """Steps of the window, the long ones among them."""

    step_count: int
    long_count: int
    run_count: int
    long_ns: int
    usual_ns: float | None
    p99_ns: float | None
    longest_ns: int | None
    longest_start_ns: int | None
    longest_end_ns: int | None
    decodes_afterwards: bool | None
    window_ns: int


def judge(row: LongSteps) -> Verdict:
    """Long steps that come back between usual ones."""
    if row.run_count < THRESHOLDS["min_runs"].value or not row.decodes_afterwards:
        return None
    if not row.usual_ns or row.longest_ns is None or row.long_count > 0.5 * row.step_count:
        return None
    ratio, share = (row.p99_ns or 0) / row.usual_ns, row.long_ns / row.window_ns
    return Finding(
        summary=f"{format_counted(row.long_count, 'step')} of up to {row.longest_ns / 1e6:.0f} ms, between usual steps of {row.usual_ns / 1e6:.1f} ms:"
        f" sequences that are being decoded wait for prompts during {share:.0%} of the window",
        evidence=(
            Evidence(
                "longest step against the median",
                row.longest_ns / row.usual_ns,
                "x",
                Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns),
            ),
            Evidence("99th percentile of steps against the median", ratio, "x"),
            Evidence("time in long steps", share, "share of window"),
            Evidence("runs of long steps", float(row.run_count), "runs"),
        ),
        # the trace alone does not say whether anybody was waiting
        severity=Severity.MEDIUM if share >= THRESHOLDS["min_share"].value else Severity.LOW,
        confidence=0.6,
    )


LOG_SQL = """
WITH large AS (
    SELECT *, new_token_max_count >= $min_chunks * $chunk_tokens AS is_large FROM prefill_run
)
SELECT count(*) AS run_count, count(*) FILTER (line_count >= $min_runs AND is_large) AS large_run_count,
    coalesce(sum(line_count), 0)::BIGINT AS line_count, coalesce(max(line_count) FILTER (is_large), 0)::BIGINT AS longest_run,
    max(new_token_max_count) AS new_token_max, median(new_token_median_count) FILTER (is_large) AS new_token_median,
    max(running_median_count) FILTER (is_large) AS running, coalesce(sum(end_ns - start_ns) FILTER (is_large), 0)::BIGINT AS blocked_ns,
    (SELECT max(time_ns) - min(time_ns) FROM engine_load WHERE is_steady) AS span_ns, any_value(chunk_count) AS chunk_count,
    (SELECT max(itl_p99_ns::DOUBLE / nullif(itl_p50_ns, 0)) FROM bench_row) AS itl_ratio
FROM large
"""

STATE_SQL = """
WITH line AS (
    SELECT source_id, replica_id, line_id, running_count, output_token_hz, coalesce(prompt_token_hz, 0) AS prompt_hz,
        coalesce(prompt_token_hz, 0) >= $min_prompt_hz AS is_prefilling
    FROM engine_load WHERE phase = 'state' AND running_count IS NOT NULL AND output_token_hz IS NOT NULL
),
numbered AS (  -- each run begins with the last line on which requests were only decoded
    SELECT *, sum(CASE WHEN is_prefilling THEN 0 ELSE 1 END) OVER (PARTITION BY source_id, replica_id ORDER BY line_id) AS run_id FROM line
),
before AS (
    SELECT source_id, replica_id, run_id, running_count, output_token_hz FROM numbered WHERE NOT is_prefilling AND running_count >= 1 AND output_token_hz > 0
)
SELECT count(*) AS busy_count, count(*) FILTER (output.running_count > before.running_count AND $min_ratio * output.output_token_hz <= before.output_token_hz)
        AS starved_count,
    median(before.output_token_hz) AS usual_hz, median(output.output_token_hz) FILTER (output.running_count > before.running_count) AS starved_hz,
    max(before.running_count) AS running_count, median(prompt_hz) AS prompt_hz
FROM numbered AS output JOIN before USING (source_id, replica_id, run_id) WHERE is_prefilling
"""


class PrefillRuns(NamedTuple):
    """Prefills in a row while requests are being decoded."""

    run_count: int
    large_run_count: int
    line_count: int
    longest_run: int
    new_token_max: float | None
    new_token_median: float | None
    running: float | None
    blocked_ns: int
    span_ns: int | None
    chunk_count: float | None
    itl_ratio: float | None


def judge_log(row: PrefillRuns) -> Verdict:
    """Three large ones in a row."""
    if not row.run_count:
        return None
    if not row.large_run_count:
        if row.line_count >= THRESHOLDS["min_runs"].value and row.new_token_max:
            return Cleared(f"prefills run beside decode, but in pieces of at most {row.new_token_max:,.0f} tokens")
        return None
    return Finding(
        summary=f"up to {row.longest_run} prefills in a row of {row.new_token_median or 0:,.0f} tokens at the median while"
        f" {row.running or 0:.0f} requests wait for their next token",
        evidence=(
            Evidence("prefills in a row", float(row.longest_run), "prefills"),
            Evidence("prompt tokens in one", row.new_token_max or 0.0, "tokens at most"),
            Evidence("requests being decoded", row.running or 0.0, "requests"),
            *((Evidence("chunk that is set", row.chunk_count, "tokens"),) if row.chunk_count else ()),
            *(
                (Evidence("between tokens, 99th percentile against median", row.itl_ratio, "x"),)
                if row.itl_ratio
                else ()
            ),
        ),
        severity=Severity.HIGH,
        confidence=0.9 if (row.itl_ratio or 0) >= THRESHOLDS["min_ratio"].value else 0.75,
    )


class StarvedLines(NamedTuple):
    """Lines of state on which prompts are computed beside requests that ran before."""

    busy_count: int
    starved_count: int
    usual_hz: float | None
    starved_hz: float | None
    running_count: float | None
    prompt_hz: float | None


def judge_state(row: StarvedLines) -> Verdict:
    """Those that ran before get next to nothing."""
    if row.starved_count < THRESHOLDS["min_runs"].value:
        return None
    return Finding(
        summary=f"on {row.starved_count} of {row.busy_count} lines with prompts of {row.prompt_hz or 0:,.0f} tokens a second, requests that ran before get"
        f" {row.starved_hz or 0:.1f} tokens a second in place of {row.usual_hz or 0:.1f}",
        evidence=(
            Evidence("tokens a second before", row.usual_hz or 0.0, "tokens/s"),
            Evidence("tokens a second meanwhile", row.starved_hz or 0.0, "tokens/s"),
            Evidence("prompts meanwhile", row.prompt_hz or 0.0, "tokens/s"),
            Evidence("lines on which they wait", float(row.starved_count), "lines"),
        ),
        # the log does not say which of the requests are still being decoded
        severity=Severity.MEDIUM,
        confidence=0.55,
    )


TAIL_SQL = """
SELECT itl_p99_ns / itl_p50_ns AS ratio, itl_p99_ns, prompt_token_count, coalesce(concurrency_count, batch_count) AS load_count FROM bench_row
WHERE itl_p50_ns > 0 AND itl_p99_ns >= $min_ratio * itl_p50_ns AND prompt_token_count >= $chunk_tokens
    AND coalesce(concurrency_count, batch_count, 2) > 1 AND NOT EXISTS (SELECT 1 FROM engine_load)
    AND NOT EXISTS (SELECT 1 FROM engine_choice WHERE setting = 'capacity_policy' AND regexp_matches(told, 'max_?util'))
ORDER BY ratio DESC LIMIT 1
"""


class Tail(NamedTuple):
    """A benchmark of long prompts whose tokens come unevenly."""

    ratio: float
    itl_p99_ns: float
    prompt_token_count: float
    load_count: float | None


def judge_tail(row: Tail) -> Verdict:
    """One token in a hundred waits as long as a prompt takes; the log of the engine would settle it."""
    at = f" with {row.load_count:.0f} requests at a time" if row.load_count else ""
    return Finding(
        summary=f"the 99th percentile between tokens is {row.itl_p99_ns / 1e6:.0f} ms, {row.ratio:.0f} times the median, at prompts of"
        f" {row.prompt_token_count:,.0f} tokens{at}: prompts of others are probably computed in between",
        evidence=(
            Evidence("99th percentile between tokens against the median", row.ratio, "x"),
            Evidence("prompt", row.prompt_token_count, "tokens"),
        ),
        severity=Severity.MEDIUM,
        confidence=0.5,
    )


FIXES = (
    Fix(
        "vllm",
        "--enable-chunked-prefill --max-num-batched-tokens 2048 (to 8192); --long-prefill-token-threshold",
        "a prompt runs in pieces, each together with the decode tokens",
        source="https://docs.vllm.ai/en/latest/configuration/optimization.html",
    ),
    Fix(
        "sglang",
        "--chunked-prefill-size 2048 (to 8192) --enable-mixed-chunk; or prefill and decode on separate servers"
        " (--disaggregation-mode)",
        "pieces of a prompt share a step with decode",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "enable_chunked_prefill: true, max_num_tokens: 2048 (to 8192)",
        "pieces of a prompt share a step with decode",
        source="https://nvidia.github.io/TensorRT-LLM/features/paged-attention-ifb-scheduler.html",
    ),
    Fix(
        "transformers",
        "generate_batch() with ContinuousBatchingConfig(max_batch_tokens=2048)",
        "prompts are cut to what fits beside the running sequences",
        source="https://huggingface.co/docs/transformers/continuous_batching",
    ),
    Fix(
        "pytorch",
        "cut prompts into pieces of 512 to 2,048 tokens and pack each with the decode tokens of the step",
        "the longest step is bounded",
        source="https://arxiv.org/abs/2403.02310",
    ),
    Fix(
        "engine",
        "--max-num-batched-tokens 512",
        "a long prompt is computed in chunks between the tokens of others",
        source="python -m engine bench --help",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=LongSteps,
    judge=judge,
    fixes=FIXES,
    verify="record again under the same load: the 99th percentile of the step is under three medians.",
    doc=__doc__,
    also=(
        Sign(("prefill_run",), ("engine-log",), LOG_SQL, PrefillRuns, judge_log),
        Sign(("engine_load",), ("engine-log",), STATE_SQL, StarvedLines, judge_state),
        Sign(("bench_row",), ("bench-table",), TAIL_SQL, Tail, judge_tail),
    ),
)
