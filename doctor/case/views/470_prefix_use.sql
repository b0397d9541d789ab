-- prefix_use: how much of the prompts was found in the prefix cache, and how much could have been; one row an engine. What could be comes from
-- the requests themselves or from a benchmark's own setting; only whole blocks are kept. `is_told`: in a sentence, without an engine's own line.
CREATE TABLE prefix_use AS
WITH counted AS (
    SELECT engine, sum(grown_count) FILTER (metric IN ('prefix_cache_queries', 'gpu_prefix_cache_queries') AND reading_kind = 'counter') AS asked_count,
        sum(grown_count) FILTER (metric IN ('prefix_cache_hits', 'gpu_prefix_cache_hits') AND reading_kind = 'counter') AS found_count,
        sum(grown_count) FILTER (metric IN ('prompt_tokens', 'prefill_tokens') AND reading_kind = 'counter') AS prompt_count,
        sum(grown_count) FILTER (metric IN ('cached_tokens', 'prefix_hit_tokens') AND reading_kind = 'counter') AS cached_count
    FROM engine_counter GROUP BY engine
),
logged AS (
    SELECT engine, sum(cached_token_count) AS cached_count, sum(new_token_count) AS new_count,
        max(prefix_hit_share) AS hit_max_share, arg_max(prefix_hit_share, line_id) AS hit_last_share, count(prefix_hit_share) AS hit_sample_count,
        count(*) FILTER (prompt_token_hz > 0) AS prompt_sample_count
    FROM engine_load WHERE prefix_hit_share IS NOT NULL OR new_token_count IS NOT NULL OR prompt_token_hz > 0 GROUP BY engine
),
settled AS (
    SELECT engine, max(told) FILTER (setting = 'prefix_cache') AS told, max(told_count) FILTER (setting = 'block_tokens') AS block_count
    FROM engine_choice GROUP BY engine
),
switched AS (
    SELECT engine, true AS is_said_off FROM engine_event WHERE event = 'prefix_cache_off' GROUP BY engine
),
possible AS (
    -- load generators count what follows the prefix apart from it
    SELECT max(shared_prefix_count) AS shared_prefix_count, arg_max(
        prompt_token_count + CASE WHEN prompt_token_count < shared_prefix_count THEN shared_prefix_count ELSE 0 END, shared_prefix_count)
        AS prompt_token_count
    FROM bench_row WHERE shared_prefix_count IS NOT NULL
),
measured AS (
    SELECT max(hit_share) AS bench_hit_share FROM bench_row WHERE hit_share IS NOT NULL
),
engine AS (
    SELECT engine FROM counted UNION SELECT engine FROM logged UNION SELECT engine FROM settled UNION SELECT engine FROM switched
)
SELECT engine.engine, coalesce(asked_count, CASE WHEN counted.cached_count IS NOT NULL THEN prompt_count END) AS asked_count,
    coalesce(found_count, CASE WHEN asked_count IS NULL THEN counted.cached_count END) AS found_count,
    coalesce(found_count / nullif(asked_count, 0), logged.cached_count / nullif(logged.cached_count + new_count, 0),
        counted.cached_count / nullif(prompt_count, 0), hit_last_share, bench_hit_share) AS hit_share,
    hit_max_share, coalesce(hit_sample_count, 0) AS hit_sample_count, coalesce(told = 'false', false) OR coalesce(is_said_off, false) AS is_off,
    told = 'true' AS is_on, coalesce(block_count, CASE engine.engine WHEN 'vllm' THEN 16 WHEN 'sglang' THEN 1 WHEN 'tensorrt-llm' THEN 32 WHEN 'engine' THEN 16 END) AS block_count,
    block_count IS NOT NULL AS is_block_known, engine.engine = 'unknown' AS is_told, shared_prefix_count, prompt_token_count,
    floor(shared_prefix_count / coalesce(block_count, 16)) * coalesce(block_count, 16) / nullif(prompt_token_count, 0) AS possible_share
FROM engine LEFT JOIN counted USING (engine) LEFT JOIN logged USING (engine) LEFT JOIN settled USING (engine) LEFT JOIN switched USING (engine),
    possible, measured
WHERE engine.engine IS NOT NULL
ORDER BY engine.engine;
