-- oom_cause: the one cause of each failure, in this order: a limit below the card's size, memory spilled to the host, other processes, fragmentation,
-- a cache kept whole for every request, the peak that the failing frames name, memory outside the allocator, growth, and last a card that the
-- process has filled by itself. The other figures stay in the row, so that what looks guilty can be cleared with its number.
CREATE TABLE oom_cause AS
WITH cache AS (
    SELECT max(share_of_total) AS cache_share FROM reserved_cache
),
pool AS (
    SELECT bool_or(is_paged_pool) AS is_paged FROM block_group
),
trend AS (
    SELECT max(growth_bytes) AS growth_bytes FROM memory_trend WHERE series IN ('allocator', 'process') AND fit_share > 0.9
),
guessed AS (
    SELECT oom.*, cache_share, growth_bytes,
        greatest(2 ** 30, 0.05 * total_bytes) AS telling_bytes
    FROM oom, cache, pool, trend
)
SELECT * EXCLUDE (telling_bytes),
    CASE
        WHEN is_capped THEN 'capped'
        WHEN is_spilled THEN 'spilled'
        WHEN foreign_bytes >= telling_bytes AND tried_bytes <= foreign_bytes AND named_foreign_count >= 2
            AND context_count = named_foreign_count AND foreign_bytes - named_foreign_bytes < telling_bytes THEN 'contexts'
        WHEN foreign_bytes >= telling_bytes AND tried_bytes <= foreign_bytes THEN 'foreign'
        WHEN unused_bytes >= tried_bytes AND unused_bytes >= telling_bytes THEN 'fragmentation'
        WHEN cache_share >= 0.5 OR hot_spot = 'cache_growth' THEN 'cache'
        WHEN phase = 'capture' THEN 'capture'
        WHEN hot_spot = 'logits' THEN 'logits'
        WHEN phase = 'load' THEN 'weights'
        WHEN phase = 'kv_pool' THEN 'pool'
        WHEN hot_spot = 'cache_reserve' OR cache_share >= 0.2 THEN 'cache'
        WHEN phase IN ('profile', 'prefill') THEN 'activation'
        WHEN growth_bytes >= telling_bytes THEN 'growth'
        WHEN outside_bytes >= greatest(3 * 2 ** 30, 0.05 * total_bytes) THEN 'outside'
        WHEN total_bytes IS NOT NULL THEN 'full'
        ELSE 'unknown'
    END AS cause
FROM guessed
ORDER BY source_id, oom_event_id;
