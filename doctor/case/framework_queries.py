"""Which framework the evidence comes from: what engines said of themselves, and the names in recordings."""

from __future__ import annotations

import duckdb

OWN_RANGES = ("step", "prefill", "decode", "layer", "scheduling", "sampling")
"""Ranges of the own engine that a recording without its NVTX domain shows by name."""
LEAST_OWN_RANGES = 4


def frameworks(connection: duckdb.DuckDBPyConnection) -> tuple[str, ...]:
    """Frameworks that the evidence names, as rules call them in their fixes; what tells most directly first.

    In this order: what an engine logged, an error text or a server's figures; ranges and Python functions of a
    recording; names of operators and kernels; that PyTorch recorded or failed, as an out-of-memory text that names
    nobody else tells by its words. Serving engines import transformers,
    SGLang runs kernels of vLLM, and both run kernels of TensorRT-LLM, never the other way round: of two that show in
    the same way the first stands first.
    """
    values = {"own_ranges": list(OWN_RANGES), "least": LEAST_OWN_RANGES}
    return tuple(name for (name,) in connection.execute(_FRAMEWORKS, values).fetchall())


_SIGNS = (
    ("vllm", 2, r"(^|/)vllm/[^ ]*\.pyx?[(:]"),
    ("sglang", 2, r"(^|/)sglang/[^ ]*\.py[(:]"),
    ("tensorrt-llm", 2, r"(^|/)tensorrt_llm/[^ ]*\.py[(:]"),
    ("engine", 2, r"(^|/)engine/(execution|scheduling|serving)/[^ ]*\.py[(:]"),
    ("transformers", 3, r"(^|/)transformers/(models|generation)/[^ ]*\.py[(:]"),
    ("sglang", 4, "sgl_kernel|sgl_hip|sglang"),
    ("vllm", 5, "(^|[^a-z_])vllm::"),
    ("tensorrt-llm", 6, "tensorrt_llm::|trtllm::"),
)
"""Framework, how directly a text tells it, and the pattern of such texts."""

# each pattern stands in the statement itself: of a column's patterns DuckDB would compile one for every text
_TOLD = "\n    ".join(
    f"UNION ALL SELECT '{framework}', {directness:d} FROM text WHERE regexp_matches(text, '{pattern}')"
    for framework, directness, pattern in _SIGNS
)

_FRAMEWORKS = f"""
WITH seen AS (
    SELECT engine AS framework, 1 AS directness FROM engine_sample
    UNION ALL SELECT engine, 1 FROM engine_figure
    UNION ALL SELECT engine, 1 FROM engine_setting
    UNION ALL SELECT engine, 1 FROM engine_event
    UNION ALL SELECT engine, 1 FROM metric
    UNION ALL SELECT framework, 1 FROM oom_event WHERE framework <> 'pytorch'
    UNION ALL SELECT framework, 1 FROM memory_refusal WHERE framework <> 'pytorch'
    UNION ALL SELECT split_part(tool, '-', 1), 1 FROM bench_row WHERE regexp_matches(tool, '^(vllm|sglang|engine)-')
    {_TOLD}
    UNION ALL SELECT 'pytorch', 7 FROM source WHERE kind IN ('kineto', 'memory-snapshot')
    UNION ALL SELECT 'engine', 2 FROM (
        SELECT count(DISTINCT name_id) AS range_count FROM nvtx_range
        WHERE name_id IN (SELECT text_id FROM text WHERE list_contains($own_ranges, text))
    ) WHERE range_count >= $least
    UNION ALL SELECT framework, 7 FROM (
        SELECT coalesce(framework, 'pytorch') AS framework FROM oom_event UNION ALL SELECT framework FROM memory_refusal
    ) WHERE framework = 'pytorch'
)
SELECT framework FROM (
    SELECT framework, min(directness) AS directness, count(*) AS times FROM seen
    WHERE framework IS NOT NULL GROUP BY framework
)
ORDER BY directness, times DESC, framework
"""
