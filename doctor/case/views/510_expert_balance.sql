-- expert_balance: how evenly tokens are spread over the ranks (or, where only those are counted, the experts) of a mixture of experts: mean over
-- maximum, 1 is even. One row a source.
CREATE TABLE expert_balance AS
WITH by_rank AS (
    SELECT source_id, coalesce(step_id, -1) AS step_id, coalesce(layer_id, -1) AS layer_id, rank AS part_id, sum(token_count) AS token_count
    FROM expert_load WHERE token_count IS NOT NULL AND rank IS NOT NULL GROUP BY ALL
),
by_expert AS (
    SELECT source_id, coalesce(step_id, -1) AS step_id, coalesce(layer_id, -1) AS layer_id, expert_id AS part_id, sum(token_count) AS token_count
    FROM expert_load WHERE token_count IS NOT NULL AND rank IS NULL AND expert_id IS NOT NULL GROUP BY ALL
),
part AS (
    SELECT *, true AS is_of_ranks FROM by_rank
    UNION ALL SELECT *, false FROM by_expert WHERE source_id NOT IN (SELECT source_id FROM by_rank)
),
spread AS (
    SELECT source_id, step_id, layer_id, any_value(is_of_ranks) AS is_of_ranks, avg(token_count) / nullif(max(token_count), 0) AS balance_share,
        avg(token_count) AS mean_count, count(*) AS part_count, arg_max(part_id, token_count) AS hot_id, sum(token_count) AS token_count
    FROM part GROUP BY source_id, step_id, layer_id
),
stated AS (
    SELECT source_id, true AS is_of_ranks, sum(balancedness_share * coalesce(window_count, 1)) / sum(coalesce(window_count, 1)) AS balance_share,
        median(balancedness_share) AS median_share, sum(coalesce(window_count, 1)) AS step_count, median(token_count) AS mean_count, NULL::INTEGER AS part_count,
        NULL::INTEGER AS hot_id
    FROM expert_load WHERE balancedness_share IS NOT NULL GROUP BY source_id
)
SELECT source_id, bool_and(is_of_ranks) AS is_of_ranks, sum(balance_share * token_count) / nullif(sum(token_count), 0) AS balance_share,
    median(balance_share) AS median_share, count(DISTINCT step_id) AS step_count, bool_or(step_id >= 0) AS is_by_step, avg(mean_count) AS mean_count,
    max(part_count) AS part_count, mode(hot_id) AS hot_id
FROM spread GROUP BY source_id
UNION ALL
SELECT source_id, is_of_ranks, balance_share, median_share, step_count, true, mean_count, part_count, hot_id FROM stated
    WHERE source_id NOT IN (SELECT source_id FROM spread)
ORDER BY source_id;

-- expert_rank_time: time of the experts' kernels on each recorded rank, where at least two were recorded.
CREATE TABLE expert_rank_time AS
WITH spent AS (
    SELECT op.source_id, op.pid, op.device_id, sum(op.end_ns - op.start_ns)::BIGINT AS moe_ns, count(*) AS op_count
    FROM device_op AS op, steady_window
    WHERE op.family = 'moe' AND op.start_ns >= from_ns AND op.start_ns < until_ns
    GROUP BY op.source_id, op.pid, op.device_id
)
SELECT coalesce(source.rank, device_id) AS rank, spent.source_id, pid, device_id, moe_ns, op_count, avg(moe_ns) OVER () AS mean_ns, max(moe_ns) OVER () AS most_ns,
    count(*) OVER () AS rank_count
FROM spent JOIN source USING (source_id)
QUALIFY count(*) OVER () > 1
ORDER BY rank;
