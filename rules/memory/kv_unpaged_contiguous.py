"""The KV cache is not paged: it is reserved whole for every request, or copied to grow.

What happens: a cache kept as one tensor a layer and request is made as long as the longest sequence allowed, and most of it is never
written; or it has no room for the next token. Concatenation allocates a new tensor, reads all old keys and values and writes them again,
twice their bytes for one token's worth, and the copy grows with the sequence. While it runs, two copies are in memory.

How it is detected: concatenation kernels take at least 5 % of the device's time in usual steps, and one of two signs says that old tokens
are in them. Either their time rises from step to step: over at least five steps it goes with the step's place (correlation 0.8 or more)
and by at least 0.1 % a step. Or one of them takes at least three times as long as an activation or a norm of the same steps, which run
over all new rows: what it moves more must be old. The win is the run replayed with 3 us for each, what writing one token into a paged
cache takes. In a memory snapshot the reserved kind shows as one group of equal blocks that holds at least 20 % of the device and counts at
least two requests' worth: four blocks for each layer, where weights and paged pools have one or two. A configuration that keeps the
longest length for every slot is compared with what is left beside the weights and with what requests use; where memory ran out and the
size of the device is not told, its tokens speak, with less confidence. In an out-of-memory text the traceback ends where the cache is made
or concatenated. A benchmark of the engine may have counted the old bytes that it copied.

When it is not this: rotary embeddings and fused inputs are concatenated too, but they hold the new rows only, and their time does not
rise. Paged engines allocate their whole pool at the start, one or two blocks a layer: that is no waste. New shapes in every step may also
be planned anew: `lazy-module-load`.
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
from doctor.units import format_bytes

ABOUT = About(
    id="kv-unpaged-contiguous",
    title="The KV cache is not paged",
    stage=Stage.SPECIFIC,
    reads=("device_op", "step_work", "usual_step"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_share": Threshold(0.05, "share of the device's time in usual steps", source="below this other work leads"),
    "min_steps": Threshold(5, "steps", source="fewer make no trend"),
    "least_of_median": Threshold(0.5, "x the median step's concatenations", source="few recordings double a sequence"),
    "most_of_median": Threshold(2, "x the median step's concatenations", source="a prefill copies a whole prompt"),
    "min_correlation": Threshold(0.8, "correlation with the step's place", source="noise stays under a half"),
    "min_growth": Threshold(0.001, "of the first step's time, a step", source="one token in a thousand"),
    "min_outsize": Threshold(
        3, "x an activation or norm of the step", source="own H200 recordings: 34 us against 2 us; rotary under 1"
    ),
    "min_outsize_ns": Threshold(10_000, "ns", source="a shorter one says nothing about what it moves"),
    "min_outsize_steps": Threshold(3, "steps", source="a cause seen once or twice is not what the run is made of"),
    "least_waste": Threshold(0.75, "share of what is reserved", source="lmdeploy#722: over 97 % for 178 tokens"),
    "least_reserved_share": Threshold(0.2, "share of the device", source="own H200 snapshot: 97 %; lmdeploy#722"),
    "least_tokens": Threshold(16_384, "tokens", source="8 GiB of a 7 B model, heads ungrouped; lmdeploy#722: 82,000"),
    "paged_ns": Threshold(3_000, "ns", source="own H200 recordings: a token is written in 2 to 3 us"),
}

# A prefill of as many operations as a decode step copies the prompt's keys and values once: not a growing copy.
GROWING = """
    SELECT step_id, device_ns, op_count, start_ns, end_ns, row_number() OVER (PARTITION BY source_id, pid ORDER BY start_ns) AS place
    FROM (
        SELECT step_id, usual_step.source_id, usual_step.pid, device_ns, step_work.op_count, usual_step.start_ns, usual_step.end_ns,
            median(device_ns) OVER (PARTITION BY usual_step.source_id, usual_step.pid) AS usual_ns
        FROM step_work JOIN usual_step USING (step_id) WHERE family = 'concat'
    )
    WHERE device_ns BETWEEN $least_of_median * usual_ns AND $most_of_median * usual_ns
"""

SQL = f"""
WITH growing AS ({GROWING}),
spent AS (SELECT sum(device_ns)::BIGINT AS device_ns FROM step_work WHERE step_id IN (SELECT step_id FROM growing)),
kernel_length AS (
    SELECT family, median(op.end_ns - op.start_ns) AS dur_ns
    FROM device_op AS op JOIN launch USING (device_op_id) JOIN thread_call USING (host_call_id)
    WHERE family IN ('concat', 'activation', 'norm') AND step_id IN (SELECT step_id FROM growing) GROUP BY family
)
SELECT count(*) AS step_count, coalesce(sum(growing.device_ns), 0)::BIGINT AS concat_ns, any_value(spent.device_ns) AS device_ns,
    median(op_count) AS per_step, corr(growing.device_ns, place) AS correlation, regr_slope(growing.device_ns, place) AS slope_ns, regr_intercept(growing.device_ns, place) AS first_ns,
    (SELECT dur_ns FROM kernel_length WHERE family = 'concat') AS concat_median_ns,
    (SELECT max(dur_ns) FROM kernel_length WHERE family <> 'concat') AS row_median_ns, max(growing.start_ns) AS last_start_ns, max(growing.end_ns) AS last_end_ns
FROM growing, spent
"""

COUNTED_SQL = """
SELECT max(reading) FILTER (counted = 'kv_bytes_copied') AS copied_bytes, max(reading) FILTER (counted = 'steps') AS step_count FROM bench_count
GROUP BY source_id, row_id HAVING copied_bytes > 0 ORDER BY copied_bytes DESC LIMIT 1
"""

_ENGINES = (
    Fix(
        "vllm",
        "serve the model with vllm serve; --block-size 16",
        "the cache is paged: a step writes one slot a sequence",
        source="https://docs.vllm.ai/en/latest/design/paged_attention.html",
    ),
    Fix(
        "sglang",
        "serve the model with sglang.launch_server; --page-size 1 or 64",
        "the cache is a pool of pages",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "kv_cache_config: {tokens_per_block: 32}; paged_kv_cache enabled in older builds",
        "the cache is paged",
        source="https://nvidia.github.io/TensorRT-LLM/features/kvcache.html",
    ),
    Fix(
        "transformers",
        'generate_batch() (continuous batching, paged); cache_implementation="offloaded" or "quantized" where memory is short',
        "memory goes with the tokens that are there",
        source="https://huggingface.co/docs/transformers/kv_cache (names checked on 5.24)",
    ),
    Fix(
        "lmdeploy",
        "lmdeploy 0.1 and later, where the cache has a block manager; --cache-max-entry-count",
        "older ones reserve session_len for each of the instances",
        source="https://github.com/InternLM/lmdeploy/issues/722",
    ),
    Fix(
        "engine",
        "--kv paged",
        "a token is written into a block, none is copied",
        source="python -m engine bench --help",
    ),
)
FIXES = (
    Fix(
        "pytorch",
        'a preallocated cache written in place (index_copy_ at the position; transformers: cache_implementation="static"),'
        " or torch.nn.attention.flex_attention with paged blocks",
        "one token's worth is written a step",
        source="https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html",
    ),
    *_ENGINES,
)
PAGED_FIXES = (
    Fix(
        "pytorch",
        "blocks of 16 to 256 tokens and a table of them for each request (torch.nn.attention.flex_attention reads them through its"
        " mask); or make each cache as long as its prompt and max_new_tokens, and free it at the end",
        "memory goes with the tokens that are there, not with the longest length allowed",
        source="https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html",
    ),
    *_ENGINES,
)

CURE = Cure(
    steps=(
        CureStep(
            Target.DEVICE_OP,
            Act.SET_DURATION_NS,
            f"""SELECT device_op_id FROM device_op JOIN launch USING (device_op_id) JOIN thread_call USING (host_call_id)
            WHERE family = 'concat' AND step_id IN (SELECT step_id FROM ({GROWING}))""",
            values={name: THRESHOLDS[name].value for name in ("least_of_median", "most_of_median")},
            value=THRESHOLDS["paged_ns"].value,
        ),
    ),
    is_host_work=False,
    spread=1.5,
)


class Copied(NamedTuple):
    """What the engine counted in a benchmark."""

    copied_bytes: float
    step_count: float | None


class Concatenations(NamedTuple):
    """Concatenation kernels of the usual steps, and their trend."""

    step_count: int
    concat_ns: int
    device_ns: int | None
    per_step: float | None
    correlation: float | None
    slope_ns: float | None
    first_ns: float | None
    concat_median_ns: float | None
    row_median_ns: float | None
    last_start_ns: int | None
    last_end_ns: int | None


def rise_of(row: Concatenations) -> float:
    """By what share of the first step's time concatenation rises a step; 0 where it does not rise steadily."""
    if row.step_count < THRESHOLDS["min_steps"].value or row.correlation is None or row.slope_ns is None:
        return 0.0
    rise = row.slope_ns / max(row.first_ns or 0, 1.0)
    is_steady = row.correlation >= THRESHOLDS["min_correlation"].value
    return rise if is_steady and rise >= THRESHOLDS["min_growth"].value else 0.0


def outsize_of(row: Concatenations) -> float:
    """How many times as long as the new rows' own kernels a concatenation takes; 0 where that says nothing."""
    if row.step_count < THRESHOLDS["min_outsize_steps"].value or row.concat_median_ns is None or not row.row_median_ns:
        return 0.0
    outsize = row.concat_median_ns / row.row_median_ns
    is_long = row.concat_median_ns >= THRESHOLDS["min_outsize_ns"].value
    return outsize if is_long and outsize >= THRESHOLDS["min_outsize"].value else 0.0


def judge(row: Concatenations) -> Verdict:
    """A visible share, and a sign that old tokens are copied."""
    if not row.step_count or not row.device_ns:
        return None
    share, rise, outsize = row.concat_ns / row.device_ns, rise_of(row), outsize_of(row)
    if share < THRESHOLDS["min_share"].value or not (rise or outsize):
        return None
    where = Where(start_ns=row.last_start_ns, end_ns=row.last_end_ns)
    signs = [f"rise by {rise:.1%} a step"] if rise else []
    signs += [f"take {outsize:.0f} times as long as what runs over the new rows"] if outsize else []
    return Finding(
        summary=f"{row.per_step or 0:.0f} concatenations a step take {share:.0%} of the device's time and {' and '.join(signs)}:"
        " the whole cache is copied for one token",
        evidence=(
            Evidence("concatenations", share, "share of device time", where),
            Evidence("rise a step", rise, "share of the first step's"),
            Evidence("one of them against the new rows' kernels", outsize, "x"),
            Evidence("concatenations per step", row.per_step or 0.0, "kernels"),
        ),
        cure=CURE,
        confidence=0.75,
        cleared=f"the cache is copied to grow, {share:.0%} of the device's time, but other things hold the run up",
    )


RESERVED_SQL = """
WITH asked AS (SELECT avg(prompt_token_count + output_token_count) AS token_count FROM bench_row), shape AS (SELECT max(kv_token_bytes) AS token_bytes FROM model_config)
SELECT device_id, size_bytes, block_count, group_bytes, slot_count, share_of_total, stack,
    coalesce(slot_count * token_count * token_bytes, group_bytes * (SELECT max(token_count / length_count) FROM reserved_setting)) AS used_bytes,
    EXISTS (SELECT 1 FROM oom_event) OR EXISTS (SELECT 1 FROM allocator_step WHERE action = 'oom') AS is_failed,
    EXISTS (SELECT 1 FROM oom_cause WHERE cause IN ('foreign', 'abandoned', 'capped', 'fragmentation')) AS is_explained
FROM reserved_cache, asked, shape ORDER BY group_bytes DESC LIMIT 1
"""


class Reserved(NamedTuple):
    """Blocks of a cache that is kept whole for every request."""

    device_id: int | None
    size_bytes: int
    block_count: int
    group_bytes: int
    slot_count: float | None
    share_of_total: float
    stack: str | None
    used_bytes: float | None
    is_failed: bool
    is_explained: bool


def judge_reserved(row: Reserved) -> Verdict:
    """A visible part of the device."""
    if row.share_of_total < THRESHOLDS["least_reserved_share"].value or row.is_explained:
        return None
    slots = row.slot_count
    each = f" of {format_bytes(row.group_bytes / slots)} each whatever its length" if slots else ""
    worth = f", {slots:.0f} requests' worth{each}" if slots else ""
    unused = None if row.used_bytes is None else max(row.group_bytes - int(row.used_bytes), 0)
    use = "how much of it is used no snapshot says" if unused is None else f"{format_bytes(unused)} are not used"
    return Finding(
        summary=f"{row.block_count} equal blocks of {format_bytes(row.size_bytes)} hold {format_bytes(row.group_bytes)},"
        f" {row.share_of_total:.0%} of the device{worth}; {use}",
        evidence=(
            Evidence("memory of equal blocks", row.group_bytes, "bytes", Where(device_id=row.device_id)),
            Evidence("share of the device", row.share_of_total, "share"),
            *((Evidence("requests that this serves", slots, "requests"),) if slots else ()),
            *((Evidence("made by", row.stack, ""),) if row.stack else ()),
        ),
        severity=Severity.CRITICAL if row.is_failed else Severity.HIGH,
        bytes=unused,
        confidence=0.85 if slots else 0.7,
        fixes=PAGED_FIXES,
    )


FAILED_SQL = """
SELECT hot_spot, tried_bytes, total_bytes, allocated_bytes, device_id, stack FROM oom_cause
WHERE cause = 'cache' AND hot_spot LIKE 'cache_%' AND NOT EXISTS (SELECT 1 FROM reserved_cache) ORDER BY source_id, oom_event_id LIMIT 1
"""


class Failed(NamedTuple):
    """A failure where the cache is made or grows."""

    hot_spot: str
    tried_bytes: int | None
    total_bytes: int | None
    allocated_bytes: int | None
    device_id: int | None
    stack: str | None


def judge_failed(row: Failed) -> Verdict:
    """The failing frames are the cache's."""
    doing = "concatenated to grow" if row.hot_spot == "cache_growth" else "reserved in one piece"
    asked = f": {format_bytes(row.tried_bytes)} asked for" if row.tried_bytes else ""
    of = f" of {format_bytes(row.total_bytes)}" if row.total_bytes else ""
    held = f" with {format_bytes(row.allocated_bytes)}{of} allocated" if row.allocated_bytes is not None else ""
    return Finding(
        summary=f"memory ran out where the KV cache is {doing}{asked}{held}",
        evidence=(Evidence("where", row.stack or "", "", Where(device_id=row.device_id)),),
        severity=Severity.CRITICAL,
        bytes=row.tried_bytes if row.hot_spot == "cache_growth" else None,
        confidence=0.75,
        fixes=FIXES if row.hot_spot == "cache_growth" else PAGED_FIXES,
    )


def judge_count(row: Copied) -> Verdict:
    """Old keys and values were copied."""
    a_step = (Evidence("a step", row.copied_bytes / row.step_count, "bytes"),) if row.step_count else ()
    return Finding(
        summary=f"the engine copied {row.copied_bytes / 2**20:.1f} MiB of keys and values that it had already, to append to them",
        evidence=(Evidence("keys and values copied", row.copied_bytes, "bytes"), *a_step),
        severity=Severity.MEDIUM,
    )


CONFIG_SQL = """
SELECT engine, length_count, slot_count, length_count * slot_count AS token_count, length_count * slot_count * token_bytes AS reserved_bytes, total_bytes,
    total_bytes - coalesce(weight_bytes, 0) AS left_bytes, 1 - token_count / length_count AS waste_share, is_sure, EXISTS (SELECT 1 FROM oom) AS is_failed
FROM reserved_setting
WHERE NOT EXISTS (SELECT 1 FROM oom_cause WHERE cause IN ('foreign', 'abandoned', 'capped', 'fragmentation'))
ORDER BY length_count * slot_count DESC LIMIT 1
"""


class Configured(NamedTuple):
    """What a configuration reserves: slots of the longest length."""

    engine: str | None
    length_count: float
    slot_count: float
    token_count: float
    reserved_bytes: float | None
    total_bytes: int | None
    left_bytes: int | None
    waste_share: float | None
    is_sure: bool
    is_failed: bool


def judge_configured(row: Configured) -> Verdict:
    """Most of a large reservation is never used, or it cannot be had; where a size is not told, its tokens and the failure tell."""
    reserved, left, waste = row.reserved_bytes, row.left_bytes, row.waste_share
    is_found = row.is_failed and row.slot_count >= 2 and row.token_count >= THRESHOLDS["least_tokens"].value
    if reserved is not None and left is not None:
        is_large = reserved >= THRESHOLDS["least_reserved_share"].value * (row.total_bytes or 0)
        is_found = is_large and (reserved > left or (waste or 0.0) >= THRESHOLDS["least_waste"].value)
    if not is_found:
        return None
    beside = "memory ran out" if left is None else f"{format_bytes(left)} are left beside the weights"
    used = "" if waste is None else f"; requests use {1 - waste:.1%} of it"
    size = f"room for {row.token_count:,.0f} tokens" if reserved is None else format_bytes(reserved)
    measured = (row.token_count, "tokens") if reserved is None else (reserved, "bytes")
    return Finding(
        summary=f"{row.slot_count:.0f} slots of {row.length_count:,.0f} tokens reserve {size} for the KV cache, and {beside}{used}",
        evidence=(
            Evidence("reserved for the KV cache", *measured),
            *((Evidence("left beside the weights", left, "bytes"),) if left is not None else ()),
            *((Evidence("share of it that is never used", waste, "share"),) if waste is not None else ()),
        ),
        severity=Severity.CRITICAL if row.is_failed else Severity.HIGH,
        bytes=int((reserved or 0.0) * (waste or 0.0)) or None,
        confidence=(0.7 if reserved is None or left is None else 0.8) - (0 if row.is_sure else 0.25),
        fixes=PAGED_FIXES,
    )


RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Concatenations,
    judge=judge,
    fixes=FIXES,
    verify="record again: no concatenation in the attention of a step, no equal blocks of the longest length; memory goes with the tokens that are there.",
    doc=__doc__,
    also=(
        Sign(("bench_count",), ("bench-table",), COUNTED_SQL, Copied, judge_count),
        Sign(("allocator_block",), ("memory-snapshot",), RESERVED_SQL, Reserved, judge_reserved),
        Sign(("oom_event",), ("oom-text",), FAILED_SQL, Failed, judge_failed),
        Sign(("reserved_setting",), ("engine-log", "engine-config"), CONFIG_SQL, Configured, judge_configured),
    ),
)
