"""Weights or KV blocks come over the link every step, and the step waits for the link.

What happens: a model that is kept in host memory is copied up layer by layer, again for every step; a cache that is kept there goes down when it has
grown and comes back before it is read. The link carries a fiftieth of what device memory does; the step is as long as the copies, however fast the
kernels are.

How it is detected: copies of a megabyte or more between host and device, of sizes that come back, that would fill at least 30 % of the window at the
rate of the link, and copy time that nothing overlaps. Both directions count: what goes down on the stream that computes holds that up, though what
comes back runs beside it. The win is the run replayed without these copies: what keeping the data on the device would give. In a log or a
configuration: an engine is told to keep weights in host memory, or transformers says that it put some there; or a table has the same load with and
without it.

When it is not this: slow copies of little data are `pageable-copies`: at the link's rate they would not fill the step. So are results that come down
into pageable memory and never go up again. A load phase before the steady window is not counted; copies hidden behind kernels cost nothing.
"""

from dataclasses import replace
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
    id="offload-bandwidth-bound",
    title="Weights come over the link every step",
    stage=Stage.SPECIFIC,
    reads=("device_op",),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "link_rate": Threshold(25, "bytes/ns", source="PCIe 4.0 x16 reaches 24 to 26 GB/s, 5.0 twice that"),
    "min_bytes": Threshold(1_048_576, "bytes a copy", source="smaller copies are inputs, not weights"),
    "min_link_share": Threshold(
        0.3, "share of the window at the link's rate", source="rules of thumb: 6.9x to 61x in public cases"
    ),
    "min_other_way": Threshold(
        0.2,
        "share of the bytes",
        source="a cache that grows comes back as often as it goes; inputs and tokens are less",
    ),
    "min_ratio": Threshold(1.5, "x", source="kekzl/imp PR#1409: 6.9 in decode; single runs differ by a tenth"),
    "min_repeats": Threshold(
        3, "copies of one size", source="a cause seen once or twice is not what the run is made of"
    ),
}

COPIES = f"""
    SELECT op.device_op_id, op.source_id, op.device_id, op.start_ns, op.end_ns, op.size_bytes, op.copy_kind
    FROM device_op AS op, steady_window
    WHERE kind = 'memcpy' AND copy_kind IN ('htod', 'dtoh') AND size_bytes >= {THRESHOLDS["min_bytes"].value:.0f} AND op.start_ns >= from_ns AND op.start_ns < until_ns
        AND (copy_kind, size_bytes) IN (SELECT (copy_kind, size_bytes) FROM device_op WHERE kind = 'memcpy' AND size_bytes >= {THRESHOLDS["min_bytes"].value:.0f}
            GROUP BY copy_kind, size_bytes HAVING count(*) >= {THRESHOLDS["min_repeats"].value:.0f})
        -- what comes down into pageable memory counts where it goes up again
        AND (copy_kind = 'htod' OR 'pageable' NOT IN (src_kind, dst_kind) OR size_bytes IN (SELECT size_bytes FROM device_op WHERE copy_kind = 'htod'))
"""

SQL = f"""
WITH copy AS ({COPIES}),
per_device AS (
    SELECT source_id, device_id, count(*) AS copy_count, sum(size_bytes)::BIGINT AS copy_bytes, sum(end_ns - start_ns)::BIGINT AS copy_ns,
        coalesce(sum(size_bytes) FILTER (copy_kind = 'htod'), 0)::BIGINT AS up_bytes,
        quantile_cont(size_bytes / greatest(end_ns - start_ns, 1), 0.9) AS seen_rate,
        arg_max(start_ns, size_bytes) AS largest_start_ns, arg_max(end_ns, size_bytes) AS largest_end_ns
    FROM copy GROUP BY source_id, device_id
),
stepped AS (
    SELECT copy.source_id, copy.device_id, count(DISTINCT step_id) AS step_count, sum(size_bytes) FILTER (step_id IS NOT NULL)::BIGINT AS step_bytes
    FROM copy JOIN launch USING (device_op_id) JOIN thread_call USING (host_call_id) GROUP BY copy.source_id, copy.device_id
)
SELECT copy_count, copy_bytes, copy_ns, up_bytes, seen_rate, exposed_copy_ns, (SELECT until_ns - from_ns FROM steady_window) AS window_ns,
    (SELECT max(memory_bytes) FROM device) AS memory_bytes, coalesce(step_count, 0) AS step_count,
    coalesce(step_bytes, 0) AS step_bytes, largest_start_ns, largest_end_ns, device_id,
    -- by generation of the link: 5 from compute capability 9, 4 from 8, else 3
    coalesce((SELECT CASE WHEN compute_major >= 9 THEN 50.0 WHEN compute_major = 8 THEN 24.0 ELSE 12.0 END
        FROM device WHERE compute_major IS NOT NULL ORDER BY memory_bytes DESC NULLS LAST LIMIT 1), 24.0)::DOUBLE AS usual_rate
FROM per_device JOIN device_busy USING (source_id, device_id) LEFT JOIN stepped USING (source_id, device_id)
ORDER BY copy_ns DESC LIMIT 1
"""

CURE = Cure(
    steps=(
        CureStep(Target.DEVICE_OP, Act.REMOVE, f"SELECT device_op_id FROM ({COPIES})"),
        CureStep(Target.HOST_CALL, Act.REMOVE, f"SELECT host_call_id FROM ({COPIES}) JOIN launch USING (device_op_id)"),
    ),
    is_host_work=False,
    spread=1.5,
)


class StreamedBytes(NamedTuple):
    """Copies of sizes that come back, on the device with most of them."""

    copy_count: int
    copy_bytes: int
    copy_ns: int
    up_bytes: int
    seen_rate: float
    exposed_copy_ns: int
    window_ns: int
    memory_bytes: int | None
    step_count: int
    step_bytes: int
    largest_start_ns: int
    largest_end_ns: int
    device_id: int
    usual_rate: float

    @property
    def down_bytes(self) -> int:
        """Bytes from the device to the host."""
        return self.copy_bytes - self.up_bytes

    @property
    def goes_both_ways(self) -> bool:
        """True where much goes down and much comes up: a cache that is kept on the host."""
        return min(self.up_bytes, self.down_bytes) >= THRESHOLDS["min_other_way"].value * self.copy_bytes


def judge(row: StreamedBytes) -> Verdict:
    """At the link's own rate the copies would still fill a good part of the window."""
    rate = max(row.seen_rate, row.usual_rate)
    link_share = row.copy_bytes / rate / row.window_ns
    if link_share < THRESHOLDS["min_link_share"].value:
        return None
    each = f"{row.step_bytes / max(row.step_count, 1) / 2**30:.2f} GiB"
    per_step = f", {each} in each of {row.step_count} steps" if row.step_count > 1 else ""
    went = _direction(row)
    finding = Finding(
        summary=f"{went} device {row.device_id} in {format_counted(row.copy_count, 'copy', 'copies')}{per_step}, at"
        f" {row.copy_bytes / row.copy_ns:.1f} GB/s: copying takes {row.copy_ns / row.window_ns:.0%} of the window",
        evidence=(
            Evidence("these copies", row.copy_ns / row.window_ns, "share of window"),
            Evidence("all copies, where nothing else runs", row.exposed_copy_ns / row.window_ns, "share of window"),
            *((Evidence("bytes up", row.up_bytes / 2**30, "GiB"),) if row.up_bytes else ()),
            *((Evidence("bytes down", row.down_bytes / 2**30, "GiB"),) if row.down_bytes else ()),
            Evidence(
                "largest copy",
                (row.largest_end_ns - row.largest_start_ns) / 1e6,
                "ms",
                Where(start_ns=row.largest_start_ns, end_ns=row.largest_end_ns, device_id=row.device_id),
            ),
        ),
        cure=CURE,
        confidence=0.85,
        cleared=f"{went} device {row.device_id} over the link, but hidden behind kernels",
    )
    if row.goes_both_ways:
        return replace(finding, title="A cache goes to the host and comes back every step", fixes=CACHE_FIXES)
    if row.up_bytes < row.down_bytes:
        return replace(finding, title="Results go down over the link every step", fixes=DOWN_FIXES)
    return finding


def _direction(row: StreamedBytes) -> str:
    """How much went which way."""
    if row.goes_both_ways:
        return f"{row.down_bytes / 2**30:.1f} GiB went down and {row.up_bytes / 2**30:.1f} GiB came back up on"
    went = "came up to" if row.up_bytes >= row.down_bytes else "went down from"
    return f"{row.copy_bytes / 2**30:.1f} GiB {went}"


SETTING_SQL = """
SELECT (SELECT max(told_count) FROM engine_choice WHERE setting = 'offload_gib' AND told_count > 0) AS offload_gib,
    (SELECT max(told_count) FROM engine_choice WHERE setting = 'offload_share' AND told_count > 0) AS offload_share,
    (SELECT count(*) FROM engine_event WHERE event = 'offloading') AS line_count,
    (SELECT max(weight_bytes) FROM model_config) AS weight_bytes,
    (SELECT median(tpot_p50_ns) FROM bench_row) AS token_ns
"""


class KeptOnHost(NamedTuple):
    """What is kept in host memory, and how long a token takes."""

    offload_gib: float | None
    offload_share: float | None
    line_count: int
    weight_bytes: int | None
    token_ns: float | None


def judge_setting(row: KeptOnHost) -> Verdict:
    """Weights on the host are copied every step."""
    if not row.offload_gib and not row.offload_share and not row.line_count:
        return None
    kept = row.offload_gib * 2**30 if row.offload_gib else (row.offload_share or 0) * (row.weight_bytes or 0)
    least_ns = kept / THRESHOLDS["link_rate"].value if kept else None
    if least_ns is not None and row.token_ns and least_ns < THRESHOLDS["min_link_share"].value * row.token_ns:
        return Cleared(
            f"{kept / 2**30:.1f} GiB of weights come over the link: {least_ns / 1e6:.0f} of {row.token_ns / 1e6:.0f} ms a token"
        )
    size = f"{kept / 2**30:.1f} GiB of weights are" if kept else "part of the weights is"
    time = f": at least {least_ns / 1e6:.0f} ms a step at the link's rate" if least_ns else ""
    return Finding(
        summary=f"{size} kept in host memory and copied up every step{time}",
        evidence=(
            *((Evidence("weights on the host", float(kept), "bytes"),) if kept else ()),
            *((Evidence("copying a step", least_ns / 1e6, "ms at least"),) if least_ns else ()),
        ),
        severity=Severity.HIGH,
        confidence=0.75 if kept else 0.6,
        bytes=round(kept) or None,
    )


TABLE_SQL = """
SELECT slow_told, fast_told, fast_hz / slow_hz AS ratio FROM bench_comparison
WHERE word LIKE '%offload%' AND slow_hz > 0 AND regexp_matches(fast_told, '^(0|0\\.0|0 ?gi?b|off|no|none|false|-|\\(default\\))$')
ORDER BY ratio DESC LIMIT 1
"""


class Tried(NamedTuple):
    """Two runs of one load, with a part of the weights or the cache in host memory and without."""

    slow_told: str
    fast_told: str
    ratio: float


def judge_table(row: Tried) -> Verdict:
    """What is kept on the host is fetched again and again."""
    if row.ratio < THRESHOLDS["min_ratio"].value:
        return Cleared(f"offloading ({row.slow_told}) costs {max(row.ratio - 1, 0):.0%} only")
    return Finding(
        summary=f"offloading ({row.slow_told}) makes the same load {row.ratio:.1f} times as slow: what lies in host memory crosses the link in every step",
        evidence=(Evidence("without offloading against with it", row.ratio, "x"),),
        severity=Severity.of_share(1 - 1 / row.ratio),
        speedup_bound=row.ratio,
        speedup_expected=row.ratio,
        confidence=0.8,
    )


CACHE_FIXES = (
    Fix(
        "transformers",
        'drop cache_implementation="offloaded" (or "offloaded_static"); where memory is short: a quantized cache, a shorter context or a smaller batch',
        "keys and values stay on the device",
        source="https://huggingface.co/docs/transformers/kv_cache",
        fits=(ProgramKind.GENERATION,),
    ),
    Fix(
        "pytorch",
        "keep the cache on the device (grouped heads or FP8 make it small); what has to go down goes on a stream of its own, ordered by events",
        "a copy down on the stream that computes holds the next layer up",
        source="https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-streams",
        fits=(ProgramKind.GENERATION,),
    ),
    Fix(
        "pytorch",
        "checkpoint activations (torch.utils.checkpoint) in place of save_on_cpu; optimizer state and parameters on the device, sharded over more of them"
        " in place of CPUOffloadPolicy or offload_optimizer",
        "computing again is quicker than two ways over the link",
        source="https://docs.pytorch.org/docs/stable/checkpoint.html",
        fits=(ProgramKind.TRAINING,),
    ),
    Fix(
        "vllm",
        "drop --kv-offloading-size and the OffloadingConnector or LMCache of --kv-transfer-config where blocks are not read again; --kv-cache-dtype fp8",
        "blocks stay on the device",
        source="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html",
    ),
    Fix(
        "sglang",
        "drop --enable-hierarchical-cache where prefixes do not come back; --kv-cache-dtype fp8_e5m2",
        "blocks stay on the device",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "kv_cache_config: {host_cache_size: 0, dtype: fp8}",
        "blocks stay on the device",
        source="https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html",
    ),
    Fix(
        "engine",
        "--kv-dtype fp8, or more --num-blocks",
        "twice the tokens fit on the device, so that fewer blocks go to the host",
        source="python -m engine bench --help",
    ),
)

DOWN_FIXES = (
    Fix(
        "pytorch",
        "reduce on the device and copy the result alone (argmax, topk, a mean); the rest goes down on a stream of its own, read an event later",
        "the link carries what somebody reads, beside the next step",
        source="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
    ),
)

FIXES = (
    Fix(
        "pytorch",
        "keep the weights on the device (quantise them, or spread them over more devices); otherwise pinned memory, a stream of"
        " its own, and the next layer's copy during this layer's kernels",
        "not copying beats copying fast",
        source="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
    ),
    Fix(
        "vllm",
        "--cpu-offload-gb 0 with --quantization fp8 or a larger --tensor-parallel-size",
        "weights stay on the device",
        source="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html",
    ),
    Fix(
        "sglang",
        "--cpu-offload-gb 0 with --quantization fp8 or a larger --tp",
        "weights stay on the device",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "quantise the checkpoint (FP8, INT4 AWQ); kv_cache_config: {host_cache_size: 0}",
        "weights and KV stay on the device",
        source="https://nvidia.github.io/TensorRT-LLM/features/quantization.html",
    ),
    Fix(
        "transformers",
        'device_map="auto" with max_memory that leaves no layer on "cpu"; BitsAndBytesConfig(load_in_4bit=True)',
        "no layer is fetched from host memory",
        source="https://huggingface.co/docs/accelerate/usage_guides/big_modeling",
    ),
    Fix(
        "engine",
        "--weight-offload 0",
        "weights stay on the device where they fit",
        source="python -m engine bench --help",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=StreamedBytes,
    judge=judge,
    fixes=FIXES,
    verify="record again: bytes copied up per step fall to the size of the inputs, or every copy lies behind kernels.",
    doc=__doc__,
    also=(
        Sign(("engine_evidence",), ("engine-log", "engine-config"), SETTING_SQL, KeptOnHost, judge_setting),
        Sign(("bench_comparison",), ("bench-table",), TABLE_SQL, Tried, judge_table),
    ),
)
