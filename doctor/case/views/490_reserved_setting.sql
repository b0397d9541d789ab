-- reserved_setting: engines set to keep a cache of the longest length for every slot, with what a token takes and what requests really use.
-- Contiguous by their settings: a static cache of transformers, the contiguous and growing layouts of the engine of this project, and lmdeploy
-- before 0.1, which counts cache entries (1 and more) where later ones give a share of the device and a block size.
CREATE TABLE reserved_setting AS
WITH setting AS (
    SELECT engine, max(told_count) FILTER (setting = 'model_len') AS length_count, max(told_count) FILTER (setting = 'running_limit') AS slot_count,
        bool_or(setting = 'kv_layout' AND told IN ('contiguous', 'concat')) OR bool_or(setting = 'cache_kind' AND told LIKE '%static%')
            OR (engine = 'lmdeploy' AND NOT bool_or(setting = 'block_tokens')
                AND coalesce(max(told_count) FILTER (setting = 'memory_share'), 1) >= 1) AS is_contiguous
    FROM engine_choice GROUP BY engine
),
shape AS (SELECT max(kv_token_bytes) AS token_bytes, max(weight_bytes) AS weight_bytes FROM model_config),
size AS (
    SELECT max(total_bytes) AS total_bytes FROM (
        SELECT total_bytes FROM oom UNION ALL SELECT memory_total_bytes FROM gpu_sample
        UNION ALL SELECT amount_bytes FROM engine_figure WHERE figure = 'total_memory')
),
asked AS (SELECT avg(prompt_token_count + output_token_count) AS token_count FROM bench_row)
SELECT engine, length_count, slot_count, token_bytes, weight_bytes, total_bytes, token_count
FROM setting, shape, size, asked
WHERE is_contiguous AND length_count > 0 AND slot_count > 0 AND token_bytes > 0
ORDER BY engine;
