"""A static KV cache stays on the device after the call that made it is over.

What happens: a model compiled for a static cache keeps the last one as an attribute, to use it again. Between calls, and beside the next
one of another size, it holds the keys and values of the longest sequence for nothing.

How it is detected: a memory snapshot in which blocks made by a static cache are alive although what came after them in the history was
not done inside `generate`; or such blocks of two sizes at once, which is two caches.

When it is not this: a snapshot taken while `generate` runs: the cache is in use. A cache for every request: `kv-unpaged-contiguous`. The
pool of a paged engine is kept on purpose.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict, Where
from doctor.units import format_bytes

ABOUT = About(
    id="retained-static-cache",
    title="A static KV cache is kept after the call",
    stage=Stage.MEMORY,
    reads=("allocator_block",),
    needs=("memory-snapshot",),
)

THRESHOLDS = {
    "least_share": Threshold(0.02, "share of the device", source="less hardly matters"),
    "least_blocks": Threshold(8, "blocks", source="two a layer"),
    "least_later": Threshold(8, "later steps outside generate", source="a step or two may be clean-up"),
}

SQL = """
WITH cache AS (
    SELECT source_id, device_id, sum(group_bytes)::BIGINT AS cache_bytes, sum(block_count)::BIGINT AS block_count, count(DISTINCT size_bytes) AS size_count,
        max(last_ns) AS last_ns, any_value(stack) AS stack
    FROM block_group WHERE is_static_cache AND size_bytes >= 2 ** 16 GROUP BY ALL
),
later AS (
    SELECT step.source_id, step.device_id, count(*) FILTER (NOT regexp_matches(text, 'generate')) AS outside_count
    FROM allocator_step AS step JOIN cache USING (source_id, device_id) JOIN text ON text_id = step.stack_id
    WHERE step.time_ns > cache.last_ns AND action = 'alloc' GROUP BY ALL
)
SELECT cache.device_id, cache_bytes, block_count, size_count, cache.stack, coalesce(outside_count, 0) AS outside_count, total_bytes
FROM cache LEFT JOIN later USING (source_id, device_id) JOIN snapshot_memory USING (source_id, device_id)
ORDER BY cache_bytes DESC LIMIT 1
"""


class Kept(NamedTuple):
    """Blocks of static caches that are alive."""

    device_id: int | None
    cache_bytes: int
    block_count: int
    size_count: int
    stack: str
    outside_count: int
    total_bytes: int


def judge(row: Kept) -> Verdict:
    """Alive after the call, or twice."""
    is_over = row.outside_count >= THRESHOLDS["least_later"].value or row.size_count > 1
    is_large = row.cache_bytes >= THRESHOLDS["least_share"].value * row.total_bytes
    if not is_over or not is_large or row.block_count < THRESHOLDS["least_blocks"].value:
        return None
    how = (
        f"{row.size_count} caches of different sizes are alive"
        if row.size_count > 1
        else "the call that made it is over"
    )
    return Finding(
        summary=f"static caches hold {format_bytes(row.cache_bytes)} in {row.block_count} blocks, and {how}",
        evidence=(
            Evidence("memory of static caches", row.cache_bytes, "bytes", Where(device_id=row.device_id)),
            Evidence("share of the device", row.cache_bytes / row.total_bytes, "share"),
            Evidence("made by", row.stack, ""),
        ),
        severity=Severity.MEDIUM,
        bytes=row.cache_bytes,
        confidence=0.7,
    )


FIXES = (
    Fix(
        "transformers",
        "a newer version (5.24 keeps no cache on the model); before: del model._cache after generate",
        "the blocks go back to the allocator",
        source="https://huggingface.co/docs/transformers/kv_cache (checked on 5.24)",
    ),
    Fix(
        "transformers",
        'cache_implementation="dynamic" where calls differ much in length',
        "the cache ends with the call",
        source="https://huggingface.co/docs/transformers/kv_cache (names checked on 5.24)",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Kept,
    judge=judge,
    fixes=FIXES,
    verify="torch.cuda.memory_allocated() after the call is what it was before.",
    doc=__doc__,
)
