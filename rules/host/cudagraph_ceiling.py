"""The batch outgrows the captured CUDA graphs: decode falls back to launching every kernel.

What happens: engines capture graphs for batches up to a size. One sequence more and the step runs eagerly, several times slower
on a small model. Slower steps keep requests longer in the batch, so the batch stays above the ceiling: a server that was
tipped over by a burst does not recover although nobody waits.

How it is detected: at least 5 % of decode lines say that no graph was replayed, while others say one was, or while graphs were
captured up to a smaller batch; or, where lines do not say, the 95th percentile of running requests is above the largest
captured size. With data-parallel attention the requests of all ranks count together, with speculation each request counts once
for every token that is verified.

When it is not this: prefill lines say `cuda graph: False` by design. Where no graph was ever captured it is `cudagraph-off`.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict

ABOUT = About(
    id="cudagraph-ceiling",
    title="The batch is larger than the captured CUDA graphs",
    stage=Stage.SPECIFIC,
    reads=("engine_load",),
    needs=("engine-log", "metrics", "engine-config"),
)

THRESHOLDS = {
    "min_eager_share": Threshold(0.05, "share of decode lines", source="sgl-project/sglang#33483"),
    "min_lines": Threshold(5, "decode lines", source="fewer lines are a moment, not a state"),
    "most_promised": Threshold(4, "x", source="sgl-project/sglang#33483: four times the time a token on a small model"),
}

SQL = """
WITH engine AS (SELECT engine FROM engine_load GROUP BY engine ORDER BY count(*) DESC, engine LIMIT 1),
settled AS (
    SELECT max(told_count) FILTER (setting = 'graph_max_batch') AS told_max,
        max(list_max(regexp_extract_all(told, '\\d+')::DOUBLE[])) FILTER (setting = 'graph_sizes') AS told_largest,
        max(told_count) FILTER (setting = 'running_limit') AS running_limit,
        max(told_count) FILTER (setting = 'data_parallel') AS data_parallel, bool_or(setting = 'dp_attention' AND told = 'true') AS is_dp_attention,
        max(told_count) FILTER (setting = 'spec_tokens') AS spec_tokens, bool_or(setting = 'eager' AND told = 'true') AS is_eager
    FROM engine_choice JOIN engine USING (engine)
),
decode AS (
    SELECT running_count, graph_share, output_token_hz / nullif(running_count, 0) AS each_hz, drafted_count > 0 AS is_drafting
    FROM engine_load JOIN engine USING (engine)
    WHERE phase IN ('decode', 'state') AND running_count > 0 AND is_steady
),
captured AS (SELECT max(amount_count) AS logged_max FROM engine_figure JOIN engine USING (engine) WHERE figure = 'graph_max_batch')
SELECT (SELECT engine FROM engine) AS engine, count(*) AS line_count, count(graph_share) AS said_count,
    count(*) FILTER (graph_share < 0.5) AS eager_count, count(*) FILTER (graph_share < 0.5 AND is_drafting) AS drafting_count, median(running_count) AS running_median,
    quantile_cont(running_count, 0.95) AS running_p95, median(running_count) FILTER (graph_share < 0.5) AS running_eager,
    median(each_hz) FILTER (graph_share < 0.5) AS eager_each_hz, median(each_hz) FILTER (graph_share >= 0.5) AS graph_each_hz,
    coalesce(any_value(logged_max), any_value(told_max), any_value(told_largest)) AS captured_max, any_value(running_limit) AS running_limit,
    any_value(CASE WHEN is_dp_attention THEN coalesce(data_parallel, 1) ELSE 1 END) AS ranks,
    any_value(CASE WHEN (SELECT engine FROM engine) = 'vllm' THEN 1 + coalesce(spec_tokens, 0) ELSE 1 END) AS tokens_each,
    coalesce(any_value(is_eager), false) AS is_eager
FROM decode, settled, captured
"""


class Decoding(NamedTuple):
    """Decode lines of one engine and what was captured."""

    engine: str | None
    line_count: int
    said_count: int
    eager_count: int
    drafting_count: int
    running_median: float | None
    running_p95: float | None
    running_eager: float | None
    eager_each_hz: float | None
    graph_each_hz: float | None
    captured_max: float | None
    running_limit: float | None
    ranks: float | None
    tokens_each: float | None
    is_eager: bool


def judge(row: Decoding) -> Verdict:
    """Eager decode above the captured size."""
    if row.is_eager or row.line_count < THRESHOLDS["min_lines"].value or row.running_p95 is None:
        return None
    needed = row.running_p95 * (row.ranks or 1) * (row.tokens_each or 1)
    share = row.eager_count / row.said_count if row.said_count else None
    if share is not None:
        above = row.captured_max is not None and needed > row.captured_max
        if share < THRESHOLDS["min_eager_share"].value or not (above or row.eager_count < row.said_count):
            return None
        if row.captured_max is None and row.drafting_count == row.eager_count:
            return None  # drafts change the shape of a step: nothing says that the batch is what no graph fits
    elif row.captured_max is None or needed <= row.captured_max:
        return None
    ceiling = f", above the {row.captured_max:.0f} that were captured" if row.captured_max is not None else ""
    lines = f"{share:.0%} of decode lines replay no CUDA graph: " if share is not None else ""
    faster = (row.graph_each_hz or 0) / row.eager_each_hz if row.eager_each_hz else 0.0
    bound = min(THRESHOLDS["most_promised"].value, faster) if faster > 1 else THRESHOLDS["most_promised"].value
    return Finding(
        summary=f"{lines}{needed:.0f} {'tokens' if (row.tokens_each or 1) > 1 else 'requests'} in the batch at the 95th percentile{ceiling}",
        evidence=(
            *((Evidence("decode without a graph", share, "share of decode lines"),) if share is not None else ()),
            Evidence("batch at the 95th percentile", needed, "requests" if (row.tokens_each or 1) == 1 else "tokens"),
            Evidence("requests running", row.running_median or 0.0, "requests at the median"),
            *((Evidence("largest captured batch", row.captured_max, "sequences"),) if row.captured_max else ()),
            *((Evidence("limit of running requests", row.running_limit, "requests"),) if row.running_limit else ()),
        ),
        severity=Severity.HIGH,
        confidence=0.9 if share is not None and row.captured_max is not None else 0.7,
        speedup_bound=bound,
    )


FIXES = (
    Fix(
        "sglang",
        "--cuda-graph-max-bs (now also --cuda-graph-max-bs-decode) above the 99th percentile of #running-req; or"
        " --max-running-requests at the captured size",
        "every decode batch finds a graph",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html (checked with 0.5.9 to 0.5.18)",
    ),
    Fix(
        "vllm",
        "--max-cudagraph-capture-size (before 0.11 --cuda-graph-sizes) above max running x (1 + speculative tokens); or a lower"
        " --max-num-seqs",
        "every decode batch finds a graph",
        source="https://docs.vllm.ai/en/latest/configuration/engine_args.html (checked with 0.27 to 0.30)",
    ),
    Fix(
        "tensorrt-llm",
        "cuda_graph_config: {enable_padding: true, max_batch_size: 256}",
        "batches pad to the next captured size",
        source="https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html (checked with 1.2 to 1.4.0rc)",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Decoding,
    judge=judge,
    fixes=FIXES,
    verify="every decode line says `cuda graph: True`; the time a token falls and the batch with it.",
    doc=__doc__,
)
