"""Two engines measure the same GPU at the same time, and each counts the other's memory as its own.

What happens: an engine sizes its KV cache by what is free before and after a trial run. Where another one loads meanwhile, its memory is
taken for the first one's activations and the cache comes out small, or negative. Where another one ends meanwhile, free memory grows
and vLLM gives up, since its measurement makes no sense.

How it is detected: vLLM's own words that free memory grew while it measured; or two starts whose times overlap and of which one has at
least 0.5 GiB less for its cache than a start of the same model alone, or less than nothing. In one log: two sizes of a cache within half
a minute, of which one is less than nothing.

When it is not this: one engine alone whose cache is negative: `weights-overcommit`. A GPU that somebody holds all the time:
`startup-free-too-small`, `foreign-gpu-process`.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict
from doctor.units import format_bytes

ABOUT = About(
    id="shared-gpu-start-race",
    title="Two engines were sized at the same time on one GPU",
    stage=Stage.MEMORY,
    reads=("memory_refusal",),
    needs=("oom-text", "engine-log"),
)

THRESHOLDS = {
    "least_gib": Threshold(0.5, "GiB", source="vllm#55827: 4.72 to 1.84 GiB, 2.82 to -3.21 GiB"),
}

SQL = """
SELECT free_bytes, later_free_bytes, card_bytes FROM refusal WHERE refusal = 'free_grew' AND free_bytes IS NOT NULL
ORDER BY later_free_bytes - free_bytes DESC LIMIT 1
"""


class Grown(NamedTuple):
    """Free memory that grew while it was measured."""

    free_bytes: int
    later_free_bytes: int
    card_bytes: int | None


def judge(row: Grown) -> Verdict:
    """The engine's own words."""
    grown = row.later_free_bytes - row.free_bytes
    return Finding(
        summary=f"free memory grew from {format_bytes(row.free_bytes)} to {format_bytes(row.later_free_bytes)} while the engine measured it: somebody"
        " else on this GPU was ending or sleeping",
        evidence=(Evidence("free before", row.free_bytes, "bytes"), Evidence("grown by", grown, "bytes")),
        severity=Severity.CRITICAL,
        bytes=grown,
        confidence=0.9,
    )


STARTS_SQL = """
SELECT kv_bytes, alone_bytes, other_count FROM start_pair ORDER BY coalesce(alone_bytes - kv_bytes, -kv_bytes) DESC LIMIT 1
"""


class Start(NamedTuple):
    """A start that overlaps another, and a start of the same model alone."""

    kv_bytes: int
    alone_bytes: int | None
    other_count: int


def judge_starts(row: Start) -> Verdict:
    """Less than alone, or less than nothing."""
    lost = row.alone_bytes - row.kv_bytes if row.alone_bytes is not None else -row.kv_bytes
    if lost < THRESHOLDS["least_gib"].value * 2**30 and row.kv_bytes >= 0:
        return None
    against = f", {format_bytes(row.alone_bytes)} alone" if row.alone_bytes is not None else ""
    return Finding(
        summary=f"{format_bytes(row.kv_bytes)} are left for the KV cache of an engine that started together with another{against}",
        evidence=(
            Evidence("KV cache", row.kv_bytes, "bytes"),
            Evidence("lost", lost, "bytes"),
            Evidence("starts at the same time", row.other_count + 1, "starts"),
        ),
        severity=Severity.CRITICAL if row.kv_bytes <= 0 else Severity.HIGH,
        bytes=lost,
        confidence=0.75,
    )


FIXES = (
    Fix(
        "system",
        "start the engines one after the other: the next when the last has logged that it serves",
        "free memory then changes by nobody else's doing",
        source="https://github.com/vllm-project/vllm/issues/55827",
    ),
    Fix(
        "vllm",
        "--kv-cache-memory-bytes N for each engine",
        "the size is given, nothing is measured; --gpu-memory-utilization is then not used for it",
        source="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html (checked on main of 2026)",
    ),
    Fix(
        "sglang",
        "--max-total-tokens N for each engine",
        "the pool's size is given",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html (checked on main of 2026)",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Grown,
    judge=judge,
    fixes=FIXES,
    verify="the KV cache is as large as when the engine starts alone.",
    doc=__doc__,
    also=(Sign(("start_pair",), ("engine-log",), STARTS_SQL, Start, judge_starts),),
)
