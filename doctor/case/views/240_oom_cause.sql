-- oom_cause: the one cause of each failure, in this order: a limit below the card's size, a refusal that nothing explains, memory spilled to the
-- host, memory that dead or stuck processes still hold, other processes, fragmentation, a cache kept whole for every request, printed levels that
-- rose until the failure, the peak that the failing frames or the size of the request name, pieces that only together would have been enough, growth, memory outside the allocator, and last
-- a card that the process has filled by itself. The other figures stay in the row, so that what looks guilty can be cleared with its number.
-- Memory that nobody is listed for is a cause from a tenth of the card and 2 GiB on: displays and the driver hold less than that anywhere.
CREATE TABLE oom_cause AS
WITH cache AS (
    SELECT max(share_of_total) AS cache_share FROM reserved_cache
),
trend AS (
    SELECT max(growth_bytes) AS growth_bytes, max(growth_bytes) FILTER (series = 'printed') AS printed_growth_bytes FROM memory_trend
    WHERE series IN ('allocator', 'process', 'printed') AND fit_share > CASE WHEN piece_count < 16 THEN 0.97 ELSE 0.9 END
        AND coalesce(freed_share, 1) >= 0.3 AND NOT coalesce(is_one_pass, false) AND NOT coalesce(is_by_length, false)
),
abandoned AS (
    SELECT max(CASE WHEN compute_count = 0 AND unsized_count = 0 AND process_list IN ('none', 'listed') AND NOT is_pid_namespace THEN unlisted_bytes
        ELSE stuck_bytes END) AS abandoned_bytes
    FROM device_holding
),
guessed AS (
    SELECT oom.*, cache_share, growth_bytes, printed_growth_bytes, greatest(abandoned_bytes, ended_bytes) AS abandoned_bytes,
        greatest(2 ** 30, 0.05 * total_bytes) AS telling_bytes,
        CASE WHEN named_foreign_bytes >= greatest(2 ** 30, 0.05 * total_bytes) THEN greatest(2 ** 30, 0.05 * total_bytes)
            ELSE greatest(2 * 2 ** 30, 0.1 * total_bytes) END AS telling_foreign_bytes
    FROM oom, cache, trend, abandoned
)
SELECT * EXCLUDE (telling_bytes, telling_foreign_bytes, printed_growth_bytes),
    CASE
        WHEN is_capped AND NOT is_windows THEN 'capped'
        WHEN is_capped THEN 'refused'
        WHEN is_spilled THEN 'spilled'
        WHEN foreign_bytes >= telling_bytes AND tried_bytes <= foreign_bytes AND named_foreign_count >= 2
            AND context_count = named_foreign_count AND foreign_bytes - named_foreign_bytes < telling_bytes THEN 'contexts'
        WHEN foreign_bytes >= telling_foreign_bytes AND tried_bytes <= foreign_bytes AND abandoned_bytes >= 0.5 * foreign_bytes THEN 'abandoned'
        WHEN foreign_bytes >= telling_foreign_bytes AND tried_bytes <= foreign_bytes THEN 'foreign'
        WHEN unused_bytes >= tried_bytes AND unused_bytes >= telling_bytes THEN 'fragmentation'
        WHEN cache_share >= 0.5 OR hot_spot = 'cache_growth' THEN 'cache'
        -- levels that rose step by step until the failure: whatever was asked for last is the last straw
        WHEN printed_growth_bytes >= telling_bytes AND tried_bytes <= 0.5 * printed_growth_bytes THEN 'growth'
        WHEN phase = 'capture' THEN 'capture'
        WHEN hot_spot = 'logits' THEN 'logits'
        WHEN phase = 'load' THEN 'weights'
        WHEN phase = 'kv_pool' THEN 'pool'
        WHEN hot_spot = 'cache_reserve' OR cache_share >= 0.2 THEN 'cache'
        WHEN phase IN ('profile', 'prefill') OR tried_bytes > total_bytes THEN 'activation'
        -- so large a tensor is a peak by itself, wherever it was made: scores, logits, a whole prompt's activations
        WHEN phase IS NULL AND tried_bytes >= 0.25 * total_bytes THEN 'activation'
        -- cached memory is given back before a failure: what is still unused lies in segments that live blocks hold
        WHEN unused_bytes >= telling_bytes AND unused_bytes + free_bytes >= tried_bytes THEN 'fragmentation'
        WHEN growth_bytes >= telling_bytes THEN 'growth'
        WHEN outside_bytes >= greatest(3 * 2 ** 30, 0.05 * total_bytes) THEN 'outside'
        WHEN total_bytes IS NOT NULL THEN 'full'
        ELSE 'unknown'
    END AS cause
FROM guessed
ORDER BY source_id, oom_event_id;
