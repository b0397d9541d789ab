-- engine_load: the state of an engine over time, from its log and from its metrics. `is_steady` leaves out the first 30 s of requests
-- where more than 90 s were logged: while a queue fills, everything looks like overload.
CREATE TABLE engine_load AS
WITH scraped AS (
    SELECT source_id, engine, replica_id, scrape_id, max(time_ns) AS time_ns,
        max(reading) FILTER (metric IN ('num_requests_running', 'num_running_reqs', 'batch_current_size', 'requests_running', 'request_metrics.scheduled'))
            AS running_count,
        max(reading) FILTER (metric IN ('num_requests_waiting', 'num_queue_reqs', 'queue_size', 'requests_waiting', 'request_metrics.waiting')) AS waiting_count,
        max(reading) FILTER (metric IN ('kv_cache_usage_perc', 'gpu_cache_usage_perc', 'token_usage', 'kv_usage_ratio', 'kv_cache_utilization',
            'kv_cache_block_metrics.fraction')) AS kv_usage_share,
        max(reading) FILTER (metric = 'kv_cache_block_metrics.used') / nullif(max(reading) FILTER (metric = 'kv_cache_block_metrics.max'), 0)
            AS kv_block_share,
        max(reading) FILTER (metric = 'request_metrics.active') - max(reading) FILTER (metric = 'request_metrics.scheduled') AS held_back_count,
        max(reading) FILTER (metric IN ('num_paused_requests', 'inflight_batcher_metrics.paused_requests')) AS preemption_count,
        max(reading) FILTER (metric IN ('cache_hit_rate', 'kv_cache_hit_rate')) AS prefix_hit_share,
        max(reading) FILTER (metric = 'gen_throughput') AS output_token_hz,
        max(reading) FILTER (metric IN ('spec_accept_length', 'accept_length', 'spec_decode_acceptance_length')) AS accept_length_count
    FROM metric WHERE reading_kind = 'gauge'
    GROUP BY source_id, engine, replica_id, scrape_id
),
said AS (
    SELECT source_id, engine, replica_id, line_id, time_ns, phase, running_count, waiting_count, kv_usage_share, prefix_hit_share,
        prompt_token_hz, output_token_hz, new_sequence_count, new_token_count, cached_token_count, preemption_count, graph_share,
        accept_length_count, drafted_count, accepted_count, step_ns, device_step_ns
    FROM engine_sample
    UNION ALL BY NAME
    SELECT source_id, engine, replica_id, scrape_id::BIGINT AS line_id, time_ns, 'state' AS phase, running_count,
        coalesce(waiting_count, held_back_count) AS waiting_count, coalesce(kv_usage_share, kv_block_share) AS kv_usage_share, prefix_hit_share,
        output_token_hz, accept_length_count, preemption_count
    FROM scraped WHERE running_count IS NOT NULL
),
begun AS (
    SELECT source_id, coalesce(replica_id, 0) AS replica_id, min(time_ns) FILTER (running_count > 0) AS first_ns,
        max(time_ns) - min(time_ns) FILTER (running_count > 0) AS span_ns
    FROM said GROUP BY ALL
)
SELECT said.* REPLACE (coalesce(said.replica_id, 0) AS replica_id),
    said.time_ns IS NULL OR coalesce(span_ns, 0) < 90000000000 OR said.time_ns >= first_ns + 30000000000 AS is_steady
FROM said JOIN begun ON begun.source_id = said.source_id AND begun.replica_id = coalesce(said.replica_id, 0)
ORDER BY said.source_id, said.line_id;

-- engine_queue: of each engine in steady state, how often its KV cache is full, requests wait, and how many run; decode lines and state lines.
CREATE TABLE engine_queue AS
SELECT engine, count(*) AS sample_count, count(*) FILTER (running_count > 0) AS busy_count,
    count(*) FILTER (running_count > 0 AND waiting_count > 0) AS waiting_sample_count,
    count(*) FILTER (kv_usage_share >= 0.95) AS full_count,
    count(*) FILTER (kv_usage_share >= 0.95 AND waiting_count > 0) AS full_and_waiting_count,
    median(running_count) FILTER (running_count > 0) AS running_median_count,
    quantile_cont(running_count, 0.95) FILTER (running_count > 0) AS running_p95_count, max(running_count) AS running_max_count,
    median(waiting_count) AS waiting_median_count, max(waiting_count) AS waiting_max_count,
    median(kv_usage_share) FILTER (running_count > 0) AS kv_median_share, max(kv_usage_share) AS kv_max_share,
    median(output_token_hz) FILTER (output_token_hz > 0) AS output_median_hz,
    sum(preemption_count) AS preemption_count, max(time_ns) - min(time_ns) AS span_ns
FROM engine_load WHERE phase IN ('state', 'decode') AND is_steady
GROUP BY engine
ORDER BY engine;
