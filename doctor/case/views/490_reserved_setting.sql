-- reserved_setting: engines set to keep a cache of the longest length for every slot, with what a token takes and what requests really use.
-- Contiguous by their settings: a static cache of transformers, the contiguous and growing layouts of the engine of this project, TensorRT-LLM built
-- without its paged cache, and lmdeploy before 0.1. That one counts cache entries where later ones give a share of the device, names its manager of
-- whole sequences in its log, or its version; a description in words must say that it is not paged; `is_sure` is false where only its number of instances hints at it. Later ones log or set blocks.
CREATE TABLE reserved_setting AS
WITH old AS (
    SELECT coalesce(bool_or(detail LIKE '0.0.%'), false) AS is_old, coalesce(bool_or(detail NOT LIKE '0.0.%'), false) AS is_new
    FROM engine_event WHERE event = 'version' AND engine = 'lmdeploy'
),
setting AS (
    SELECT engine, max(told_count) FILTER (setting = 'model_len') AS length_count,
        coalesce(max(told_count) FILTER (setting = 'instances'), max(told_count) FILTER (setting = 'running_limit'),
            max(told_count) FILTER (engine = 'lmdeploy' AND setting = 'memory_share' AND told_count >= 1)) AS slot_count,
        max(told_count) FILTER (setting = 'layer_count') * max(told_count) FILTER (setting = 'kv_head_count')
            * max(told_count) FILTER (setting = 'head_dim_count')
            * 2 * CASE WHEN max(told_count) FILTER (setting = 'kv_quantisation') > 0 THEN 1 ELSE 2 END AS told_token_bytes,
        bool_or(setting = 'kv_layout' AND told IN ('contiguous', 'concat')) OR bool_or(setting = 'cache_kind' AND regexp_matches(told, 'static|contig|contin'))
            OR bool_or(setting = 'paged_cache' AND told IN ('false', 'disable', '0', 'off')) AS is_told,
        engine = 'lmdeploy' AND NOT bool_or(setting = 'block_tokens') AND NOT any_value(is_new) AND (any_value(is_old)
            OR bool_or(setting = 'memory_share' AND told_count >= 1 AND told NOT LIKE '%.%')) AS is_old_engine,
        engine = 'lmdeploy' AND NOT bool_or(setting = 'block_tokens') AND NOT any_value(is_new) AND bool_or(setting = 'instances')
            AND NOT bool_or(setting = 'memory_share' AND told_count < 1) AS is_hinted
    FROM engine_choice, old GROUP BY engine
),
shape AS (SELECT max(kv_token_bytes) AS token_bytes, max(weight_bytes) AS weight_bytes FROM model_config),
size AS (
    SELECT max(total_bytes) AS total_bytes FROM (
        SELECT total_bytes FROM oom UNION ALL SELECT memory_total_bytes FROM gpu_sample
        UNION ALL SELECT amount_bytes FROM engine_figure WHERE figure = 'total_memory')
),
asked AS (
    SELECT coalesce((SELECT avg(prompt_token_count + output_token_count) FROM bench_row),
        (SELECT max(told_count) FROM engine_choice WHERE setting = 'request_tokens')) AS token_count
)
SELECT engine, length_count, slot_count, coalesce(token_bytes, told_token_bytes)::BIGINT AS token_bytes, weight_bytes, total_bytes, token_count,
    is_told OR is_old_engine AS is_sure
FROM setting, shape, size, asked
WHERE (is_told OR is_old_engine OR is_hinted) AND length_count > 0 AND slot_count > 0
    AND NOT EXISTS (SELECT 1 FROM engine_figure WHERE figure IN ('kv_block', 'kv_blocks') AND engine_figure.engine = 'lmdeploy' AND setting.engine = 'lmdeploy')
ORDER BY engine;
